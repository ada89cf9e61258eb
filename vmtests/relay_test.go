package vmtests

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// Tests of a job that signs its frames, with somebody whom all frames of a rank go through.

// mischief is something that a relay does to a frame of one datagram, which it gets as its own.
type mischief struct {
	name   string
	counts []string // refusals of which there must be some
	do     func(m *meddler, f *netlab.Frame)
}

var mischiefs = []mischief{
	{"drop", nil, func(*meddler, *netlab.Frame) {}},
	{"delay", nil, func(m *meddler, f *netlab.Frame) { m.passLater(f) }},
	{"double", []string{"fault replay"}, func(m *meddler, f *netlab.Frame) {
		m.relay.Pass(f)
		m.relay.Pass(f)
	}},
	{"alter", []string{"fault tag"}, func(m *meddler, f *netlab.Frame) {
		if m.chance(2) {
			m.relay.Pass(f)
		}
		payload := slices.Clone(f.Payloads()[0])
		m.alter(payload)
		m.relay.Pass(f.With(payload))
	}},
	{"forge", []string{"fault tag", "fault code", "bad_code"}, func(m *meddler, f *netlab.Frame) {
		m.relay.Pass(f)
		f, payload := m.old("")
		if k := wire.Kind(payload[kindAt]); k == wire.KindData || k == wire.KindAck {
			renumber(payload, m.intN(9)) // or it would be refused before its tag is looked at
		} else {
			m.alter(payload)
		}
		m.relay.Pass(f.With(payload))
	}},
	{"cut", nil, func(m *meddler, f *netlab.Frame) {
		if m.chance(2) {
			m.relay.Pass(f)
		}
		payload := f.Payloads()[0]
		m.relay.Pass(f.With(payload[:m.intN(len(payload))]))
	}},
	{"replay", []string{"fault replay"}, func(m *meddler, f *netlab.Frame) {
		m.relay.Pass(f)
		f, payload := m.old("")
		m.relay.Pass(f.With(payload))
	}},
	{"reflect", nil, func(m *meddler, f *netlab.Frame) {
		if m.chance(2) {
			m.relay.Pass(f)
		}
		m.relay.Pass(f.Reflected())
	}},
	{"swap", nil, func(m *meddler, f *netlab.Frame) { // with the address of another session, or the head of one and the body of the other
		other, payload := m.old(kindOf(f.Payloads()[0]))
		own := f.Payloads()[0]
		switch head := min(wire.HeaderLen, len(own), len(payload)); {
		case m.chance(2):
			m.relay.Pass(other.With(own))
			m.relay.Pass(f.With(payload))
		default:
			m.relay.Pass(f.With(append(slices.Clone(own[:head]), payload[head:]...)))
			m.relay.Pass(f)
		}
	}},
}

const (
	mostOld  = 100                   // frames of a kind that a relay keeps
	mostLate = 20 * time.Millisecond // by which it delays a frame
	oneOf    = 10                    // so many frames something is done to one
	step     = 200                   // mischiefs that are one wait

	// besideFloods is a limit of silence for ranks that live while frames get lost, or come in floods.
	besideFloods = 6 * time.Second
)

// meddler decides what a relay does.
type meddler struct {
	relay *netlab.Relay
	does  atomic.Pointer[[]mischief] // one of them now and then; nil: it passes all
	done  atomic.Int64
	loses [3]atomic.Bool // all frames to a rank

	mu     sync.Mutex
	random *rand.Rand
	kinds  []string
	kept   map[string][]*netlab.Frame // by kind, some that have passed
}

// needsJoined skips a test whose ranks send datagrams that a relay cannot read on old kernels.
func needsJoined(t *testing.T, w walls) {
	t.Helper()
	testenv.NeedsRoot(t)
	if w.transport == "udp" {
		testenv.NeedsFeature(t, testenv.JoinedDatagrams)
	}
}

// meddle puts a relay into the link of a rank.
func meddle(t *testing.T, lab *netlab.Lab, rank int) *meddler {
	t.Helper()
	m := &meddler{random: rand.New(rand.NewPCG(11, 12)), kept: map[string][]*netlab.Frame{}}
	var err error
	if m.relay, err = lab.Intercept(rank, bootstrap.DefaultPort, m.decide); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *meddler) intN(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.random.IntN(n)
}

func (m *meddler) chance(of int) bool { return m.intN(of) == 0 }

// decide does something to one datagram of some frames. Datagrams that are joined with it go on alone.
func (m *meddler) decide(r *netlab.Relay, f *netlab.Frame) {
	if m.loses[f.Target()].Load() {
		return
	}
	payloads, does := f.Payloads(), m.does.Load()
	for _, payload := range payloads {
		if len(payload) < wire.HeaderLen {
			r.Pass(f)
			return
		}
	}
	chosen := m.intN(len(payloads))
	m.keep(f.With(payloads[chosen]))
	if does == nil || !m.chance(oneOf) {
		r.Pass(f)
		return
	}
	for i, payload := range payloads {
		if one := f.With(payload); i != chosen {
			r.Pass(one)
		} else {
			(*does)[m.intN(len(*does))].do(m, one)
			m.done.Add(1)
		}
	}
}

