package engine

import (
	"bytes"
	"errors"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/engine/message"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// TestRestOfAMessageMayComeLateOrNever has the first frame of a message arrive, and the others late or never, while the
// receiver is in any state and does anything about it.
func TestRestOfAMessageMayComeLateOrNever(t *testing.T) {
	const n = 5000
	type state struct {
		f       *ranks
		before  *Receive // posted before the message came, or nil
		receive func() *Receive
	}
	ends := func(t *testing.T, r *Receive, f *ranks, length int, class mpierr.Class) {
		t.Helper()
		f.Until(20_000*millisecond, r.Met)
		switch {
		case class != mpierr.Success && !errors.Is(r.Err(), class), class == mpierr.Success && r.Err() != nil:
			t.Errorf("the receive ended with %v, not %v", r.Err(), class)
		case class == mpierr.Success || class == mpierr.Truncate:
			if r.Length != n || !bytes.Equal(r.Buffer, content(7, n)[:length]) {
				t.Errorf("%d bytes were received, or others", r.Length)
			}
		}
	}
	for _, test := range []struct {
		name   string
		length int // of the receive
		do     func(t *testing.T, s *state)
	}{
		{"received later", n, func(t *testing.T, s *state) {
			r := s.receive()
			if r.Met() {
				t.Error("the receive is met by a part of the message")
			}
			s.f.Filter = nil
			ends(t, r, s.f, n, mpierr.Success)
		}},
		{"received when all is here", n, func(t *testing.T, s *state) {
			s.f.Filter = nil
			s.f.Pass(1000 * millisecond)
			ends(t, s.receive(), s.f, n, mpierr.Success)
		}},
		{"truncated within the first frame", 100, func(t *testing.T, s *state) {
			r := s.receive()
			s.f.Filter = nil
			ends(t, r, s.f, 100, mpierr.Truncate)
		}},
		{"truncated behind it", n - 1, func(t *testing.T, s *state) {
			r := s.receive()
			s.f.Filter = nil
			ends(t, r, s.f, n-1, mpierr.Truncate)
		}},
		{"probed", n, func(t *testing.T, s *state) {
			if s.before == nil {
				probe := &Receive{Context: 1, Source: AnySource, Tag: AnyTag, Probe: true}
				if !s.f.e[1].TryReceive(probe) || probe.Length != n {
					t.Errorf("the probe found %d bytes", probe.Length)
				}
			}
			s.f.Filter = nil
			ends(t, s.receive(), s.f, n, mpierr.Success)
		}},
		{"the sender dies", n, func(t *testing.T, s *state) {
			s.f.Cut[0] = true
			ends(t, s.receive(), s.f, n, mpierr.ProcFailed)
		}},
		{"the sender dies unheard of", n, func(t *testing.T, s *state) {
			s.f.Cut[0] = true
			if s.before == nil {
				s.f.e[1].Session(0).Watch(1)
				s.f.e[1].Session(0).Await()
				s.f.e[1].Session(0).Await()
				s.f.Pass(20_000 * millisecond)
				s.f.e[1].Session(0).Watch(-1)
			}
			ends(t, s.receive(), s.f, n, mpierr.ProcFailed)
		}},
		{"the context is freed", n, func(t *testing.T, s *state) {
			s.f.e[1].FreeContext(1)
			s.f.Filter = nil
			if s.before != nil {
				ends(t, s.before, s.f, n, mpierr.Success)
			} else {
				s.f.Pass(1000 * millisecond)
			}
			if got := s.f.e[1].Stats.Refused; got != 0 {
				t.Errorf("%d refusals", got)
			}
		}},
		{"the context is broken", n, func(t *testing.T, s *state) {
			s.f.e[1].Revoke(1, 1)
			r := s.receive()
			s.f.Filter = nil
			if s.before != nil {
				ends(t, r, s.f, n, mpierr.Success) // it has the message
			} else {
				s.f.Pass(1000 * millisecond)
			}
		}},
	} {
		for _, posted := range []bool{false, true} {
			t.Run(map[bool]string{false: "kept, ", true: "posted, "}[posted]+test.name, func(t *testing.T) {
				f := newRanks(t, 2, 8, nil)
				f.access(0, 1)
				f.access(1, 0)
				s := &state{f: f}
				s.receive = func() *Receive {
					if s.before != nil {
						return s.before
					}
					return f.receive(1, 0, 1, AnyTag, test.length)
				}
				if posted {
					s.before = s.receive()
				}
				whole := 0
				f.Filter = func(from, _ int, b []byte) int {
					if from == 0 && kindOfFrame(b) == wire.KindData {
						if whole++; whole > 1 {
							return 0
						}
					}
					return 1
				}
				p := f.send(0, 1, 1, 3, content(7, n))
				f.Settle()
				if !p.Met() || f.e[1].Session(0).Peer().Coming() == 0 {
					t.Fatalf("the message is not under way: %v, %+v", p.Met(), f.e[1].Session(0).Peer())
				}
				test.do(t, s)
				f.Filter = nil
				if !f.Cut[0] {
					next := f.send(0, 1, 2, 3, content(9, n))
					r := f.receive(1, 0, 2, 3, n)
					f.Until(1000*millisecond, func() bool { return next.Met() && r.Met() })
					if r.Err() != nil || !bytes.Equal(r.Buffer, content(9, n)) {
						t.Errorf("the next message: %v", r.Err())
					}
				}
				if s := f.e[1].Session(0).Peer(); !s.AtRest() {
					t.Errorf("%+v is left", s)
				}
				f.atRest()
			})
		}
	}
}

// TestRestWithoutRoom sends more messages of several frames than there are slots for: those
// without room are offered, and all arrive in order.
func TestRestWithoutRoom(t *testing.T) {
	f := newRanks(t, 2, 8, func(c *Config) { c.Slab = HeapSlab(34, 0, 1472) })
	f.access(0, 1)
	f.access(1, 0)
	var sends []*Sending
	sent, offered := 0, false
	for i := range 30 {
		p := f.send(0, 1, 1, i, content(i, wire.MessageWindow/16))
		if sends = append(sends, p); p.Met() {
			sent++
		}
	}
	for i, p := range sends {
		r := f.receive(1, 0, 1, AnyTag, wire.MessageWindow/16)
		f.Until(1000*millisecond, func() bool {
			for id := range uint32(len(sends)) {
				_, ok := f.e[0].Offered(f.e[0].Session(1).Peer(), message.Offers|id)
				offered = offered || ok
			}
			return r.Met() && p.Met()
		})
		if r.Got != i || !bytes.Equal(r.Buffer, content(i, len(r.Buffer))) {
			t.Fatalf("message %d is %d", i, r.Got)
		}
	}
	if sent == 0 || sent == len(sends) || !offered {
		t.Errorf("%d of %d messages were sent at once; some were offered: %v", sent, len(sends), offered)
	}
	f.atRest()
}

// TestRestBehindOthers sends a message of several frames behind any number of others, before
// the session is open, so that nothing leaves.
func TestRestBehindOthers(t *testing.T) {
	for before := range 40 {
		f := newRanks(t, 2, 8, nil)
		for i := range before + 1 {
			f.send(0, 1, 1, i, content(i, 1100+i/max(before, 1)*3900))
		}
		for i := range before + 1 {
			r := f.receive(1, 0, 1, AnyTag, 5000)
			f.Until(1000*millisecond, r.Met)
			if r.Got != i || !bytes.Equal(r.Buffer[:r.Length], content(i, r.Length)) {
				t.Fatalf("behind %d: message %d is %d", before, i, r.Got)
			}
		}
		f.atRest()
	}
}

// TestForgedRest has a peer send what is no part of a message.
func TestForgedRest(t *testing.T) {
	f := newRanks(t, 2, 8, nil)
	s := sessionAt(f.access(0, 1))
	e := f.e[0]
	short := func(n int, follow uint64) wire.Record {
		return wire.Record{Code: wire.CodeMessage, Window: 1, Disp: follow, Data: make([]byte, n)}
	}
	more := func(n int) wire.Record { return wire.Record{Code: wire.CodeRest, Data: make([]byte, n)} }
	for i, test := range []struct {
		r    wire.Record
		want mpierr.Class
	}{
		{more(8), mpierr.Intern},
		{short(0, 8), mpierr.Intern},
		{short(8, 1<<63), mpierr.Intern},
		{short(8, message.MaxWhole), mpierr.Intern},
		{short(message.MaxWhole+1, 0), mpierr.Intern},
		{short(8, 16), mpierr.Success},
		{short(8, 0), mpierr.Intern},
		{short(8, 8), mpierr.Intern},
		{more(0), mpierr.Intern},
		{more(17), mpierr.Intern},
		{more(8), mpierr.Success},
		{more(8), mpierr.Success},
		{more(8), mpierr.Intern},
		{short(8, 0), mpierr.Success},
		{short(1000, message.MaxWhole-1000), mpierr.Success},
	} {
		if got := (*others)(e).Request(&s.Session, test.r); got != test.want {
			t.Errorf("record %d, %v of %d bytes: %v, want %v", i, test.r.Code, len(test.r.Data), got, test.want)
		}
	}
	if n := e.Usage().Unexpected; n != 3*64+24+8+message.MaxWhole {
		t.Errorf("%d bytes are kept", n)
	}
	e.FreeContext(1)
	r := more(message.MaxWhole - 1000)
	if got := (*others)(e).Request(&s.Session, r); got != mpierr.Success || e.Usage().Unexpected != 0 {
		t.Errorf("the rest of a message that was dropped: %v, %+v", got, e.Usage())
	}
}
