package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
)

const (
	sshd    = "/usr/sbin/sshd"
	sshPort = "2222"
)

// farLab is two hosts with an sshd each, and a third from which jobs are started.
type farLab struct {
	*netlab.Lab
	ssh string // what reaches the hosts
	dir string
}

// newFarLab starts the hosts.
func newFarLab(t *testing.T) *farLab {
	t.Helper()
	testenv.NeedsRoot(t)
	testenv.NeedsCommand(t, sshd, "openssh-server")
	testenv.NeedsCommand(t, "ssh", "openssh-client")
	l := &farLab{Lab: labtest.New(t, netlab.Config{Ranks: 3}), dir: t.TempDir()}
	for _, key := range []string{"host", "user"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(l.dir, key)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	public, err := os.ReadFile(filepath.Join(l.dir, "host.pub"))
	if err != nil {
		t.Fatal(err)
	}
	known := ""
	for rank := range 2 {
		known += fmt.Sprintf("[%s]:%s %s", l.Addr(rank), sshPort, public)
	}
	config := fmt.Sprintf("Port %s\nHostKey %s/host\nAuthorizedKeysFile %s/user.pub\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n",
		sshPort, l.dir, l.dir)
	for name, text := range map[string]string{"known": known, "config": config} {
		if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for rank := range 2 {
		l.serve(t, rank)
	}
	l.ssh = fmt.Sprintf("ssh -F none -T -p %s -i '%s/user' -o BatchMode=yes -o 'UserKnownHostsFile=%s/known' -o ConnectTimeout=60", sshPort, l.dir, l.dir)
	return l
}

// serve runs an sshd at a host until the test ends. Its /run is its own, with the folder that it
// asks for.
func (l *farLab) serve(t *testing.T, rank int) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "mount -t tmpfs none /run && mkdir -m 755 /run/sshd && exec "+sshd+" -D -e -f '"+l.dir+"/config'")
	log, err := os.Create(filepath.Join(l.dir, fmt.Sprint("log", rank)))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Unshareflags: unix.CLONE_NEWNS}
	started, over := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // or Pdeathsig would come when the thread ends
		defer runtime.UnlockOSThread()
		defer close(over)
		defer log.Close()
		err := l.Start(rank, cmd)
		started <- err
		if err == nil {
			cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-over
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("sshd of host %d: %s", rank, text)
		}
	})
	testenv.Await(t, "sshd", func() bool {
		return l.Do(rank, func() error {
			c, err := net.Dial("tcp", net.JoinHostPort(l.Addr(rank).String(), sshPort))
			if err == nil {
				c.Close()
			}
			return err
		}) == nil
	})
}

// run prepares xdprma run from the third host, with so many ranks on each of the others.
func (l *farLab) run(t *testing.T, slots int, args ...string) *invocation {
	t.Helper()
	hosts := fmt.Sprintf("%s:%d,%s:%d", l.Addr(0), slots, l.Addr(1), slots)
	return l.command(t, append([]string{"run", "--ssh", l.ssh, "--hosts", hosts}, args...)...)
}

func (l *farLab) command(t *testing.T, args ...string) *invocation {
	t.Helper()
	c := command(t, args...)
	// The network is that of the namespace, as `ip netns exec` has it, and the process is the same.
	c.Cmd.Path, c.Cmd.Args = "/bin/sh", append([]string{"sh", "-c", `exec nsenter --net="$0" "$@"`, "/run/netns/" + l.Namespace(2), binary}, args...)
	return c
}

// folderGone awaits the end of what the ranks that printed their key files had on their hosts.
func folderGone(t *testing.T, files ...string) {
	t.Helper()
	for _, f := range files {
		testenv.Await(t, "the end of "+filepath.Dir(f), func() bool {
			_, err := os.Stat(filepath.Dir(f))
			return os.IsNotExist(err)
		})
	}
}

