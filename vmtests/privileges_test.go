package vmtests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/loader"
)

func init() { programs["privileges"] = privileges }

// envExclusive has the privileges program count under locks that XDP programs take.
const envExclusive = "VMTESTS_EXCLUSIVE"

// privileges: a rank prints the capabilities of all its threads, works, and prints them again.
func privileges(s *self) error {
	if err := printCapabilities(); err != nil {
		return err
	}
	if os.Getenv(envExclusive) != "" {
		if err := exclusive(s); err != nil {
			return err
		}
	}
	return errors.Join(exchange(s), printCapabilities())
}

// printCapabilities prints the sets of capabilities of each thread.
func printCapabilities() error {
	files, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(files) < 3 {
		return fmt.Errorf("found the threads %q: %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return err
		}
		fmt.Println("thread", setsIn(text))
	}
	return nil
}

// sets are sets of capabilities of a thread.
type sets struct{ inheritable, permitted, effective, bounding, ambient uint64 }

// setsIn returns the sets that the status of a thread tells.
func setsIn(status []byte) (s sets) {
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		n, _ := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		switch name {
		case "CapInh":
			s.inheritable = n
		case "CapPrm":
			s.permitted = n
		case "CapEff":
			s.effective = n
		case "CapBnd":
			s.bounding = n
		case "CapAmb":
			s.ambient = n
		}
	}
	return s
}

func (s sets) String() string {
	return fmt.Sprintf("%x %x %x %x %x", s.inheritable, s.permitted, s.effective, s.bounding, s.ambient)
}

// without returns s without capabilities, but in the bounding set.
func (s sets) without(capabilities ...int) sets {
	for _, c := range capabilities {
		for _, set := range []*uint64{&s.inheritable, &s.permitted, &s.effective, &s.ambient} {
			*set &^= 1 << c
		}
	}
	return s
}

// nothingAttached fails the test if a rank's interface has an XDP program.
func nothingAttached(t *testing.T, lab *netlab.Lab) {
	t.Helper()
	for rank := range lab.Ranks() {
		err := lab.Do(rank, func() error {
			f, err := loader.Probe(lab.Interface(rank))
			if err == nil && f.Program != nil {
				err = fmt.Errorf("%v is still attached to the interface of rank %d", f.Program, rank)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// A rank gives up what it needed to set up XDP, in all its threads, and works on without it:
// it makes windows that its XDP program reaches, takes locks, leaves, and its program detaches.
func TestRanksGiveUpPrivileges(t *testing.T) {
	testenv.NeedsRoot(t)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	all := setsIn(status)
	given := []int{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_PERFMON}
	for _, c := range []struct {
		name, transport string
		env             []string
		want            sets
	}{
		{"native", "xdp-native", []string{envExclusive + "=1"}, all.without(given...)},
		{"generic", "xdp-generic", []string{envExclusive + "=1"}, all.without(given...)},
		{"the process executes", "xdp-generic", []string{"XDPRMA_EXPRESS=off"}, all.without(append(given, unix.CAP_BPF)...)},
		{"keep", "xdp-generic", []string{"XDPRMA_CAPABILITIES=keep"}, all},
		{"udp", "udp", nil, all},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			lab := acceptAnswers(t, labtest.New(t, netlab.Config{Ranks: 2}), c.transport)
			j := start(t, lab, spec{program: "privileges", transports: []string{c.transport}, env: c.env})
			j.finish()
			for _, r := range j.ranks {
				threads := 0
				for line := range strings.Lines(r.output()) {
					got, found := strings.CutPrefix(line, "thread ")
					if !found {
						continue
					}
					threads++
					if got = strings.TrimSpace(got); got != c.want.String() {
						t.Errorf("a thread of rank %d has %s, want %v", r.n, got, c.want)
					}
				}
				if threads < 6 {
					t.Errorf("rank %d has told of %d threads", r.n, threads)
				}
			}
			nothingAttached(t, lab)
		})
	}
}

// A rank that cannot give anything up warns and works on: its threads differ.
func TestRankWarnsWhoseThreadsDiffer(t *testing.T) {
	lab := labtest.New(t, netlab.Config{Ranks: 2})
	j := start(t, lab, spec{program: "exchange", transports: []string{"xdp-generic"}, env: []string{envOddThread + "=1"}})
	j.finish()
	for _, r := range j.ranks {
		if !strings.Contains(r.output(), "threads of this process have different capabilities") {
			t.Errorf("rank %d does not warn", r.n)
		}
	}
}
