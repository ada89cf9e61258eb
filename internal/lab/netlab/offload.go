package netlab

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// SumAtPort has the bridge's port to rank complete the checksums of what goes to that rank,
// as ports without checksum offload do. On a veth a checksum otherwise stays partial all the
// way, and nobody looks at it.
func (l *Lab) SumAtPort(rank int) error {
	if l.bridge == nil {
		return errors.New("netlab: this lab has no bridge whose port could complete checksums: make one of 3 ranks")
	}
	return within(l.bridge.ns, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = errors.Join(setOffload(fd, l.Interface(rank), unix.ETHTOOL_STXCSUM, 0), unix.Close(fd))
		}
		if err != nil {
			return fmt.Errorf("turn checksum offload of the bridge's port %s off: %w", l.Interface(rank), err)
		}
		return nil
	})
}