// TestRunOnHosts has real servers of ssh start ranks.
func TestRunOnHosts(t *testing.T) {
	l := newFarLab(t)
	t.Run("hello", func(t *testing.T) {
		hello := filepath.Join(t.TempDir(), "hello")
		if err := testenv.Build("../../examples/hello", hello); err != nil {
			t.Fatal(err)
		}
		for _, transport := range []string{"udp", "xdp-generic"} {
			slots, hosts := 2, ""
			if transport != "udp" { // an interface has one rank over XDP
				slots, hosts = 1, fmt.Sprintf("%s interface=%s\n%s interface=%s\n", l.Addr(0), l.Interface(0), l.Addr(1), l.Interface(1))
			}
			args := []string{"--transport", transport, "--statuses", "--", hello}
			c := l.run(t, slots, args...)
			if hosts != "" {
				file := filepath.Join(l.dir, "hosts")
				if err := os.WriteFile(file, []byte(hosts), 0o600); err != nil {
					t.Fatal(err)
				}
				c = l.command(t, append([]string{"run", "--ssh", l.ssh, "--hostfile", file}, args...)...)
			}
			s := c.run(t)
			found := regexp.MustCompile(`(?m)^\[(\d)\] rank (\d) of (\d) found \d \(`+transport+`\)$`).FindAllString(c.stdout.String(), -1)
			if s != 0 || len(found) != 2*slots || !strings.Contains(c.stdout.String(), fmt.Sprintf("[0] counter: %d\n", 2*slots)) ||
				!strings.Contains(c.stderr.String(), fmt.Sprintf("rank 1 exited with status 0 on host %s\n", l.Addr(2-slots))) {
				t.Errorf("%s: status %d: %s%s", transport, s, &c.stdout, &c.stderr)
			}
		}
	})
	t.Run("link-local", func(t *testing.T) { l.linkLocal(t) })
	t.Run("environment", func(t *testing.T) { l.environment(t) })
	t.Run("input", func(t *testing.T) { l.input(t) })
	t.Run("statuses", func(t *testing.T) { l.statuses(t) })
	t.Run("lost", func(t *testing.T) { l.lost(t) })
	t.Run("signals", func(t *testing.T) { l.signals(t) })
	t.Run("second interrupt", func(t *testing.T) {
		c := l.run(t, 1, "--", "sh", "-c", "trap 'echo no' INT TERM; echo ready; while :; do sleep 0.05; done")
		_, rest := startAndAwait(t, c, 2)
		c.Process.Signal(unix.SIGINT)
		for range 2 {
			rest.ReadString('\n')
		}
		c.Process.Signal(unix.SIGINT)
		io.Copy(io.Discard, rest)
		if s := c.finish(t); s != statusSignal+int(unix.SIGKILL) {
			t.Errorf("status %d: %s", s, &c.stderr)
		}
	})
	t.Run("killed launcher", func(t *testing.T) { l.killed(t) })
}

// linkLocal names hosts by addresses that mean something on one link, which each host calls otherwise.
func (l *farLab) linkLocal(t *testing.T) {
	file := filepath.Join(l.dir, "hosts")
	lines := ""
	for rank := range 3 {
		if out, err := exec.Command("ip", "-n", l.Namespace(rank), "address", "add", fmt.Sprintf("fe80::%d/64", rank+1), "dev", l.Interface(rank), "nodad").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if rank < 2 {
			lines += fmt.Sprintf("root@[fe80::%d%%%s] interface=%s\n", rank+1, l.Interface(2), l.Interface(rank))
		}
	}
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	hello := filepath.Join(t.TempDir(), "hello")
	if err := testenv.Build("../../examples/hello", hello); err != nil {
		t.Fatal(err)
	}
	ssh := l.ssh + " -o StrictHostKeyChecking=no"
	c := l.command(t, "run", "--ssh", ssh, "--hostfile", file, "--transport", "udp", "--", hello)
	if s := c.run(t); s != 0 || !strings.Contains(c.stdout.String(), "[0] counter: 2\n") {
		t.Errorf("status %d: %s%s", s, &c.stdout, &c.stderr)
	}
	c = l.command(t, "run", "--ssh", ssh, "--hosts", fmt.Sprintf("[fe80::1%%%s]", l.Interface(2)), "--", hello)
	if s := c.run(t); s != statusUsage || !strings.Contains(c.stderr.String(), "name an address that is not link-local by --address") {
		t.Errorf("status %d: %s%s", s, &c.stdout, &c.stderr)
	}
}

