package netlab

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// intercept puts a relay into the link of rank 0, for the port of server.
func intercept(t *testing.T, l *Lab, server netip.AddrPort, decide func(*Relay, *Frame)) *Relay {
	t.Helper()
	r, err := l.Intercept(0, server.Port(), decide)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// exchange sends a payload and returns what comes next.
func exchange(t *testing.T, c *net.UDPConn, server netip.AddrPort, payload []byte) []byte {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(testenv.Limit)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.WriteToUDPAddrPort(payload, server); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1<<16)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// A relay that passes all frames changes none, whatever the MTU and whether the checksum is
// partial, and is shown those of its port alone.
func TestRelayPassesFrames(t *testing.T) {
	for _, c := range []Config{{Ranks: 3}, {Ranks: 4, RanksPerHost: 2, MTU: 9000, Queues: 2}, {Ranks: 3, MTU: MaxMTU}} {
		for _, programs := range []bool{false, true} {
			t.Run(fmt.Sprintf("%+v, programs %v", c, programs), func(t *testing.T) {
				l := newLab(t, c)
				if programs {
					if err := l.AcceptAnswers(); err != nil {
						t.Fatal(err)
					}
				}
				last := l.Ranks() - 1
				server, other := echo(t, l, last, l.Addr(last)), echo(t, l, last, l.Addr(last))
				var seen [2]atomic.Int64
				r := intercept(t, l, server, func(r *Relay, f *Frame) {
					from, to := 0, last
					if f.ToRank {
						from, to = last, 0
					}
					if got := f.Payloads(); f.Origin() != from || f.Target() != to || len(got) != 1 {
						t.Errorf("a frame from %d to %d, to the relay's rank %v, has %d payloads", f.Origin(), f.Target(), f.ToRank, len(got))
					}
					seen[from/last].Add(1)
					r.Pass(f)
				})
				from := listen(t, l, 0, l.Addr(0))
				for _, size := range []int{1, 1000, l.MTU() - 28} {
					for _, to := range []netip.AddrPort{server, other} {
						payload := bytes.Repeat([]byte{byte(size)}, size)
						if got := exchange(t, from, to, payload); !bytes.Equal(got, payload) {
							t.Errorf("%d bytes came back of %d", len(got), size)
						}
					}
				}
				if seen[0].Load() != 3 || seen[1].Load() != 3 || r.Lost() != 0 {
					t.Errorf("of 3 frames each way %d and %d were seen, %d got lost", seen[0].Load(), seen[1].Load(), r.Lost())
				}
			})
		}
	}
}

// TCP and datagrams that the kernel carries joined go through a relay.
func TestRelayPassesJoinedDatagrams(t *testing.T) {
	l := newLab(t, Config{Ranks: 3})
	testenv.NeedsFeature(t, testenv.JoinedDatagrams)
	to := listen(t, l, 1, l.Addr(1))
	var most atomic.Int64
	r := intercept(t, l, to.LocalAddr().(*net.UDPAddr).AddrPort(), func(r *Relay, f *Frame) {
		most.Store(max(most.Load(), int64(len(f.Payloads()))))
		r.Pass(f)
	})
	const each, count = 1000, 5
	data := make([]byte, count*each-1)
	testenv.Fill(data, 1)
	from := listen(t, l, 0, l.Addr(0))
	raw, err := from.SyscallConn()
	if err == nil {
		err = errors.Join(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, each) }), err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := from.WriteTo(data, to.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	if err := to.SetReadDeadline(time.Now().Add(testenv.Limit)); err != nil {
		t.Fatal(err)
	}
	for want := range slices.Chunk(data, each) {
		b := make([]byte, 2*each)
		if n, err := to.Read(b); err != nil || !bytes.Equal(b[:n], want) {
			t.Fatalf("%d bytes arrived, %v", n, err)
		}
	}
	if most.Load() != count || r.Lost() != 0 {
		t.Errorf("%d datagrams came joined, want %d, and %d frames got lost", most.Load(), count, r.Lost())
	}
	passTCP(t, l, 1, 0)
	passTCP(t, l, 0, 1)
}

// passTCP sends some MiB from one rank to another.
func passTCP(t *testing.T, l *Lab, from, to int) {
	t.Helper()
	var server net.Listener
	err := l.Do(to, func() (err error) {
		server, err = net.Listen("tcp4", netip.AddrPortFrom(l.Addr(to), 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	data := make([]byte, 4<<20)
	testenv.Fill(data, 2)
	sent := make(chan error, 1)
	go func() {
		sent <- l.Do(from, func() error {
			c, err := (&net.Dialer{Timeout: testenv.Limit, FallbackDelay: -1}).Dial("tcp4", server.Addr().String())
			if err != nil {
				return errors.Join(err, server.Close()) // nobody comes whom it could accept
			}
			_, err = c.Write(data)
			return errors.Join(err, c.Close())
		})
	}()
	c, err := server.Accept()
	if err != nil {
		t.Fatal(errors.Join(err, <-sent))
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(testenv.Limit)); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err := errors.Join(err, c.Close(), <-sent); err != nil || !bytes.Equal(got, data) {
		t.Errorf("TCP from rank %d to rank %d: %d bytes of %d, %v", from, to, len(got), len(data), err)
	}
}

// A relay alters, drops, doubles and reflects frames as it is told.
func TestRelayChangesFrames(t *testing.T) {
	for _, programs := range []bool{false, true} {
		l := newLab(t, Config{Ranks: 3})
		if programs {
			if err := l.AcceptAnswers(); err != nil {
				t.Fatal(err)
			}
		}
		server := echo(t, l, 1, l.Addr(1))
		intercept(t, l, server, func(r *Relay, f *Frame) {
			payload := f.Payloads()[0]
			switch what, _, _ := strings.Cut(string(payload), " "); {
			case f.ToRank:
				r.Pass(f)
			case what == "drop":
			case what == "alter":
				payload[0] = 'A' // the checksum may be partial, which nobody looks at
				r.Pass(f.With(payload))
			case what == "cut":
				r.Pass(f.With(payload[:2]))
			case what == "double":
				r.Pass(f)
				r.Pass(f.With(payload))
			case what == "late":
				time.AfterFunc(time.Millisecond, func() { r.Pass(f) })
			case what == "reflect":
				r.Pass(f.Reflected().With([]byte("reflected")))
			}
		})
		from := listen(t, l, 0, l.Addr(0))
		if _, err := from.WriteToUDPAddrPort([]byte("drop this"), server); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ sent, want string }{
			{"alter this", "Alter this"}, {"cut", "cu"}, {"late by far", "late by far"}, {"reflect this", "reflected"}, {"double", "double"}, {"", "double"},
		} {
			if got := exchange(t, from, server, []byte(c.sent)); string(got) != c.want {
				t.Errorf("programs %v: %q came back as %q, want %q", programs, c.sent, got, c.want)
			}
		}
	}
}

// A relay goes with its lab, also in the middle of traffic, and what it passes later is lost.
func TestCloseRemovesRelay(t *testing.T) {
	l := newLab(t, Config{Ranks: 3})
	server, kept := echo(t, l, 1, l.Addr(1)), make(chan *Frame, 1)
	var seen atomic.Int64
	r := intercept(t, l, server, func(r *Relay, f *Frame) {
		select {
		case kept <- f:
		default:
		}
		seen.Add(1)
		r.Pass(f)
	})
	from, end, ended := listen(t, l, 0, l.Addr(0)), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
				_, _ = from.WriteToUDPAddrPort([]byte("one"), server) // which fails once the link is gone
			}
		}
	}()
	testenv.Await(t, "traffic through the relay", func() bool { return seen.Load() >= 100 })
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	close(end)
	<-ended
	lost := r.Lost()
	if r.Pass(<-kept); r.Lost() != lost+1 {
		t.Errorf("%d frames got lost, want %d", r.Lost(), lost+1)
	}
}

func TestInterceptNeedsBridge(t *testing.T) {
	l := newLab(t, Config{Ranks: 2})
	if _, err := l.Intercept(0, 1, nil); err == nil {
		t.Error("no error without a bridge")
	}
	l = newLab(t, Config{Ranks: 3})
	pass := func(r *Relay, f *Frame) { r.Pass(f) }
	intercept(t, l, netip.AddrPort{}, pass)
	if _, err := l.Intercept(0, 1, pass); err == nil {
		t.Error("no error for a second relay in one link")
	}
	server := echo(t, l, 1, l.Addr(1))
	if got := exchange(t, listen(t, l, 0, l.Addr(0)), server, []byte("one")); string(got) != "one" {
		t.Errorf("%q came back", got)
	}
}
