package netlab

import (
	"encoding/binary"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// sum adds 16-bit words in the arithmetic of checksums.
func sum(parts ...[]byte) uint16 {
	total := uint32(0)
	for _, part := range parts {
		for ; len(part) > 1; part = part[2:] {
			total += uint32(binary.BigEndian.Uint16(part))
		}
	}
	total = total>>16 + total&0xffff
	return uint16(total>>16 + total)
}

// capture returns what reaches rank's interface of IPv4, from its IP header on.
func capture(t *testing.T, l *Lab, rank int) (f *os.File) {
	t.Helper()
	err := l.Do(rank, func() error {
		ip := uint16(unix.ETH_P_IP>>8 | unix.ETH_P_IP&0xff<<8)
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(ip))
		if err != nil {
			return err
		}
		f = os.NewFile(uintptr(fd), "capture")
		at, err := net.InterfaceByName(l.Interface(rank))
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: ip, Ifindex: at.Index})
	})
	if f != nil {
		t.Cleanup(func() { f.Close() })
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A port completes the checksums of what goes to its rank when it is told to, and only
// then; without a bridge there is no port.
func TestPortCompletesChecksums(t *testing.T) {
	l := newLab(t, Config{Ranks: 3})
	if err := l.SumAtPort(1); err != nil {
		t.Fatal(err)
	}
	from := listen(t, l, 0, l.Addr(0))
	for rank, whole := range map[int]bool{1: true, 2: false} {
		to, packets := listen(t, l, rank, l.Addr(rank)), capture(t, l, rank)
		if err := packets.SetReadDeadline(time.Now().Add(testenv.Limit)); err != nil {
			t.Fatal(err)
		}
		if _, err := from.WriteTo([]byte("eight by"), to.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 2048)
		n, err := packets.Read(b)
		if err != nil || n < 28+8 {
			t.Fatalf("rank %d received %x, %v", rank, b[:n], err)
		}
		pseudo, datagram := [][]byte{b[12:20], {0, unix.IPPROTO_UDP}, b[24:26]}, b[20:28+8]
		got, want := sum(pseudo...), binary.BigEndian.Uint16(b[26:])
		if whole {
			got, want = sum(append(pseudo, datagram)...), 0xffff
		}
		if got != want {
			t.Errorf("rank %d, a whole checksum %v: the sum is %#x, want %#x: %x", rank, whole, got, want, b[:n])
		}
	}
	if err := newLab(t, Config{Ranks: 2}).SumAtPort(0); err == nil {
		t.Error("no error without a bridge")
	}
}
