package main

import (
	"fmt"
	"strings"
)

// sshCommand is the command that ssh hands to the user's shell on the other host, whichever that is.
// It has no secrets, because a command line is for all to see: these come by the standard
// input, in one line, which is a script. A shell reads no further than the line.
//
// The variables of the scripts begin with _ and are unset first: what the user's environment exports
// under their names would pass them on to the rank.
const sshCommand = `exec sh -c 'set +a; unset _a _c _d _i _n _q _s _u _w _x; IFS= read -r _s && eval "$_s"'`

// supervisor is the script of a rank's host. Behind its line the standard input carries the
// signals for the rank, a name a line. When that ends, and be it because the connection is
// lost, the rank is killed. In the end the rank's process group is killed, and the rank's folder is
// removed.
//
// No process is killed by its id, which may be another's by then. A reader in the rank's own group
// sends the signals to its group. The orders come by a pipe in the folder, which is open for both
// directions, so that opening it never blocks. The status of the rank comes when the reader, too, has ended.
//
// The rank runs in the foreground, as a shell has background processes ignore SIGINT.
// Descriptor 3 is the standard input, 4 and 5 are the outputs, which the shell's own messages keep off,
// 6 is the pipe, and 7 is open as long as the reader lives.
//
// The rank may never have opened its input: the last command opens it, which frees a feeder that waits for that.
//
// Words in braces are filled in.
const supervisor = `_n=$(echo; echo x) _n=${_n%x}; exec 3<&0 4>&1 5>&2 2>/dev/null; _u=$(umask); umask 077; ` +
	`say() { (echo "{mark}$1" >&4); (echo "{mark}$1" >&5); }; ` +
	`_d=$(mktemp -d "${TMPDIR:-/tmp}/xdprma-XXXXXX") && mkfifo "$_d/orders" && {input} "$_d/in" && echo {key} >"$_d/key" && eval {variables} || ` +
	`{ rm -rf "$_d"; say "end 125 cannot make files in ${TMPDIR:-/tmp}"; exit 125; }; ` +
	`exec 6<>"$_d/orders"; { cat; echo KILL; rm -rf "$_d"; } <&3 >&6 3<&- 4>&- 5>&- 6>&- & ` +
	`say "begin $_d"; umask "$_u"; ` +
	`_s=$( ( fail() { echo "$2" >"$_d/why"; exit "$1"; }; ` +
	`CDPATH= cd {folder} 2>&- || fail 126 {no folder}; {bind}` +
	`exec $_c setsid sh -c {start} "$_d" {command} ) 7>&1 >&4 2>&5 3<&- 4>&- 5>&-; _s=$?; echo KILL >&6; echo "$_s" ); ` +
	`read -r _w <"$_d/why"; rm -rf "$_d" 7<>"$_d/in"; say "end $_s $_w"; exit "$_s"`

// start becomes the rank. The reader of signals is no child of it, as a program may wait for all its children.
// The input blocks until there is some.
//
// The user's variables are set when nothing but the program is left to be found: PATH is the program's, and
// no name is one of the scripts' any more.
const start = `( { trap "" HUP INT QUIT TERM; while read -r s; do kill -s "$s" 0; done; } <&6 >/dev/null 2>&1 & ); ` +
	`fail() { echo "$2" >"$0/why"; exit "$1"; }; . "$0/variables"; export XDPRMA_KEY_FILE="$0/key"; ` +
	`runs() { [ -f "$1" ] && [ -x "$1" ]; }; case $1 in ` +
	`*/*) runs "$1" || ! [ -e "$1" ] || fail 126 "the program $1 cannot be run"; runs "$1";; ` +
	`*) ( set -f; IFS=:; p=$PATH:; for p in $p; do runs "${p:-.}/$1" && exit; done; exit 1 );; ` +
	`esac || fail 127 "no program $1 is found"; ` +
	`exec "$@" <"$0/in" 6<&- 7>&-`

// ofShells are the variables to which some shell gives no value but its own.
const ofShells = "_ BASHOPTS BASHPID BASH_COMMAND BASH_SUBSHELL BASH_VERSINFO DIRSTACK EPOCHSECONDS EUID FUNCNAME GROUPS LINENO OPTIND " +
	"PIPESTATUS PPID RANDOM SECONDS SHELLOPTS SHLVL SRANDOM UID"

// bindSlot has taskset bind the rank to the processor of its slot, of those that the session
// may use.
const bindSlot = `_i={slot} _q=0; for _x in $(sed -n "s/^Cpus_allowed_list:[^0-9]*//p" /proc/self/status | tr , " "); do ` +
	`_a=${_x%-*}; while [ "$_a" -le "${_x#*-}" ]; do [ "$_q" = "$_i" ] && _c="taskset -c $_a"; _a=$((_a+1)) _q=$((_q+1)); done; done; ` +
	`[ "$_c" ] || fail 125 "--bind core: the host has $_q processors, and this is its rank $_i, counted from 0"; `

// feeder is the script of rank 0's second connection, which carries its standard input. It ends
// well, so that a failure is one of the connection.
const feeder = `exec 2>/dev/null; trap "" PIPE; [ -p {folder}/in ] && cat >{folder}/in; exit 0`

// feederScript returns the feeder's line, without its end, for the folder of a supervisor.
func feederScript(folder string) string {
	return strings.ReplaceAll(feeder, "{folder}", quote(folder))
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
	// A here-document puts the variables into a file: a command that writes its arguments may be a process.
	var variables, command strings.Builder
	fmt.Fprintf(&variables, "cat >\"$_d/variables\" <<'%s'\n", r.mark)
	for _, e := range r.env {
		name, value, _ := strings.Cut(e, "=")
		fmt.Fprintf(&variables, "export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
	}
	variables.WriteString(r.mark + "\n")
	for _, a := range r.args {
		command.WriteString(quote(a) + " ")
	}
	input, bind := "ln -s /dev/null", ""
	if r.input {
		input = "mkfifo"
	}
	if r.bind {
		bind = strings.ReplaceAll(bindSlot, "{slot}", fmt.Sprint(r.slot))
	}
	return strings.NewReplacer(
		"{mark}", r.mark, "{key}", r.key, "{folder}", quote(r.folder), "{variables}", quote(variables.String()),
		"{no folder}", quote("cannot enter the folder "+r.folder+"; --wdir names another"),
		"{bind}", bind, "{start}", quote(start), "{input}", input, "{command}", command.String(),
	).Replace(supervisor)
}

// quote returns text as one word of a shell's line, in a script that has the end of a line in _n.
func quote(text string) string {
	return "'" + strings.NewReplacer("'", `'\''`, "\n", `'"$_n"'`).Replace(text) + "'"
}
