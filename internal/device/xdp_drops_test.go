package device

import (
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/userspace"
)

// A frame for which there is no room counts once as dropped. The kernel tells of it in two
// of its counters.
func TestXDPDropsCountOnce(t *testing.T) {
	for _, transport := range []userspace.Transport{userspace.XDPNative, userspace.XDPGeneric} {
		for _, mtu := range []int{1500, 9000} {
			t.Run(fmt.Sprintf("%v, MTU %d", transport, mtu), func(t *testing.T) {
				l := labtest.New(t, netlab.Config{Ranks: 2, MTU: mtu})
				if mtu == 9000 {
					testenv.NeedsFeature(t, testenv.MultiBuffer)
				}
				var dev Device
				err := l.Do(1, func() (err error) {
					dev, err = OpenXDP(t.Context(), Config{Config: userspace.Config{Interface: "xr1", Address: l.Addr(1), Transport: transport}, RxFrames: minRxFrames, Slots: 128})
					return err
				})
				b := newEnd(t, dev, err)
				a := openEnd(t, l, 0, userspace.XDPNative, false)
				var sent [][]byte
				for range 120 {
					sent = append(sent, message(wire.KindData, b.dev.Facts().Slab.MaxPayload))
				}
				a.send(a.path(b.dev.Facts().Local), sent...)
				drops := uint64(len(sent) - minRxFrames)
				testenv.Await(t, fmt.Sprintf("%d frames dropped", drops), func() bool { return b.stats().RxDropped >= drops })
				sameMessages(t, b.receive(minRxFrames), sent)
				if s := b.stats(); s.RxFrames != minRxFrames || s.RxDropped != drops {
					t.Errorf("of %d frames %d were received and %d dropped, want %d and %d", len(sent), s.RxFrames, s.RxDropped, minRxFrames, drops)
				}
			})
		}
	}
}