func (m *meddler) keep(f *netlab.Frame) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kind := kindOf(f.Payloads()[0])
	if m.kept[kind] == nil {
		m.kinds = append(m.kinds, kind)
	}
	if len(m.kept[kind]) < mostOld {
		m.kept[kind] = append(m.kept[kind], f)
	} else {
		m.kept[kind][m.random.IntN(mostOld)] = f
	}
}

// old returns a frame of a kind that has passed, or of any, and a copy of its payload.
func (m *meddler) old(kind string) (*netlab.Frame, []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if kind == "" {
		kind = m.kinds[m.random.IntN(len(m.kinds))]
	}
	f := m.kept[kind][m.random.IntN(len(m.kept[kind]))]
	return f, slices.Clone(f.Payloads()[0])
}

// passLater passes a frame on when others have overtaken it.
func (m *meddler) passLater(f *netlab.Frame) {
	time.AfterFunc(time.Millisecond+time.Duration(m.intN(int(mostLate-time.Millisecond))), func() { m.relay.Pass(f) })
}

// alter changes a bit.
func (m *meddler) alter(payload []byte) {
	at := m.intN(8 * len(payload))
	payload[at/8] ^= 1 << (at % 8)
}

// Whatever a relay in the link of a rank does, the job gets right results, until it loses all.
func TestRelayOnPathOfSignedJob(t *testing.T) {
	testenv.Only(t, testenv.Attacks)
	t.Parallel()
	for _, w := range testenv.Cases([]walls{{"xdp-native", true, secure.Sign}, {"udp", false, secure.Seal}},
		walls{"xdp-native", true, secure.Seal}, walls{"xdp-native", false, secure.Sign}, walls{"udp", false, secure.Sign}) {
		t.Run(w.name(), func(t *testing.T) {
			needsJoined(t, w)
			lab := acceptAnswers(t, labtest.New(t, netlab.Config{Ranks: 3}), w.transport)
			m, key := meddle(t, lab, 0), secure.NewKey()
			j := start(t, lab, spec{program: "besieged", transports: []string{w.transport}, deadAfter: besideFloods, key: &key, level: w.level, overTCP: true, env: w.env()})
			for _, r := range j.ranks {
				j.await(r, "running")
			}
			m.phase(j, mischief{name: "nothing", do: func(m *meddler, f *netlab.Frame) { m.relay.Pass(f) }})
			held := j.now()
			for _, does := range mischiefs {
				m.phase(j, does)
			}
			m.phase(j, mischiefs...)
			m.does.Store(nil)
			for n, c := range j.now() {
				checkUnmoved(t, n, c)
			}
			j.checkMemory(held)
			t.Logf("the relay lost %d frames by itself", m.relay.Lost())
			for to := range m.loses {
				m.loses[to].Store(true)
			}
			from := time.Now()
			for _, r := range j.ranks {
				j.ended(r)
				if !strings.Contains(r.output(), "process failed") || r.cmd.ProcessState.ExitCode() != 1 {
					t.Errorf("without a path, rank %d: %v, %s", r.n, r.cmd.ProcessState, r.output())
				}
			}
			t.Logf("without a path all ended after %v", time.Since(from))
		})
	}
}

// phase has a relay do some things, and looks whether the ranks go on and have counted them.
func (m *meddler) phase(j *job, does ...mischief) {
	j.t.Helper()
	const part = 20 // of the frames of an attack
	before, from := refused(j.now()), m.done.Load()
	m.does.Store(&does)
	for did, want := int64(0), int64(frames()/part); did < want; {
		did = min(did+step, want)
		testenv.Await(j.t, "a relay that finds enough to do", func() bool { return m.done.Load() >= from+did })
	}
	grown, missing, told := map[string]uint64{}, true, j.now()
	fared := fares(told)
	for asked := 0; asked < mostAsked && missing; asked++ {
		if asked > 0 {
			told = j.now()
		}
		grown, missing = map[string]uint64{}, false
		for name, n := range refused(told) {
			if n -= before[name]; n > 0 {
				grown[name] = n
			}
		}
		for _, d := range does {
			total := uint64(0)
			for _, name := range d.counts {
				total += grown[name]
			}
			missing = missing || total == 0 && d.counts != nil
		}
	}
	names := []string{}
	for _, d := range does {
		names = append(names, d.name)
	}
	j.t.Logf("%s: %d frames: %v: %v", strings.Join(names, ", "), m.done.Load()-from, grown, fared)
	if missing {
		j.t.Errorf("%v: nothing of it is counted: %v", names, grown)
	}
}
