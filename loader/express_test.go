package loader

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// TestAnswersArrive has the program of b execute requests that a socket of a sends over
// the veth pair, and answer them to it past b's user space, in either mode. In native mode
// the end that gets answers needs a program, too. Without CAP_PERFMON the verifier asks for more, and
// has the kernel put instructions into the program.
func TestAnswersArrive(t *testing.T) {
	const session, peerSession, rank, id = 7, 8, 3, 5
	for _, tt := range []struct {
		name string
		mode Mode
		caps []int
	}{
		{"native", Native, []int{unix.CAP_BPF, unix.CAP_NET_ADMIN, unix.CAP_PERFMON}},
		{"generic", Generic, []int{unix.CAP_BPF, unix.CAP_NET_ADMIN, unix.CAP_PERFMON}},
		{"without CAP_PERFMON", Native, []int{unix.CAP_BPF, unix.CAP_NET_ADMIN}},
	} {
		mode := tt.mode
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, shape{})
			var p *Program
			must(t, onThread(func() (err error) {
				if err := netns.Set(l.b); err != nil {
					return err
				}
				if err := keepOnly(tt.caps...); err != nil {
					return err
				}
				p, err = Attach(Options{Interface: "b", Address: at, Port: port, Slots: 4, Mode: mode})
				return err
			}))
			t.Cleanup(func() { must(t, p.Close()) })
			tier, err := p.Tier()
			if err != nil && !slices.Contains(tt.caps, unix.CAP_PERFMON) && strings.Contains(err.Error(), "missing CAP_PERFMON") {
				testenv.NeedsFeature(t, testenv.LongPrograms)
			}
			must(t, err)
			t.Cleanup(func() { must(t, tier.Release()) })
			l.in(t, l.a, func() {
				passing, err := Attach(Options{Interface: "a", Address: netip.AddrFrom4([4]byte(addrA)), Port: port, Mode: mode})
				must(t, err)
				t.Cleanup(func() { must(t, passing.Close()) })
			})
			chunk, err := tier.NewChunk(1 << 16)
			must(t, err)
			mem, err := unix.Mmap(chunk, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			must(t, err)
			t.Cleanup(func() { must(t, unix.Munmap(mem)) })
			must(t, tier.Install(0, chunk))
			must(t, unix.Close(chunk))
			tables := express.NewTables(tier.Slots(), tier.Windows())

			var conn *net.UDPConn
			l.in(t, l.a, func() {
				conn, err = net.DialUDP("udp4", &net.UDPAddr{IP: addrA}, &net.UDPAddr{IP: addrB, Port: port})
				must(t, err)
			})
			defer conn.Close()
			here := conn.LocalAddr().(*net.UDPAddr)
			tables.OpenSlot(2, express.Slot{
				Session: session, PeerSession: peerSession, Rank: rank,
				Peer:  express.Endpoint{IP: [16]byte{addrA[0], addrA[1], addrA[2], addrA[3]}, Port: uint16(here.Port)},
				Local: express.Endpoint{IP: [16]byte{addrB[0], addrB[1], addrB[2], addrB[3]}, Port: port},
			})
			tables.Expose(express.Window{ID: id, Size: uint64(len(mem)), Rights: windows.NewMembers([]int{rank}, nil, nil).Bits}, nil)
			must(t, p.AllowSession(session, 2))

			asks := &asker{conn: conn, session: session, peerSession: peerSession, window: id}
			ask := func(r wire.Record, data []byte) []byte {
				t.Helper()
				return asks.ask(t, p.Counters, r, data)
			}
			data := bytes.Repeat([]byte("one-sided"), 125)
			ask(wire.Record{Code: wire.CodePut, Disp: 16}, data)
			if !bytes.Equal(mem[16:][:len(data)], data) {
				t.Error("the window has other data than were put")
			}
			if got := ask(wire.Record{Code: wire.CodeGet, Disp: 16}, part(len(data))); !bytes.Equal(got[:len(data)], data) {
				t.Errorf("got %q", got)
			}
			for n := range uint64(100) {
				got := ask(wire.Record{Code: wire.CodeGetAccumulate, Basic: uint8(datatype.BasicInt64), Op: uint8(datatype.Sum)}, part(8, 3, 0, 0, 0, 0, 0, 0, 0))
				if v := binary.LittleEndian.Uint64(got); v != 3*n {
					t.Fatalf("fetched %d after %d times 3", v, n)
				}
			}
			counters, err := p.Counters()
			must(t, err)
			if counters["express_executed"] != asks.exchange || counters["redirected"] != 0 {
				t.Errorf("%d exchanges; the program counted %v", asks.exchange, counters)
			}
		})
	}
}

// asker is an origin without a program, which asks by a socket.
type asker struct {
	conn                 *net.UDPConn
	session, peerSession uint64
	window               uint32
	exchange             uint64
}

// part is the data of a record that asks for n bytes.
func part(n int, operand ...byte) []byte {
	b := make([]byte, wire.PartLen)
	wire.PutPart(b, 0, uint32(n))
	return append(b, operand...)
}

// ask has a request of one record executed, and returns the answer's results.
func (a *asker) ask(t *testing.T, counters func() (map[string]uint64, error), r wire.Record, data []byte) []byte {
	t.Helper()
	body, ok := a.within(t, testenv.Limit, r, data)
	if !ok {
		counted, _ := counters()
		t.Fatalf("exchange %d is not answered; the program counted %v", a.exchange, counted)
	}
	return body
}

// within is ask for a time, after which it reports that there is no answer.
func (a *asker) within(t *testing.T, limit time.Duration, r wire.Record, data []byte) ([]byte, bool) {
	t.Helper()
	a.exchange++
	r.Window, r.Data = a.window, data
	_, results, _ := onesided.Form(&r)
	b := make([]byte, express.PayloadLen(wire.RecordSize(len(data)), express.Padded(results)))
	copy(wire.PutRecord(b[wire.HeaderLen:], &r, len(data)), data)
	answer := make([]byte, 2048)
	for try, end := uint64(1), time.Now().Add(limit); time.Now().Before(end); try++ {
		express.Request(b, express.Header{Session: a.session, Exchange: a.exchange, Try: try, Records: 1}, nil)
		if _, err := a.conn.Write(b); err != nil {
			continue // that nobody has the port, by an earlier try
		}
		must(t, a.conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
		n, err := a.conn.Read(answer)
		if err != nil {
			continue // lost, or refused while the interface comes up
		}
		h, body, fault := express.Decode(answer[:n], nil)
		if fault != wire.OK || h.Session != a.peerSession || h.Flags != wire.FlagResponse {
			t.Fatalf("answer %+v: %v", h, fault)
		}
		if h.Exchange == a.exchange {
			return body, true
		}
	}
	return nil, false
}
