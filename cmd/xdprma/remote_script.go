package main

import (
	"fmt"
	"strings"
)

// sshCommand is the command that ssh hands to the user's shell on the other host, whichever that is.
// It has no secrets, because a command line is for all to see: these come by the standard
// input, in one line, which is a script. A shell reads no further than the line.
const sshCommand = `exec sh -c 'IFS= read -r s && eval "$s"'`

// supervisor is the script of a rank's host. Behind its line the standard input carries the
// signals for the rank, a name a line. When that ends, and be it because the connection is
// lost, the rank is killed. In the end the rank's process group is killed, and the rank's folder is
// removed.
//
// The rank runs in the foreground, as a shell has background processes ignore SIGINT; so
// it tells the reader of signals its process id by a pipe in the folder. Descriptor 3 is the
// standard input, 4 and 5 are the outputs, which the shell's own messages keep off.
//
// Words in braces are filled in.
const supervisor = `n=$(echo; echo x) n=${n%x}; exec 3<&0 4>&1 5>&2 2>/dev/null; u=$(umask); umask 077; ` +
	`say() { (echo "{mark}$1" >&4); (echo "{mark}$1" >&5); }; ` +
	`k() { kill -s "$1" -- "-$p" || kill -s "$1" "$p"; }; ` +
	`d=$(mktemp -d "${TMPDIR:-/tmp}/xdprma-XXXXXX") && mkfifo "$d/pipe" "$d/in" && echo {key} >"$d/key" || ` +
	`{ rm -rf "$d"; say "end 125 cannot make files in ${TMPDIR:-/tmp}"; exit 125; }; ` +
	`{ read -r p <"$d/pipe"; while read -r s; do k "$s"; done; k KILL; rm -rf "$d"; } <&3 >/dev/null 4>&- 5>&- & r=$!; ` +
	`say "begin $d"; umask "$u"; ` +
	`( c=; fail() { echo "$2" >"$d/why"; exit "$1"; }; ` +
	`CDPATH= cd {folder} 2>&- || fail 126 {no folder}; {exports}export XDPRMA_KEY_FILE="$d/key"; ` +
	`command -v {program} >/dev/null || fail 127 {no program}; {bind}` +
	`exec sh -c {start} sh "$d" "{input}" $c {command} ) >&4 2>&5 3<&- 4>&- 5>&-; s=$?; w=; ` +
	`read -r p <"$d/pid" && k KILL; kill "$r"; rm -f "$d/in"; read -r p <"$d/feeder" && kill "$p"; ` +
	`read -r w <"$d/why"; rm -rf "$d"; say "end $s $w"; exit "$s"`

// start becomes the rank. Its id is told before its input is opened, which blocks until there is
// some.
const start = `d=$1 i=$2; shift 2; echo $$ >"$d/pid"; echo $$ >"$d/pipe"; exec setsid "$@" <"$i"`

// bindSlot has taskset bind the rank to the processor of its slot, of those that the session
// may use.
const bindSlot = `i={slot} q=0; for x in $(sed -n "s/^Cpus_allowed_list:[^0-9]*//p" /proc/self/status | tr , " "); do ` +
	`a=${x%-*}; while [ "$a" -le "${x#*-}" ]; do [ "$q" = "$i" ] && c="taskset -c $a"; a=$((a+1)) q=$((q+1)); done; done; ` +
	`[ "$c" ] || fail 125 "--bind core: the host has $q processors, and this is its rank $i, counted from 0"; `

// feeder is the script of rank 0's second connection, which carries its standard input. A
// child tells its process id before it opens the pipe, so that the supervisor can end it; the
// script ends well all the same, so that a failure is one of the connection.
const feeder = `trap "" PIPE; sh -c {feed} {folder} 2>/dev/null; exit 0`

const feed = `echo $$ >"$0/feeder" && [ -p "$0/in" ] && exec cat >"$0/in"`

// feederScript returns the feeder's line, without its end, for the folder of a supervisor.
func feederScript(folder string) string {
	return strings.NewReplacer("{feed}", quote(feed), "{folder}", quote(folder)).Replace(feeder)
}

// remoteRank is what the supervisor of a rank is told.
type remoteRank struct {
	mark   string // what begins the supervisor's own words in the outputs: a secret of the launcher
	key    string
	folder string
	env    []string // NAME=value
	args   []string
	input  bool // it has a standard input
	bind   bool
	slot   int
}

// script returns the supervisor's line, without its end.
func (r *remoteRank) script() string {
	var exports, command strings.Builder
	for _, e := range r.env {
		name, value, _ := strings.Cut(e, "=")
		fmt.Fprintf(&exports, "export %s=%s; ", name, quote(value))
	}
	for _, a := range r.args {
		command.WriteString(quote(a) + " ")
	}
	input, bind := "/dev/null", ""
	if r.input {
		input = "$d/in"
	}
	if r.bind {
		bind = strings.ReplaceAll(bindSlot, "{slot}", fmt.Sprint(r.slot))
	}
	return strings.NewReplacer(
		"{mark}", r.mark, "{key}", r.key, "{folder}", quote(r.folder), "{exports}", exports.String(),
		"{no folder}", quote("cannot enter the folder "+r.folder+"; --wdir names another"),
		"{program}", quote(r.args[0]), "{no program}", quote("no program "+r.args[0]+" is found"),
		"{bind}", bind, "{start}", quote(start), "{input}", input, "{command}", command.String(),
	).Replace(supervisor)
}

// quote returns text as one word of a shell's line, in a script that has the end of a line in n.
func quote(text string) string {
	return "'" + strings.NewReplacer("'", `'\''`, "\n", `'"$n"'`).Replace(text) + "'"
}
