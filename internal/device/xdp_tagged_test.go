package device

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/stats"
	"github.com/xdprma/xdprma/userspace"
)

// listen has p receive what comes in on its interface, too.
func (p *packetSocket) listen() {
	p.t.Helper()
	all := unix.SockaddrLinklayer{Protocol: unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8, Ifindex: p.to.Ifindex}
	if err := errors.Join(unix.Bind(p.fd, &all), unix.SetsockoptInt(p.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})); err != nil {
		p.t.Fatal(err)
	}
}

// receive returns the next frame of a sender as it came, nil if none comes soon. The kernel
// takes the outer tag out of a frame, and says what it was.
func (p *packetSocket) receive(sender [6]byte) []byte {
	p.t.Helper()
	for buf, oob := make([]byte, 2048), make([]byte, 256); ; {
		n, m, _, _, err := unix.Recvmsg(p.fd, buf, oob, 0)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		control, err2 := unix.ParseSocketControlMessage(oob[:max(m, 0)])
		if err := errors.Join(err, err2); err != nil || len(control) != 1 {
			p.t.Fatalf("%v, %d control messages", err, len(control))
		}
		if n < ethernetLen || [6]byte(buf[6:12]) != sender {
			continue
		}
		aux, frame := control[0].Data, buf[:n]
		if ne := binary.NativeEndian; ne.Uint32(aux)&unix.TP_STATUS_VLAN_VALID != 0 {
			tag := binary.BigEndian.AppendUint32(nil, uint32(ne.Uint16(aux[18:]))<<16|uint32(ne.Uint16(aux[16:])))
			frame = slices.Concat(frame[:12], tag, frame[12:])
		}
		return frame
	}
}

// The program answers frames with priority tags as they came: the answer is the frame that user space
// would send, and the tags.
func TestTaggedRequestsAreAnswered(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2})
	for _, transport := range []userspace.Transport{userspace.XDPNative, userspace.XDPGeneric} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, IPv6 %v", transport, v6), func(t *testing.T) {
				neighbour := openEnd(t, l, 0, transport, v6) // in native mode an answer needs a program here
				defer neighbour.close()
				var x *XDP
				if err := l.Do(1, func() (err error) {
					x, err = OpenXDP(t.Context(), Config{Config: userspace.Config{Transport: transport, Interface: l.Interface(1), Address: address(l, 1, v6)}, Sessions: 1})
					return err
				}); err != nil {
					t.Fatal(err)
				}
				defer x.Close()
				from := "10.77.0.9:7"
				if v6 {
					from = "[fd77::9]:7"
				}
				ends := forge(x, from)
				back := [2]endpoint{ends[1], ends[0]}
				tables := x.facts.Tier.Tables()
				tables.OpenSlot(0, express.Slot{Session: 7, PeerSession: 8, Peer: endOf(ends[0].addr), Local: endOf(ends[1].addr)})
				tables.Place(0).Word = express.WordOf(1, express.StateDone) // the requests are repeats
				if err := x.program.AllowSession(7, 0); err != nil {
					t.Fatal(err)
				}
				wire := newPacketSocket(t, l, 0)
				wire.listen()
				for tags := range 3 {
					tagged := func(frame []byte) []byte {
						for i := range tags {
							frame = withTag(frame, []uint16{etherTypeVLAN, etherTypeQinQ}[i], 0)
						}
						return frame
					}
					end := time.Now().Add(testenv.Limit)
					for try := uint64(1); ; try++ {
						if time.Now().After(end) {
							var seen stats.Device
							x.Stats(&seen)
							t.Fatalf("%d tags: no answer; %+v", tags, seen)
						}
						request, answer := make([]byte, 120), make([]byte, express.MaxPayload)
						h := express.Header{Session: 7, Exchange: 1, Try: try, Records: 1}
						express.Request(request, h, nil)
						answer = answer[:tables.Answer(0, answer, &h, false)]
						wire.send(tagged(buildFrame(ends, request)))
						got := wire.receive(ends[1].mac)
						if got == nil {
							continue // lost while the interface comes up
						}
						want, most := tagged(buildFrame(back, answer)), len(tagged(buildFrame(ends, request)))
						if !bytes.HasPrefix(got, want) || len(got) > most { // bytes of the request may be behind it
							t.Fatalf("%d tags: the answer is\n%x, want\n%x", tags, got, want)
						}
						break
					}
				}
			})
		}
	}
}

// A rank takes no frames of VLANs on its link: they are not the link's own, and the kernel would not give
// them to a UDP socket either.
func TestFramesOfVLANsAreNotTaken(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2})
	for _, transport := range []userspace.Transport{userspace.XDPNative, userspace.XDPGeneric, userspace.UDP} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, IPv6 %v", transport, v6), func(t *testing.T) {
				b := openEnd(t, l, 1, transport, v6)
				defer b.close()
				from := "10.77.0.9:7"
				if v6 {
					from = "[fd77::9]:7"
				}
				ends := [2]endpoint{testEndpoint(9, from), {[6]byte(l.MAC(1)), b.dev.Facts().Local}}
				wire1 := newPacketSocket(t, l, 0)
				for n := range 4 {
					for _, kind := range []wire.Kind{wire.KindHello, wire.KindData} {
						for _, f := range inOtherVLANs(buildFrame(ends, message(kind, 300))) {
							wire1.send(f)
						}
					}
					own := message(wire.KindHello, 200+n)
					wire1.send(buildFrame(ends, own))
					sameMessages(t, b.receive(1), [][]byte{own})
				}
			})
		}
	}
}
