package vmtests

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
)

// others are users without privileges, one a rank: the limit on locked memory is of all processes
// of a user together, and leaves room for two ranks.
var others = []string{"nobody", "daemon"}

// asOthers has ranks run as these users, by `xdprma lend`, whose program is helper.
func asOthers(t *testing.T, helper string) func(int, *bootstrap.Config, *exec.Cmd) {
	t.Helper()
	program := programForAll(t)
	return func(_ int, c *bootstrap.Config, cmd *exec.Cmd) {
		cmd.Path, cmd.Dir = helper, "/"
		cmd.Args = []string{"xdprma", "lend", "--user", others[c.Rank], "--interface", c.Interface, "--transport", string(c.Transport), "--", program}
	}
}

// programForAll is this program, in a folder that all users may enter. That in which go test has built it is none.
func programForAll(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "rank")
	testenv.ForAll(t, filepath.Dir(program))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, text, 0o755); err != nil {
		t.Fatal(err)
	}
	return program
}

// Ranks without privileges work over XDP, by what `xdprma lend` passes on. When they end nothing
// is attached, even if they are killed.
func TestLend(t *testing.T) {
	testenv.NeedsRoot(t)
	lends(t, programPath(t, "../cmd/xdprma"), []string{"xdp-native", "xdp-generic"}, []bool{false, true}, nil)
}

// A program without cgo becomes another user by the runtime's means, and not by the C library's. The
// limit on memory is for its ranks: it would have the program collect garbage all the time.
func TestLendWithoutCgo(t *testing.T) {
	testenv.NeedsRoot(t)
	helper := programPath(t, "../cmd/xdprma")
	if !ownWithoutCgo() {
		helper = filepath.Join(t.TempDir(), "xdprma")
		buildWithoutCgo(t, "build", "-ldflags=-w", "-o", helper, "../cmd/xdprma")
	}
	lends(t, helper, []string{"xdp-native"}, []bool{false}, []string{"GOMEMLIMIT=1MiB"})
}

func lends(t *testing.T, helper string, transports []string, kills []bool, env []string) {
	change := asOthers(t, helper)
	for _, transport := range transports {
		for _, killed := range kills {
			name := transport
			program := "privileges"
			if killed {
				name, program = name+", killed", "sum"
			}
			t.Run(name, func(t *testing.T) {
				lab := labtest.New(t, netlab.Config{Ranks: 2})
				j := start(t, lab, spec{program: program, transports: []string{transport}, overTCP: true, change: change, env: env})
				if killed {
					for _, r := range j.ranks {
						j.await(r, "running")
					}
					for _, r := range j.ranks {
						r.kill()
						<-r.done
					}
					nothingAttached(t, lab)
					return
				}
				j.finish()
				for _, r := range j.ranks {
					if got := strings.TrimSpace(j.await(r, "joined ")); got != transport {
						t.Errorf("rank %d has joined over %s", r.n, got)
					}
					var has []string
					for line := range strings.Lines(r.output()) {
						if fields := strings.Fields(line); len(fields) == 6 && fields[0] == "thread" {
							has = append(has, strings.Join(slices.Delete(fields[1:], 3, 4), " "))
						}
					}
					if len(has) < 6 || slices.ContainsFunc(has, func(s string) bool { return s != "0 0 0 0" }) {
						t.Errorf("the threads of rank %d have %q", r.n, has)
					}
					if n := j.counters(r).Device.RxFrames; n == 0 {
						t.Errorf("no frames came by a socket of rank %d", r.n)
					}
				}
				nothingAttached(t, lab)
			})
		}
	}
}

// Where lend fails, it says why, with its exit status, and leaves nothing attached.
func TestLendRefuses(t *testing.T) {
	testenv.NeedsCommand(t, "bash", "bash")
	helper := programPath(t, "../cmd/xdprma")
	lab := labtest.New(t, netlab.Config{Ranks: 2})
	at := lab.Interface(0)
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"--interface", at, "--user", "nobody"}, 2, "no program given"},
		{[]string{"--user", "nobody", "--", "true"}, 2, "--interface is missing"},
		{[]string{"--interface", at, "--", "true"}, 2, "--user is missing"},
		{[]string{"--interface", at, "--user", "nosuchuser", "--", "true"}, 2, `there is no user "nosuchuser"`},
		{[]string{"--interface", at, "--user", "0", "--", "true"}, 2, "root needs nothing lent"},
		{[]string{"--interface", at, "--user", "nobody", "--transport", "udp", "--", "true"}, 2, "it must be xdp, xdp-native or xdp-generic"},
		{[]string{"--interface", at, "--user", "nobody", "--port", "70000", "--", "true"}, 2, `--port="70000" is not a number from 0 to 65535`},
		{[]string{"--interface", "nowhere0", "--user", "nobody", "--", "true"}, 2, "nowhere0"},
		{[]string{"--interface", "lo", "--user", "nobody", "--transport", "xdp-native", "--", "true"}, 125, "lo"},
		{[]string{"--interface", at, "--user", "nobody", "--", "nosuchprogram"}, 127, "nosuchprogram"},
		{[]string{"--interface", at, "--user", "nobody", "--", "/etc/passwd"}, 126, "/etc/passwd"},
		{[]string{"--interface", at, "--user", "nobody", "--", "false"}, 1, ""},
		{[]string{"--interface", at, "--user", "nobody", "--", "sh", "-c", `test $(id -u) = 65534 && test $LISTEN_PID = $$ && test $LISTEN_FDS = 7 && test -e /proc/self/fd/9`}, 0, ""},
	} {
		cmd := lab.Command(0, helper, append([]string{"lend"}, c.args...)...)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != c.status || !strings.Contains(string(out), c.says) {
			t.Errorf("%q: status %d, want %d and %q\n%s", c.args, got, c.status, c.says, out)
		}
		nothingAttached(t, lab)
	}
	// With descriptors of root's, of which the program gets that of PMI alone. Other shells than bash have no
	// word for a descriptor above 9.
	for begin, then := range map[string]string{
		`exec 10</etc/passwd; unset PMI_FD;`: `test ! -e /proc/self/fd/10`,
		`exec 5</etc/passwd; PMI_FD=5`:       `test "$PMI_FD" = 10 && grep -q root <&10`,
	} {
		cmd := lab.Command(0, "bash", "-c", begin+` "$@"`, "bash", helper, "lend", "--interface", at, "--user", "nobody", "--", "bash", "-c", then)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s %s: %v\n%s", begin, then, err, out)
		}
	}
	// Without privileges.
	cmd := lab.Command(0, "setpriv", "--bounding-set", "-all", "--inh-caps", "-all", helper, "lend", "--interface", at, "--user", "nobody", "--", "true")
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != 125 || !strings.Contains(string(out), "CAP_NET_ADMIN") {
		t.Errorf("without privileges: status %d\n%s", got, out)
	}
}
