package vmtests

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/rma"
)

func init() { programs["gets"] = gets }

// gets: whenever the test says so, rank 0 gets from rank 1 what no XDP program answers, until
// that fails.
func gets(s *self) error {
	win, err := rma.Allocate(s.ctx, s.world, beyond, 1, nil)
	if err != nil {
		return err
	}
	if err := s.world.Barrier(s.ctx); err != nil {
		return err
	}
	fmt.Println("ready")
	if s.rank == 1 {
		return s.listen("leave")
	}
	if err := win.LockAll(s.ctx, rma.ModeNoCheck); err != nil {
		return err
	}
	for result := make([]byte, beyond); ; {
		if err := s.listen("get"); err != nil {
			return err
		}
		err := all(
			func() error { return win.Get(buffer.Bytes(result), 1, rma.At(0)) },
			func() error { return win.Flush(s.ctx, 1) },
		)
		fmt.Println("got", err)
		switch {
		case errors.Is(err, rma.ErrProcFailed):
			return nil
		case err != nil:
			return err
		}
	}
}

// TestTakenPlaceHangsNoCall has a host that sees the frames send one with the next sequence,
// so that the target takes the origin's next request for a duplicate. The origin's call ends
// with an error, though its peer lives.
func TestTakenPlaceHangsNoCall(t *testing.T) {
	t.Parallel()
	for _, transport := range testenv.Cases([]string{"xdp-native", "udp"}, "xdp-generic") {
		t.Run(transport, func(t *testing.T) {
			lab := labtest.New(t, netlab.Config{Ranks: 3})
			j := start(t, lab, spec{program: "gets", ranks: 2, transports: []string{transport}, deadAfter: deadAfter})
			for _, r := range j.ranks {
				j.await(r, "ready")
			}
			origin, forger := j.ranks[0], udpFrom(t, lab, attacker, 0)
			seen := tap(t, lab, 0)
			// A forged frame may be late, or the origin may have used its sequence for a ping.
			const attempts = 50
			failed := false
			for n := 0; n < attempts && !failed; n++ {
				if n > 0 {
					last := lastRequest(t, seen, lab.Addr(1))
					last.Sequence++
					sendForged(t, forger, pingFrame(last), netip.AddrPortFrom(lab.Addr(1), bootstrap.DefaultPort))
				}
				origin.tell("get")
				failed = j.await(origin, "got ") != "<nil>"
			}
			if !failed {
				t.Errorf("no forged frame of %d took the place of a request", attempts)
				origin.kill()
			}
			j.ranks[1].tell("leave")
			j.finish()
		})
	}
}

// pingFrame returns a bundle of requests in which the origin asks for nothing.
func pingFrame(like wire.Header) []byte {
	body := make([]byte, wire.RecordSize(0))
	wire.PutRecord(body, &wire.Record{Code: wire.CodePing}, 0)
	return frame(wire.Header{Kind: wire.KindData, Session: like.Session, Packet: like.Packet, Sequence: like.Sequence}, body)
}

// tap returns a socket that sees what passes a rank's port of the bridge.
func tap(t *testing.T, lab *netlab.Lab, rank int) (fd int) {
	t.Helper()
	inBridge(t, lab, func() error {
		port, err := net.InterfaceByName(lab.Interface(rank))
		if err != nil {
			return err
		}
		// A socket for one protocol would see nothing: the bridge has the frame before.
		all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			return err
		}
		t.Cleanup(func() { unix.Close(fd) })
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: port.Index})
	})
	return fd
}

// lastRequest reads all that a tap has seen, and returns the header of the last bundle of
// requests to an address.
func lastRequest(t *testing.T, tap int, to netip.Addr) (last wire.Header) {
	t.Helper()
	const ipAt, udpAt, payloadAt = 14, 34, 42 // IPv4 without options
	for b := make([]byte, 1<<16); ; {
		n, _, err := unix.Recvfrom(tap, b, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			if last.Session == 0 {
				t.Fatal("no request has passed")
			}
			return last
		case err != nil:
			t.Fatal(err)
		}
		if n < payloadAt || b[ipAt+9] != unix.IPPROTO_UDP || [4]byte(b[ipAt+16:]) != to.As4() {
			continue
		}
		var h wire.Header
		payload := b[payloadAt:min(n, udpAt+int(binary.BigEndian.Uint16(b[udpAt+4:])))]
		if h.Decode(payload) == wire.OK && h.Kind == wire.KindData && h.Flags&wire.FlagResponse == 0 && h.Sequence > last.Sequence {
			last = h
		}
	}
}