// environment looks at what ranks are told, and at what everybody sees of it.
func (l *farLab) environment(t *testing.T) {
	const script = `echo "$XDPRMA_RANK/$XDPRMA_SIZE ${XDPRMA_RENDEZVOUS%:*} $XDPRMA_RENDEZVOUS_SERVE ${XDPRMA_INTERFACE:-none} $PWD $A $XDPRMA_CHECK $(stat -c %a $XDPRMA_KEY_FILE) $(umask) ${XDPRMA_KEY:-none}"
		test $(wc -c < $XDPRMA_KEY_FILE) = 65 && echo key $XDPRMA_KEY_FILE
		for p in /proc/[0-9]*; do for secret in $(cat $XDPRMA_KEY_FILE) $XDPRMA_JOB; do
			tr '\0' '\n' <$p/cmdline 2>/dev/null | { IFS= read -r x; while IFS= read -r x; do case $x in *$secret*) echo seen in $p;; esac; done; }
		done; done; exit 0`
	c := l.run(t, 1, "--wdir", "/usr/lib", "--env", "A=it's $A", "--", "sh", "-c", script)
	c.Env = append(os.Environ(), "XDPRMA_CHECK=1", "XDPRMA_JOB=77")
	if s := c.run(t); s != 0 {
		t.Fatalf("status %d: %s", s, &c.stderr)
	}
	var got, files []string
	for _, line := range sortedLines(&c.stdout) {
		if _, file, ok := strings.Cut(line, "] key "); ok {
			files = append(files, file)
		} else {
			got = append(got, line)
		}
	}
	mask := syscall.Umask(0)
	syscall.Umask(mask)
	want := []string{
		fmt.Sprintf("[0] 0/2 tcp:%s 0 none /usr/lib it's $A 1 600 %04o none", l.Addr(2), mask),
		fmt.Sprintf("[1] 1/2 tcp:%s 0 none /usr/lib it's $A 1 600 %04o none", l.Addr(2), mask),
	}
	if !slices.Equal(got, want) || len(files) != 2 {
		t.Errorf("got  %q %q\nwant %q", got, files, want)
	}
	folderGone(t, files...)

	c = l.run(t, 2, "-n", "3", "--interface", "lo", "--prefix=false", "--", "sh", "-c", `echo $XDPRMA_RANK $XDPRMA_INTERFACE $XDPRMA_PORT`)
	if s := c.run(t); s != 0 || !slices.Equal(sortedLines(&c.stdout), []string{"0 lo 7770", "1 lo 7771", "2 lo 7770"}) {
		t.Errorf("status %d: %s%s", s, &c.stdout, &c.stderr)
	}
	first := strings.Fields(affinity(t))[0]
	c = l.run(t, 1, "--bind", "core", "--", "sh", "-c", printAffinity)
	if s := c.run(t); s != 0 || !slices.Equal(sortedLines(&c.stdout), []string{"[0] " + first, "[1] " + first}) {
		t.Errorf("processor %s: status %d: %s%s", first, s, &c.stdout, &c.stderr)
	}
}

// printAffinity is a script that prints the processors that it may use.
const printAffinity = `sed -n 's/^Cpus_allowed_list:[^0-9]*//p' /proc/self/status`

// affinity returns the processors that this process may use, each by its number.
func affinity(t *testing.T) (list string) {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	for cpu := range 64 * len(set) {
		if set.IsSet(cpu) {
			list += fmt.Sprint(cpu, " ")
		}
	}
	return list
}

// input has more of it than pipes hold, with bytes of all values.
func (l *farLab) input(t *testing.T) {
	text := make([]byte, 300000)
	for i := range text {
		text[i] = byte(i * i >> 4)
	}
	dir := t.TempDir()
	c := l.run(t, 1, "--log-dir", dir, "--", "cat")
	c.Stdin = strings.NewReader(string(text))
	s := c.run(t)
	got, err := os.ReadFile(filepath.Join(dir, "rank.0.out"))
	other, err1 := os.ReadFile(filepath.Join(dir, "rank.1.out"))
	if s != 0 || err != nil || err1 != nil || string(got) != string(text) || len(other) > 0 || c.stdout.Len() > 0 {
		t.Errorf("status %d, %d bytes of %d, %d at the other: %v, %v, %s", s, len(got), len(text), len(other), err, err1, &c.stderr)
	}
	c = l.run(t, 1, "--", "true") // which reads nothing of what there is
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if s := c.run(t); s != 0 {
		t.Errorf("status %d: %s", s, &c.stderr)
	}
}

