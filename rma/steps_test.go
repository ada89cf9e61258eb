package rma_test

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/device"
	"github.com/xdprma/xdprma/internal/lab/testjob"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/userspace"
)

// prompt is a device that, once it is told to, sends nothing and answers each request itself.
type prompt struct {
	device.Device
	answers bool
	session uint64  // of answers, as the target knows it
	sent    []int32 // slots that are not given back yet
	answer  [wire.HeaderLen + 8]byte
	results int  // bytes that follow the answer's header
	here    bool // the answer
}

func (p *prompt) Enqueue(outs []device.Out) int {
	if !p.answers {
		return p.Device.Enqueue(outs)
	}
	slab := p.Facts().Slab
	for _, o := range outs {
		p.sent = append(p.sent, o.Slot)
		copy(p.answer[:wire.HeaderLen], slab.Payload(o.Slot))
	}
	p.answer[6] = wire.FlagResponse
	binary.LittleEndian.PutUint64(p.answer[8:], p.session)
	clear(p.answer[20:24])
	clear(p.answer[72:wire.HeaderLen])
	p.here = true
	return len(outs)
}

func (p *prompt) Transmit() {
	if !p.answers {
		p.Device.Transmit()
	}
}

func (p *prompt) Reap(slots []int32) int {
	if !p.answers {
		return p.Device.Reap(slots)
	}
	n := copy(slots, p.sent)
	p.sent = p.sent[:copy(p.sent, p.sent[n:])]
	return n
}

func (p *prompt) Receive(frames []device.Frame) int {
	if !p.answers {
		n := p.Device.Receive(frames)
		for _, f := range frames[:n] {
			if f.Answer {
				p.session = binary.LittleEndian.Uint64(f.Payload[8:])
			}
		}
		return n
	}
	if !p.here {
		return 0
	}
	p.here = false
	frames[0] = device.Frame{Payload: p.answer[:wire.HeaderLen+p.results], Path: device.NoPath, Answer: true}
	return 1
}

// BenchmarkSteps makes small calls whose requests are answered at once, without the kernel: a call's time is that of the
// caller's own steps, with the library's code and data in the processor's nearest caches.
func BenchmarkSteps(b *testing.B) {
	lab := newLab(b, 2)
	places := placesIn(b, lab, userspace.XDPGeneric)
	j := &job{t: b, ctx: b.Context(), nodes: make([]*rma.Node, 2)}
	b.Cleanup(j.close)
	own := &prompt{}
	for rank := range places {
		ctx := j.ctx
		if rank == 0 {
			ctx = device.WithFactory(ctx, func(c device.Config) (d device.Device, err error) {
				own.Device, err = device.Open(j.ctx, c)
				return own, err
			})
		}
		if err := lab.Do(rank, func() (err error) {
			at := testjob.Config(&places[rank])
			j.nodes[rank], err = rma.Join(ctx, rma.Config{Place: at.Place, Network: at.Network})
			return err
		}); err != nil {
			b.Fatal(err)
		}
	}
	w := j.windows(64, 8)[0]
	awaitReach(j, w)
	j.must(w.Lock(j.ctx, rma.LockShared, 1, 0))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	one, old := int64(1), int64(0)
	value, result := buffer.Value(&one), buffer.Value(&old)
	for _, c := range []struct {
		name    string
		results int
		call    func() error
	}{
		{"put-flush", 0, func() error { return first(w.Put(value, 1, rma.At(1)), w.Flush(j.ctx, 1)) }},
		{"get-flush", 8, func() error { return first(w.Get(result, 1, rma.At(1)), w.Flush(j.ctx, 1)) }},
		{"fetch-and-op-flush", 8, func() error {
			return first(w.FetchAndOp(value, result, 1, rma.At(0), rma.Sum), w.Flush(j.ctx, 1))
		}},
		{"Fetch", 8, func() error { _, err := rma.Fetch(j.ctx, w, one, 1, rma.At(0), rma.Sum); return err }},
	} {
		b.Run(c.name, func(b *testing.B) {
			if !own.answers {
				j.must(c.call()) // takes the lock, and tells own the session
			}
			own.answers, own.results = true, c.results
			b.ReportAllocs()
			for b.Loop() {
				if err := c.call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	j.nodes[0].Silence() // rank 1 knows nothing of these calls
}
