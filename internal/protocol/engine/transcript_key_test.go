package engine_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/xdprma/xdprma/internal/lab/credentials"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// members is what the stage has of a job with a key.
type members struct {
	keyed   bool
	level   secure.Level
	lives   map[int]uint64 // the incarnation of each rank
	arrived []frame        // all that has come to a rank
}

// takeKey reads "key sign" among the words of a job's command.
func (s *stage) takeKey(w []string) {
	at := slices.Index(w, "key")
	if at < 0 {
		return
	}
	level, err := secure.ParseLevel(w[at+1])
	if err != nil {
		s.t.Fatal(err)
	}
	s.keyed, s.level, s.lives = true, level, map[int]uint64{}
}

// join gives a rank that starts its credentials, if the job has a key.
func (s *stage) join(c *engine.Config) {
	if s.keyed {
		s.lives[c.Rank] = c.Incarnation
		c.Credentials, c.Job = credentials.Of(c.Rank, c.Incarnation, s.level), credentials.Secrets.Job
	}
}

// dial has one rank dial another in one of its lives; 0: in a job with a key the present one.
func (s *stage) dial(from, to int, life uint64) {
	if !s.keyed {
		s.ranks[from].Dial(to, engine.PathID(to), life)
		return
	}
	if life == 0 {
		life = s.lives[to]
	}
	s.ranks[from].DialBy(engine.PathID(to), credentials.Ticket(to, life, s.level))
}

// frame returns a frame on its way.
func (s *stage) frame(from, to int, payload []byte) frame {
	f := frame{from: from, to: to, payload: payload}
	if s.level == secure.Sign && !f.greeting() && !f.express() {
		f.trailer = secure.TrailerLen
	}
	return f
}

// alter changes a bit of each frame that is wanted, just before its trailer.
func (s *stage) alter(w []string) {
	for i, f := range s.flying {
		if s.wantedFrames(w)(&f) {
			s.flying[i].payload = slices.Clone(f.payload)
			s.flying[i].payload[len(f.payload)-f.trailer-1] ^= 1
		}
	}
}

// replay sends the last frame that is wanted of those that have arrived again.
func (s *stage) replay(w []string) {
	for _, f := range slices.Backward(s.arrived) {
		if s.wantedFrames(w)(&f) {
			s.flying = append(s.flying, f)
			return
		}
	}
	s.t.Errorf("there is no frame to send again: %v", w)
}

// tellFaults says why a rank has dropped frames, and how many.
func (s *stage) tellFaults(rank int) {
	x := &s.ranks[rank].Stats
	var list []string
	for f, n := range x.Faults {
		if n > 0 {
			list = append(list, fmt.Sprintf("%v %d", wire.Fault(f), n))
		}
	}
	if x.Handshakes > 0 {
		list = append(list, fmt.Sprintf("handshakes %d", x.Handshakes))
	}
	s.say("      rank %d has dropped: %s", rank, strings.Join(append(list, fmt.Sprintf("bundles that came twice %d", x.Duplicates)), ", "))
}

// greeting reports whether f is a handshake frame of a job with a key.
func (f *frame) greeting() bool {
	return wire.IsHandshake(f.payload) && len(f.payload) == wire.GreetingLen
}

// unsigned returns f without its trailer.
func (f *frame) unsigned() []byte { return f.payload[:len(f.payload)-f.trailer] }

// greeting describes a handshake frame by what it says in clear.
func greeting(payload []byte) string {
	var g wire.Greeting
	if fault := g.Get(payload, (*siphash.Key)(&credentials.Secrets.Hello)); fault != wire.OK {
		panic("an engine has sent a malformed greeting: " + fault.String())
	}
	of, ok := secure.ParseTicket(g.Ticket)
	if !ok {
		panic("an engine has sent a malformed ticket")
	}
	kind := map[wire.Kind]string{wire.KindHello: "hello", wire.KindHelloAck: "hello-ack", wire.KindTicket: "ticket"}[g.Kind]
	return fmt.Sprintf("%s of rank %d, incarnation %d, to incarnation %d", kind, of.Rank, of.Incarnation, g.TargetLife)
}
