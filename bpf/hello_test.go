package bpf_test

import (
	"bytes"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

var helloKey = siphash.Key{1, 2, 3, 15: 4}

// withKey tells the program the key of handshakes. Each value may come burst times, and all
// together total times.
func (c *classifier) withKey(t testing.TB, burst, total uint64) {
	t.Helper()
	const hour = 3600e9 // so that nothing is allowed anew while a test runs
	c.hellos.Keyed, c.hellos.HelloKey = 1, [2]uint64{le.Uint64(helloKey[:8]), le.Uint64(helloKey[8:])}
	c.hellos.ValueInterval, c.hellos.ValueBurst = hour, burst*hour
	c.hellos.HelloInterval, c.hellos.HelloBurst = hour, total*hour
	c.configure(t)
}

// keyed is the payload of a handshake with a code. Another n makes it another one.
func keyed(kind wire.Kind, id uint64, n int) []byte {
	b := make([]byte, wire.GreetingLen)
	(&wire.Header{Kind: kind, Session: id}).Encode(b[:wire.HeaderLen])
	le.PutUint32(b[16:], 0)
	le.PutUint64(b[wire.HeaderLen:], job)
	le.PutUint64(b[232:], uint64(n))
	wire.SignHandshake(b, &helloKey)
	return b
}

// Both programs let handshakes with the right code through, and no other ones.
func TestHandshakesWithCodes(t *testing.T) {
	hello := keyed(wire.KindHello, 0, 1)
	again := func(b []byte, change func(b []byte)) []byte {
		b = bytes.Clone(b)
		change(b)
		wire.SignHandshake(b, &helloKey)
		return b
	}
	for name, c := range map[string]*classifier{"steers": load(t), "executes": loadTier(t).classifier} {
		c.withKey(t, 1<<10, 1<<10)
		for _, tt := range []struct {
			name string
			p    packet
			want bpf.ClassifierCounter
		}{
			{"hello", packet{payload: hello}, redirected},
			{"hello over IPv6", packet{v6: true, payload: hello}, redirected},
			{"hello behind options and tags", packet{options: 40, vlans: []uint16{unix.ETH_P_8021AD, unix.ETH_P_8021Q}, payload: hello}, redirected},
			{"padded", packet{payload: hello, pad: 9}, redirected},
			{"ticket", packet{payload: keyed(wire.KindTicket, 0, 1)}, redirected},
			{"hello-ack", packet{payload: keyed(wire.KindHelloAck, session, 1)}, redirected},
			{"data", packet{payload: message(wire.KindData, session)}, redirected},
			{"hello-ack of no session", packet{payload: keyed(wire.KindHelloAck, 0, 1)}, unknownSession},
			{"hello-ack of a stranger", packet{payload: keyed(wire.KindHelloAck, session+99, 1)}, unknownSession},
			{"hello without a code", packet{payload: message(wire.KindHello, 0)}, otherJob},
			{"hello-ack without a code", packet{payload: message(wire.KindHelloAck, session)}, otherJob},
			{"first bit of the code", packet{payload: changed(hello, 304, hello[304]^1)}, badHelloCode},
			{"last bit of the code", packet{payload: changed(hello, 311, hello[311]^0x80)}, badHelloCode},
			{"other data", packet{payload: changed(hello, 303, 1)}, badHelloCode},
			{"other header", packet{payload: changed(hello, 17, 1)}, badHelloCode},
			{"a hello as a ticket", packet{payload: changed(hello, 5, byte(wire.KindTicket))}, badHelloCode},
			{"ticket", packet{payload: changed(keyed(wire.KindTicket, 0, 1), 200, 1)}, badHelloCode},
			{"hello-ack", packet{payload: changed(keyed(wire.KindHelloAck, session, 1), 200, 1)}, badHelloCode},
			{"a byte too short", packet{payload: hello[:wire.GreetingLen-1]}, otherJob},
			{"a byte too long", packet{payload: append(bytes.Clone(hello), 0)}, otherJob},
			{"header alone", packet{payload: hello[:wire.HeaderLen]}, otherJob},
			{"another job", packet{payload: again(hello, func(b []byte) { b[wire.HeaderLen]++ })}, otherJob},
			{"another version", packet{payload: again(hello, func(b []byte) { b[4]++ })}, badVersion},
			{"kind 8", packet{payload: again(hello, func(b []byte) { b[5] = 8 })}, unknownKind},
		} {
			t.Run(name+"/"+tt.name, func(t *testing.T) {
				c.at(t, tt.p.v6)
				if got := c.run(t, tt.p.bytes(), nil); got != tt.want {
					t.Errorf("counter %d, want %d", got, tt.want)
				}
			})
		}
		c.at(t, false)
		c.hellos.HelloKey[1]++
		c.configure(t)
		if got := c.run(t, packet{payload: hello}.bytes(), nil); got != badHelloCode {
			t.Errorf("%s: with another key: counter %d", name, got)
		}
	}
}

// A handshake that is in several buffers is looked at like any other.
func TestSplitHandshake(t *testing.T) {
	c := load(t)
	c.withKey(t, 1<<10, 1<<10)
	hello := keyed(wire.KindHello, 0, 1)
	for _, first := range []uint32{42 + wire.HeaderLen, 42 + 200, 42 + wire.GreetingLen - 1} {
		for want, payload := range map[bpf.ClassifierCounter][]byte{redirected: hello, badHelloCode: changed(hello, 303, 1)} {
			if got := c.run(t, packet{payload: payload}.bytes(), &md{DataEnd: first}); got != want {
				t.Errorf("first buffer of %d bytes: counter %d, want %d", first, got, want)
			}
		}
	}
}

// Handshakes without a right code use up nothing.
func TestBadCodesCostNoToken(t *testing.T) {
	c := load(t)
	pinToCPU(t)
	c.withKey(t, 1, 2)
	for n := range 2 {
		hello := keyed(wire.KindHello, 0, n)
		for range 20 {
			if got := c.run(t, packet{payload: changed(hello, 200, 1)}.bytes(), nil); got != badHelloCode {
				t.Fatalf("damaged hello: counter %d", got)
			}
		}
		if got := c.run(t, packet{payload: hello}.bytes(), nil); got != redirected {
			t.Errorf("hello %d: counter %d", n, got)
		}
	}
	if got := c.run(t, packet{payload: keyed(wire.KindTicket, 0, 3)}.bytes(), nil); got != helloLimited {
		t.Errorf("beyond the limit on all: counter %d", got)
	}
	ack := packet{payload: keyed(wire.KindHelloAck, session, 1)}.bytes()
	for range 3 { // the session is its limit
		if got := c.run(t, ack, nil); got != redirected {
			t.Errorf("hello-ack: counter %d", got)
		}
	}
}

// However often a captured hello comes, all that are new get through.
func TestCapturedHelloUsesUpItsOwn(t *testing.T) {
	const burst, values, new, rounds = 8, 4096, 200, 5
	c := load(t)
	pinToCPU(t)
	c.withKey(t, burst, new+burst)
	captured := keyed(wire.KindHello, 0, 0)
	value := func(b []byte) uint64 { return le.Uint64(b[304:]) % values }
	fresh, passed := 0, 0
	var used [values]int
	for n := 1; fresh < new; n++ {
		for range rounds {
			switch got := c.run(t, packet{payload: captured}.bytes(), nil); got {
			case redirected:
				passed++
			case helloLimited:
			default:
				t.Fatalf("captured hello: counter %d", got)
			}
		}
		hello := keyed(wire.KindHello, 0, n)
		v := value(hello)
		if v == value(captured) || used[v] == burst { // few have that bad luck
			continue
		}
		used[v]++
		fresh++
		if got := c.run(t, packet{payload: hello}.bytes(), nil); got != redirected {
			t.Errorf("new hello %d: counter %d", n, got)
		}
	}
	if passed != burst {
		t.Errorf("the captured hello passed %d times, not %d", passed, burst)
	}
	if got := c.run(t, packet{payload: keyed(wire.KindHello, 0, 1)}.bytes(), nil); got != helloLimited {
		t.Errorf("beyond the limit on all: counter %d", got)
	}
}

// Without a key there are no tickets.
func TestTicketWithoutKey(t *testing.T) {
	c := load(t)
	for _, id := range []uint64{0, session} {
		if got := c.run(t, packet{payload: keyed(wire.KindTicket, id, 1)}.bytes(), nil); got != unknownKind {
			t.Errorf("session %#x: counter %d", id, got)
		}
	}
}

// BenchmarkHello has the kernel run the program on a hello, without a code and with one.
func BenchmarkHello(b *testing.B) {
	c := load(b)
	c.hellos.HelloInterval, c.hellos.HelloBurst = 1, 1<<62
	for _, withCode := range []bool{false, true} {
		b.Run(fmt.Sprintf("code-%t", withCode), func(b *testing.B) {
			payload := message(wire.KindHello, 0)
			c.configure(b)
			if withCode {
				payload = keyed(wire.KindHello, 0, 1)
				c.withKey(b, 1<<20, 1<<20)
				c.hellos.ValueInterval, c.hellos.ValueBurst, c.hellos.HelloInterval, c.hellos.HelloBurst = 1, 1<<62, 1, 1<<62
				c.configure(b)
			}
			frame := packet{payload: payload}.bytes()
			for b.Loop() {
				verdict, each, err := c.XdprmaClassify.Benchmark(frame, 100_000, nil)
				if err != nil || verdict != xdpRedirect {
					b.Fatalf("verdict %d, %v", verdict, err)
				}
				b.ReportMetric(float64(each.Nanoseconds()), "ns/run")
			}
		})
	}
}
