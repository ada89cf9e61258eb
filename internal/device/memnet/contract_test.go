package memnet

import (
	"errors"
	"testing"

	"github.com/xdprma/xdprma/internal/device"
	"github.com/xdprma/xdprma/internal/device/devicetest"
)

func TestContract(t *testing.T) {
	var n *Network
	devicetest.Run(t, devicetest.Network{
		Open: func(t *testing.T) (a, b device.Device) {
			n = New(2, Faults{})
			for rank, to := range []*device.Device{&a, &b} {
				var err error
				if *to, err = n.Open(rank, device.Config{Slots: devicetest.Slots}); err != nil {
					t.Fatal(err)
				}
			}
			return a, b
		},
		Lose: func(*testing.T) { n.Kill(0, errors.New("the test has killed it")) },
	})
}
