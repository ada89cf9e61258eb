package poller

import (
	"log/slog"
	"testing"

	"github.com/xdprma/xdprma/internal/device"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/userspace"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// openDevice opens a device for rank, which is closed at the end of the test if it is not before.
func openDevice(t testing.TB, l *netlab.Lab, rank int, transport userspace.Transport, log *slog.Logger) (dev device.Device) {
	t.Helper()
	err := l.Do(rank, func() (err error) {
		dev, err = device.Open(t.Context(), device.Config{
			Config: userspace.Config{Transport: transport, Interface: l.Interface(rank), Address: l.Addr(rank)}, Slots: 128, Logger: log,
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}
