package vmtests

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netns"

	"github.com/xdprma/xdprma/bpf/faults"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/stats"
)

// rates says how many of 1000 frames suffer which fault.
type rates struct{ drop, corrupt, duplicate int }

// schedule spreads the faults over 1000 frames.
func (r rates) schedule(seed uint64) []faults.Fault {
	random := rand.New(rand.NewPCG(seed, 0))
	s := make([]faults.Fault, 1000)
	for i := range s {
		switch {
		case i < r.drop:
			s[i].Action = faults.Drop
		case i < r.drop+r.corrupt:
			s[i] = faults.Fault{Action: faults.Corrupt, Mask: 1 << random.IntN(8), Offset: uint16(random.IntN(1400))}
			if i%2 == 0 { // in small frames too
				s[i].Offset = uint16(random.IntN(wire.HeaderLen))
			}
		case i < r.drop+r.corrupt+r.duplicate:
			s[i].Action = faults.Duplicate
		}
	}
	random.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	return s
}

// relays joins ranks 0 and 1 of a lab of three by relays in the bridge's
// namespace, so that their frames go from port to port and not over the bridge.
func relays(t *testing.T, lab *netlab.Lab, generic bool, r rates) (both [2]*faults.Relay) {
	t.Helper()
	inBridge(t, lab, func() error {
		for from := range 2 {
			relay, err := faults.Attach(faults.Options{
				From: lab.Interface(from), To: lab.Interface(1 - from), PortBase: bootstrap.DefaultPort, Ports: 1, Generic: generic,
			})
			if err != nil {
				return err
			}
			both[from] = relay
			t.Cleanup(func() {
				if err := relay.Close(); err != nil {
					t.Error(err)
				}
			})
			if err := relay.SetSchedule(r.schedule(uint64(from + 1))); err != nil {
				return err
			}
		}
		return nil
	})
	return both
}

// inBridge calls f in the namespace of a lab's bridge.
func inBridge(t *testing.T, lab *netlab.Lab, f func() error) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	bridge, err := netns.GetFromPath(filepath.Join("/run/netns", strings.TrimSuffix(lab.Namespace(0), "0")+"br"))
	if err != nil {
		t.Fatal(err)
	}
	defer bridge.Close()
	if err := netns.Set(bridge); err != nil {
		t.Fatal(err)
	}
	err = f()
	if back := netns.Set(own); back != nil {
		panic(back)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Whatever the wire does, every put arrives and every addition happens once.
func TestFaults(t *testing.T) {
	t.Parallel()
	type course struct {
		transport string
		mtu       int
		rates     rates
	}
	for _, tt := range testenv.Cases([]course{
		{"xdp-native", 1500, rates{drop: 50, corrupt: 50, duplicate: 50}},
		{"udp", 1500, rates{drop: 200}},
	},
		course{"xdp-native", 1500, rates{drop: 10}},
		course{"xdp-native", 1500, rates{drop: 200}},
		course{"xdp-native", 9000, rates{drop: 50, corrupt: 50, duplicate: 50}},
		course{"xdp-generic", 1500, rates{drop: 50, corrupt: 50, duplicate: 50}},
		course{"udp", 1500, rates{drop: 50, corrupt: 50, duplicate: 50}},
	) {
		name := fmt.Sprintf("%s/mtu %d/drop %d corrupt %d duplicate %d", tt.transport, tt.mtu, tt.rates.drop, tt.rates.corrupt, tt.rates.duplicate)
		t.Run(name, func(t *testing.T) {
			lab := labtest.New(t, netlab.Config{Ranks: 3, MTU: tt.mtu})
			both := relays(t, lab, tt.transport != "xdp-native", tt.rates)
			j := start(t, lab, spec{program: "sum", ranks: 2, transports: []string{tt.transport}})
			for _, r := range j.ranks {
				j.await(r, "running")
			}
			awaitFaults(t, both, tt.rates)
			for _, r := range j.ranks {
				r.tell("stop")
			}
			j.finish()
			total := counters{Stats: stats.Stats{Faults: map[string]uint64{}}}
			for _, r := range j.ranks {
				c := j.counters(r)
				total.Resent += c.Resent
				total.Duplicates += c.Duplicates
				total.Faults["checksum"] += c.Faults["checksum"]
				t.Logf("rank %d: %s; resent %d, lost %d, timeouts %d, duplicates %d, faults %v", r.n, r.rounds(), c.Resent,
					c.Lost, c.Timeouts, c.Duplicates, c.Faults)
			}
			if total.Resent == 0 {
				t.Error("nothing was sent again")
			}
			if tt.rates.duplicate > 0 && total.Duplicates == 0 {
				t.Error("no duplicate was seen")
			}
			if tt.rates.corrupt > 0 && tt.transport != "udp" && total.Faults["checksum"] == 0 {
				t.Error("no bad checksum was seen")
			}
		})
	}
}

// awaitFaults waits until a fair number of each fault has happened.
func awaitFaults(t *testing.T, both [2]*faults.Relay, r rates) {
	t.Helper()
	const enough = 50
	testenv.Await(t, "enough faults", func() bool {
		done := true
		for _, relay := range both {
			taken, err := relay.Taken()
			if err != nil {
				t.Fatal(err)
			}
			done = done && (r.drop == 0 || taken[faults.Drop] >= enough) &&
				(r.corrupt == 0 || taken[faults.Corrupt] >= enough) &&
				(r.duplicate == 0 || taken[faults.Duplicate] >= enough || taken[faults.Pass] > 20*enough)
		}
		return done
	})
}

// rounds returns how far a rank that runs sum has come.
func (r *rank) rounds() string {
	for line := range strings.Lines(r.output()) {
		if rest, ok := strings.CutPrefix(line, "rounds "); ok {
			return strings.TrimSpace(rest) + " rounds"
		}
	}
	return "no rounds"
}

// The whole set of operations, with its larger transfers, over a bad wire.
func TestExchangeOverFaults(t *testing.T) {
	type path struct {
		transport string
		mtu       int
	}
	for _, tt := range testenv.Cases([]path{{"xdp-native", 9000}}, path{"xdp-native", 1500}, path{"xdp-generic", 3498}, path{"udp", 9000}) {
		t.Run(fmt.Sprintf("%s/mtu %d", tt.transport, tt.mtu), func(t *testing.T) {
			lab := labtest.New(t, netlab.Config{Ranks: 3, MTU: tt.mtu})
			both := relays(t, lab, tt.transport != "xdp-native", rates{drop: 20, corrupt: 20, duplicate: 20})
			start(t, lab, spec{program: "exchange", ranks: 2, transports: []string{tt.transport}}).finish()
			for _, relay := range both {
				if taken, err := relay.Taken(); err != nil || taken[faults.Drop] < 10 || taken[faults.Corrupt] < 10 {
					t.Errorf("faults: %v, %v", taken, err)
				}
			}
		})
	}
}
