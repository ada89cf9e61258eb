package vmtests

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// Somebody takes the XDP program of a rank that works.

// The rank says so, attaches its program again, and goes on. It needs none of the privileges for it that it
// has given up, and no call that docs/confinement.md does not name. Nobody is given up, whatever is
// at the other end of the rank's veth: another rank, a bridge, or a relay that is a program. The kernel drops
// what that one redirects to the veth while it has no program.
func TestProgramIsTakenFromRank(t *testing.T) {
	t.Parallel()
	type course struct {
		transport string
		way       string
	}
	for _, tt := range testenv.Cases([]course{{"xdp-native", "pair"}, {"xdp-generic", "bridge"}, {"xdp-native", "relay"}},
		course{"xdp-generic", "pair"}, course{"xdp-native", "bridge"}, course{"xdp-generic", "relay"}) {
		t.Run(fmt.Sprintf("%s/%s", tt.transport, tt.way), func(t *testing.T) {
			const taken = 1
			ranks := 3
			if tt.way == "pair" {
				ranks = 2
			}
			lab := labtest.New(t, netlab.Config{Ranks: ranks})
			if tt.way == "relay" {
				relays(t, lab, tt.transport != "xdp-native", rates{})
			} else {
				acceptAnswers(t, lab, tt.transport)
			}
			j := start(t, lab, spec{program: "sum", ranks: 2, transports: []string{tt.transport}, deadAfter: besideFloods,
				env: []string{confined(t, "", callsOver[tt.transport]...)}})
			for _, r := range j.ranks {
				j.await(r, "running")
			}
			before, err := lab.Program(taken)
			if err != nil {
				t.Fatal(err)
			}
			for n := range 2 {
				if err := lab.TakeProgram(taken); err != nil {
					t.Fatal(err)
				}
				testenv.Await(t, "a program that is back", func() bool {
					select {
					case <-j.ranks[taken].done:
						t.Fatal("the rank has ended")
					default:
					}
					return strings.Count(j.ranks[taken].output(), "is on its interface again") == n+1
				})
				if after, err := lab.Program(taken); err != nil || after != before {
					t.Errorf("the interface has program %d, and had %d: %v", after, before, err)
				}
			}
			for _, r := range j.ranks {
				r.tell("stop")
			}
			j.finish()
			for _, r := range j.ranks {
				c := j.counters(r)
				want, lines := uint64(0), 0
				if r.n == taken {
					want, lines = 2, 2
				}
				if c.Mode != tt.transport || c.Device.FilterTaken != want || strings.Count(r.output(), "was taken from its interface") != lines {
					t.Errorf("rank %d: mode %s, taken %d times:\n%s", r.n, c.Mode, c.Device.FilterTaken, r.output())
				}
				t.Logf("rank %d: %s; resent %d, timeouts %d, redirected %d, executed %d", r.n, r.rounds(), c.Resent, c.Timeouts,
					c.Device.Filter["redirected"], c.Device.Filter["express_executed"])
			}
		})
	}
}

// A rank that is confined names another program that is on its interface, and the process that has it. It leaves
// that one there, and comes back when it is gone.
func TestConfinedRankGivesWay(t *testing.T) {
	t.Parallel()
	const taken, transport = 1, "xdp-generic"
	lab := labtest.New(t, netlab.Config{Ranks: 2})
	j := start(t, lab, spec{program: "sum", transports: []string{transport}, env: []string{confined(t, "", callsOver[transport]...)}})
	for _, r := range j.ranks {
		j.await(r, "running")
	}
	other, err := ebpf.NewProgram(&ebpf.ProgramSpec{ // without maps: the BPF library tries more about such a program
		Name: "other", Type: ebpf.XDP, License: "MIT", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}, // XDP_PASS
	})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var theirs link.Link
	for theirs == nil { // the rank may be faster
		err := errors.Join(lab.TakeProgram(taken), lab.Do(taken, func() error {
			nic, err := net.InterfaceByName(lab.Interface(taken))
			if err == nil {
				theirs, err = link.AttachXDP(link.XDPOptions{Program: other, Interface: nic.Index, Flags: link.XDPGenericMode})
			}
			return err
		}))
		if err != nil && !errors.Is(err, unix.EBUSY) {
			t.Fatal(err)
		}
	}
	defer theirs.Close()
	r := j.ranks[taken]
	says := func(text string, times int) {
		t.Helper()
		testenv.Await(t, text, func() bool {
			select {
			case <-r.done:
				t.Fatal("the rank has ended")
			default:
			}
			return strings.Count(r.output(), text) >= times
		})
	}
	says(`\"other\" in generic mode" process="`, 1)
	const again = "is on its interface again"
	before := strings.Count(r.output(), again) // it was taken before the other one found room
	if id, err := lab.Program(taken); err != nil || id == 0 {
		t.Errorf("the interface has program %d: %v", id, err)
	}
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	says(again, before+1)
	for _, r := range j.ranks {
		r.tell("stop")
	}
	j.finish()
	if c := j.counters(r); c.Mode != transport {
		t.Errorf("mode %s", c.Mode)
	}
}
