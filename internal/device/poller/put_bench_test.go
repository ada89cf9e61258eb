package poller

import (
	"context"
	"testing"

	"github.com/xdprma/xdprma/internal/device"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/userspace"
	"github.com/xdprma/xdprma/window"
)

// mirrored is a device whose Transmit also does the peer's work, so that one
// goroutine makes whole round trips: a profile of it shows what both ends cost,
// without the time that they wait for each other.
type mirrored struct {
	device.Device
	peer   device.Device
	engine *engine.Engine
	now    func() int64
	frames [8]device.Frame
	slots  [8]int32
}

func (m *mirrored) Transmit() {
	m.Device.Transmit()
	n := m.peer.Receive(m.frames[:])
	if n == 0 {
		return
	}
	m.engine.Now = m.now()
	for _, f := range m.frames[:n] {
		m.engine.Receive(f.Payload, f.Path)
	}
	m.engine.Tick()
	for opened, _, _ := m.engine.Announcements(); len(opened) > 0; opened, _, _ = m.engine.Announcements() {
		for _, s := range opened {
			_ = m.peer.Facts().Filter.AllowSession(s.ID, int(s.Slot))
		}
	}
	m.engine.Reaped(m.slots[:m.peer.Reap(m.slots[:])])
	m.engine.Took(m.peer.Enqueue(m.engine.Output()))
	m.peer.Transmit()
	m.peer.Release()
}

// BenchmarkPutFlush puts 8 bytes and flushes, through poller, device and kernel,
// with both ends on one processor.
func BenchmarkPutFlush(b *testing.B) {
	l := labtest.New(b, netlab.Config{Ranks: 2})
	ends := [2]device.Device{openDevice(b, l, 0, userspace.XDPNative, nil), openDevice(b, l, 1, userspace.XDPNative, nil)}
	next := uint64(0)
	newEngine := func(rank int) *engine.Engine {
		w, err := windows.New(windows.Config{
			ID: 1, Flavor: window.FlavorCreate, Memory: windows.Slice(make([]byte, 4096)), Size: 4096, DispUnit: 1, GroupSize: 2,
		})
		if err != nil {
			b.Fatal(err)
		}
		windows := &windows.Table{}
		if err := windows.Add(w); err != nil {
			b.Fatal(err)
		}
		return engine.New(engine.Config{
			LinkConfig: engine.LinkConfig{Rank: rank, Size: 2, Job: 1, Incarnation: 1, Slab: ends[rank].Facts().Slab,
				Rand: func() uint64 { next++; return next }},
			Windows: windows,
		})
	}
	m := &mirrored{Device: ends[0], peer: ends[1], engine: newEngine(1)}
	p := New(m, newEngine(0), Config{})
	defer p.Close()
	m.now = p.Now
	path, err := ends[0].Path(b.Context(), ends[1].Facts().Local)
	if err != nil {
		b.Fatal(err)
	}
	e := p.Lock()
	a := e.OpenAccess(e.Dial(1, path, 1), 1)
	p.Unlock()
	ctx, value := context.Background(), make([]byte, 8)
	b.ReportAllocs()
	for b.Loop() {
		e := p.Lock()
		c := onesided.Call{Access: a, Code: wire.CodePut, Origin: value}
		if done, err := e.Issue(&c); !done || err != nil {
			b.Fatal(done, err)
		}
		p.Unlock()
		e = p.Lock()
		e.Flush(a)
		if err := p.WaitLocked(ctx, (*onesided.FlushWait)(a)); err != nil {
			b.Fatal(err)
		}
	}
}
