package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// TestLeftWhilePulled has a sender leave, or die, when its messages were matched: before
// the receiver has asked for any of them, for a part, or for all. A sender that leaves
// still answers.
func TestLeftWhilePulled(t *testing.T) {
	for _, length := range []int{50_000, 64 << 20} {
		for asked := range 3 {
			for _, dies := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d bytes, asked %d times, dies %v", length, asked, dies), func(t *testing.T) {
					f := newRanks(t, 2, 8, func(c *Config) { c.Slab = HeapSlab(32, 0, 1472) })
					f.access(0, 1)
					s := sessionAt(f.access(1, 0))
					var receives [2]*Receive
					for range receives {
						f.send(0, 1, 1, 3, make([]byte, length))
					}
					f.Settle()
					for i := range receives {
						receives[i] = f.receive(1, 0, 1, 3, length)
					}
					for range asked {
						f.e[1].Tick()
					}
					if dies {
						f.Cut[0] = true
						s.Fail(link.ErrReset)
					} else {
						f.e[0].Bye("")
					}
					f.Pass(1000 * millisecond)
					for i, r := range receives {
						if !r.Met() || r.Err() != nil && !errors.Is(r.Err(), mpierr.ProcFailed) {
							t.Errorf("receive %d: %v, %v", i, r.Met(), r.Err())
						}
					}
					if s.ops.Waits() || s.Owed() > 0 {
						t.Errorf("calls are kept back: %v, %d operations go on", s.ops.Waits(), s.Owed())
					}
				})
			}
		}
	}
}

// TestOfferedTwice has a peer offer what it offers already, which harms nobody.
func TestOfferedTwice(t *testing.T) {
	f := newRanks(t, 2, 8, nil)
	f.access(0, 1)
	s := sessionAt(f.access(1, 0))
	p := f.send(0, 1, 1, 3, content(7, 50_000))
	f.Settle()
	again := wire.Record{Code: wire.CodeOffer, Window: 1, Token: 3, Disp: 50_000, Data: binary.LittleEndian.AppendUint32(nil, p.Offer())}
	if got := (*others)(f.e[1]).Request(&s.Session, again); got != mpierr.Success {
		t.Errorf("the second offer: %v", got)
	}
	r, twin := f.receive(1, 0, 1, 3, 50_000), f.receive(1, 0, 1, 3, 50_000)
	f.Until(1000*millisecond, func() bool { return p.Met() && r.Met() && twin.Met() })
	if r.Err() != nil {
		t.Errorf("the receive: %v", r.Err())
	}
	f.atRest()
}