func (l *farLab) statuses(t *testing.T) {
	b := l.Addr(1).String()
	for _, test := range []struct {
		name   string
		args   []string
		want   int
		stderr string
	}{
		{"of the rank", []string{"--", "sh", "-c", "test $XDPRMA_RANK = 1 && exit 7; exec sleep 1000"}, 7, "rank 1 exited with status 7 on host " + b + "; ending the job"},
		{"255", []string{"--", "sh", "-c", "test $XDPRMA_RANK = 1 && exit 255; exec sleep 1000"}, 255, "rank 1 exited with status 255 on host " + b},
		{"killed", []string{"--", "sh", "-c", "test $XDPRMA_RANK = 1 && kill -9 $$; exec sleep 1000"}, 137, "rank 1 was killed by SIGKILL on host " + b},
		{"keep going", []string{"--keep-going", "--statuses", "--", "sh", "-c", "exit $((XDPRMA_RANK * 7))"}, 7, "rank 1 exited with status 7 on host " + b + "\n"},
		{"timeout", []string{"--timeout", "2s", "--", "sleep", "1000"}, statusTimeout, "the job has run for 2s"},
		{"no program", []string{"--", "no-such-program"}, statusNotFound, ": no program no-such-program is found"},
		{"no folder", []string{"--wdir", "/none", "--", "true"}, statusNotRunnable, "cannot enter the folder /none"},
		{"too few processors", []string{"--hosts", fmt.Sprint(b, ":", runtime.NumCPU()+1), "--bind", "core", "--", "sleep", "1000"}, 125, fmt.Sprintf("the host has %d processors, and this is its rank %[1]d,", runtime.NumCPU())},
		{"too many ranks", []string{"-n", "3", "--", "true"}, statusUsage, "the hosts have 2 slots"},
		{"no such key", []string{"--ssh", strings.Replace(l.ssh, "/user'", "/host'", 1), "--", "true"}, 255, "Permission denied"},
		{"nobody listens", []string{"--ssh", strings.Replace(l.ssh, sshPort, "9", 1), "--", "true"}, 255, ": ssh: connect to host"},
		{"many on a host that is not there", []string{"--hosts", b + ",10.77.0.99:50", "--ssh", l.ssh + " -o ConnectTimeout=1", "--", "sleep", "1000"}, 255, "could not be started on host 10.77.0.99: ssh: connect"},
	} {
		c := l.run(t, 1, test.args...)
		if s := c.run(t); s != test.want || !strings.Contains(c.stderr.String(), test.stderr) {
			t.Errorf("%s: status %d, want %d; stderr %q, want %q", test.name, s, test.want, &c.stderr, test.stderr)
		}
	}
}

// lost has a rank end its own connection, once the launcher has heard that it runs: what the
// rank's output says shows that.
func (l *farLab) lost(t *testing.T) {
	heard := filepath.Join(t.TempDir(), "heard")
	c := l.run(t, 1, "--", "sh", "-c", `test $XDPRMA_RANK = 1 || exec sleep 1000; echo ready; until [ -e "$0" ]; do sleep 0.05; done;
		p=$PPID; while read -r _ name _ parent _ </proc/$p/stat && [ "$name" != "(sshd)" ]; do p=$parent; done; kill -9 $p; exec sleep 1000`, heard)
	startAndAwait(t, c, 1)
	if err := os.WriteFile(heard, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want := "the connection to host " + l.Addr(1).String() + " ended"
	if s := c.finish(t); s != 255 || !strings.Contains(c.stderr.String(), want) {
		t.Errorf("status %d, want 255; stderr %q, want %q", s, &c.stderr, want)
	}
}

func (l *farLab) signals(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT} {
		name := strings.TrimPrefix(unix.SignalName(sig), "SIG")
		c := l.run(t, 1, "--", "sh", "-c", "trap 'echo got "+name+"; exit 0' "+name+"; echo ready; while :; do sleep 0.05; done")
		_, rest := startAndAwait(t, c, 2)
		c.Process.Signal(sig)
		out, _ := io.ReadAll(rest)
		if s := c.finish(t); s != 0 || strings.Count(string(out), "got "+name) != 2 {
			t.Errorf("%s: status %d, %q, %s", name, s, out, &c.stderr)
		}
	}
}

// killed has the launcher killed, and looks for what its ranks and their children, and the
// connection of the input, leave behind.
func (l *farLab) killed(t *testing.T) {
	c := l.run(t, 2, "--", "sh", "-c", "sleep 1000 & echo $$ $PPID $! $XDPRMA_KEY_FILE; exec sleep 1000")
	in, err := c.StdinPipe() // stays open
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	lines, _ := startAndAwait(t, c, 4)
	var pids, files []string
	for _, line := range lines {
		words := strings.Fields(line)
		pids, files = append(pids, words[1:4]...), append(files, words[4])
		folder := filepath.Dir(words[4])
		pids = append(pids, holders(t, folder)...)
		if words[0] == "[0]" {
			if with := holders(t, folder+"/in"); len(with) != 3 {
				t.Errorf("%q have the input, which are to be the rank, its child and the feeder", with)
			}
		}
	}
	c.Process.Kill()
	c.Wait()
	awaitDeath(t, pids...)
	folderGone(t, files...)
}

// holders returns the processes that have a file open which is path, or below it, removed or not.
func holders(t *testing.T, path string) (pids []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && (to == path || to == path+" (deleted)" || strings.HasPrefix(to, path+"/")) {
			pids = append(pids, strings.Split(l, "/")[2])
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// A folder is not held by a process that has a file in another one whose name begins so.
func TestHoldersAreOfOneFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "1")
	for name, want := range map[string]int{dir: 1, dir + "0": 0} {
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(filepath.Join(name, "in"))
		if err != nil {
			t.Fatal(err)
		}
		if got := holders(t, dir); len(got) != want {
			t.Errorf("with %s open, processes %q have something in %s", f.Name(), got, dir)
		}
		f.Close()
	}
}

// TestRunOptionsOfOutput has ranks of this machine told and shown what options say.
func TestRunOptionsOfOutput(t *testing.T) {
	modes(t, func(t *testing.T, command func(...string) *invocation) {
		c := command("run", "-n", "2", "--prefix=false", "--wdir", "/usr/lib", "--env", "A=a b", "--statuses", "--keep-going", "--", "sh", "-c",
			`echo "$XDPRMA_RANK $PWD $A"; exit $XDPRMA_RANK`)
		s := c.run(t)
		if want := []string{"0 /usr/lib a b", "1 /usr/lib a b"}; s != 1 || !slices.Equal(sortedLines(&c.stdout), want) {
			t.Errorf("status %d: %s%s", s, &c.stdout, &c.stderr)
		}
		if want := "xdprma: rank 0 exited with status 0\nxdprma: rank 1 exited with status 1\n"; !strings.HasSuffix(c.stderr.String(), want) {
			t.Errorf("%s", &c.stderr)
		}
		dir := filepath.Join(t.TempDir(), "new")
		testenv.ForAll(t, filepath.Dir(dir))
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(dir, "log")
		c = command("run", "-n", "2", "--log-dir", dir, "--", "sh", "-c", `printf "out $XDPRMA_RANK"; echo err $XDPRMA_RANK >&2`)
		if s := c.run(t); s != 0 || c.stdout.Len() > 0 || strings.Contains(c.stderr.String(), "err") {
			t.Errorf("status %d: %s%s", s, &c.stdout, &c.stderr)
		}
		for file, want := range map[string]string{"rank.0.out": "out 0", "rank.1.out": "out 1", "rank.0.err": "err 0\n", "rank.1.err": "err 1\n"} {
			if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(got) != want {
				t.Errorf("%s: %q, %v", file, got, err)
			}
		}
		c = command("run", "--bind", "core", "--", "sh", "-c", printAffinity)
		if first := strings.Fields(affinity(t))[0]; c.run(t) != 0 || c.stdout.String() != "[0] "+first+"\n" {
			t.Errorf("%s%s", &c.stdout, &c.stderr)
		}
	})
}

func TestRunRefusesOptions(t *testing.T) {
	for _, test := range []struct {
		args   []string
		stderr string
	}{
		{[]string{"-n", "1000", "--bind", "core"}, "1000 ranks are to have a processor each"},
		{[]string{"--bind", "numa"}, `--bind is "numa"`},
		{[]string{"--env", "1"}, `--env: "1" is neither`},
		{[]string{"--ssh", "rsh"}, "--ssh is for ranks on other hosts"},
		{[]string{"--address", "10.0.0.1"}, "--address is for"},
		{[]string{"--hosts", "a", "--mtu", "9000"}, "--mtu is of the network"},
		{[]string{"--hosts", "a", "--hostfile", "f"}, "both given"},
		{[]string{"--hosts", "a:x"}, `--hosts: the host "a:x"`},
		{[]string{"--hosts", "a", "-n", "2"}, "2 ranks do not fit"},
		{[]string{"--hosts", "a", "-n", "0"}, "-n is 0"},
		{[]string{"--hosts", "a", "--ssh", "ssh '"}, "--ssh: "},
		{[]string{"--hosts", "a", "--ssh", " "}, "--ssh names no command"},
		{[]string{"--hosts", "a", "--address", "a"}, `--address is "a"`},
		{[]string{"--hosts", "a", "--address", "fe80::1"}, "such as fe80::1%eth0"},
		{[]string{"--hostfile", "/none"}, "/none"},
		{[]string{"--hosts", "a", "--env", "UID=7"}, "--env: the shells of the hosts set UID themselves"},
	} {
		c := nobody(command(t, append(append([]string{"run"}, test.args...), "--", "true")...))
		if s := c.run(t); s != statusUsage || !strings.Contains(c.stderr.String(), test.stderr) {
			t.Errorf("%q: status %d: %s, want %q", test.args, s, &c.stderr, test.stderr)
		}
	}
}
