package bpf_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// leftMost is how many bytes of a request may stay behind its answer.
const leftMost = 64

// compareAnswer checks that out is the frame in turned round, with another payload. Over
// IPv4 it has no UDP checksum.
func compareAnswer(t testing.TB, in, out parts, payload []byte) {
	t.Helper()
	be := binary.BigEndian
	if len(out.rest) > leftMost {
		t.Fatalf("%d bytes are behind the datagram", len(out.rest))
	}
	if !bytes.Equal(out.payload, payload) {
		t.Fatalf("answer of %d bytes\n%x, want\n%x", len(out.payload), out.payload, payload)
	}
	if turned := slices.Concat(in.link[6:12], in.link[0:6], in.link[12:]); !bytes.Equal(out.link, turned) {
		t.Fatalf("Ethernet header %x, want %x", out.link, turned)
	}
	half := len(in.addresses()) / 2
	if turned := slices.Concat(in.addresses()[half:], in.addresses()[:half]); !bytes.Equal(out.addresses(), turned) {
		t.Fatalf("addresses %x, want %x", out.addresses(), turned)
	}
	udpLen := uint16(8 + len(payload))
	if !bytes.Equal(out.udp[0:2], in.udp[2:4]) || !bytes.Equal(out.udp[2:4], in.udp[0:2]) || be.Uint16(out.udp[4:]) != udpLen {
		t.Fatalf("UDP header %x to %x", out.udp, in.udp)
	}
	if in.v6 {
		if want := be.AppendUint16([]byte{6 << 4, 0, 0, 0}, udpLen); !bytes.Equal(out.ip[:8], append(want, unix.IPPROTO_UDP, 64)) {
			t.Fatalf("IP header %x to %x", out.ip, in.ip)
		}
		if out.whole() != 0xffff || out.checksum() == 0 {
			t.Fatalf("the UDP checksum %#x is wrong", out.checksum())
		}
		return
	}
	if onesSum(out.ip) != 0xffff || be.Uint16(out.ip[2:]) != 20+udpLen || out.ip[1] != 0 || out.ip[8] != 64 || out.checksum() != 0 {
		t.Fatalf("IP header %x to %x, checksum %#x", out.ip, in.ip, out.checksum())
	}
}

// The answer to a request with a partial checksum has a partial one too in generic mode. All
// others have none over IPv4, and a whole one over IPv6.
func TestChecksumsOfAnswers(t *testing.T) {
	p := loadTier(t)
	part := make([]byte, wire.PartLen)
	wire.PutPart(part, 0, 1024)
	for _, ask := range []struct {
		name string
		record
	}{
		{"a little shorter", record{wire.Record{Code: wire.CodePut, Window: wideWindow}, make([]byte, 8)}},
		{"shorter", record{wire.Record{Code: wire.CodePut, Window: wideWindow}, make([]byte, 64)}},
		{"of the same length", record{wire.Record{Code: wire.CodeGet, Window: wideWindow}, part}},
	} {
		for _, sum := range []struct {
			name    string
			of      func(parts) uint16
			partial bool
		}{
			{"none", func(parts) uint16 { return 0 }, false},
			{"whole", func(f parts) uint16 { return ^f.whole() }, false},
			{"partial", parts.pseudo, true},
		} {
			for generic := range uint64(2) {
				for _, shape := range shapes {
					t.Run(fmt.Sprintf("%s, %s, generic %d, %v", ask.name, sum.name, generic, shape), func(t *testing.T) {
						p.tables.OpenSlot(0, express.Slot{Session: session, PeerSession: peerSession, Rank: memberRank})
						p.cfg.Generic = generic
						p.at(t, shape.v6)
						for exchange, tries := uint64(1), 0; tries < 4; tries++ {
							exchange += uint64(tries % 2)
							shape.payload = requestOf(exchange, tries, ask.record)
							in := shape.bytes()
							binary.BigEndian.PutUint16(shape.parts(in).udp[6:], sum.of(shape.parts(in)))
							verdict, out := p.exec(t, in)
							if verdict != xdpTX {
								t.Fatalf("exchange %d: verdict %d", exchange, verdict)
							}
							answer := shape.parts(out)
							switch got := answer.checksum(); {
							case sum.partial && generic == 1:
								if len(answer.rest) > 0 {
									t.Errorf("exchange %d: a partial checksum would cover %d bytes behind the datagram", exchange, len(answer.rest))
								}
								if got != answer.pseudo() {
									t.Errorf("exchange %d: the answer's checksum is %#x, want %#x", exchange, got, answer.pseudo())
								}
							case shape.v6:
								if got == 0 || answer.whole() != 0xffff {
									t.Errorf("exchange %d: the answer's checksum %#x is wrong", exchange, got)
								}
							case got != 0:
								t.Errorf("exchange %d: the answer's checksum is %#x, want none", exchange, got)
							}
						}
					})
				}
			}
		}
	}
}

// A checksum that would be 0 over IPv6, where that means none, is 0xffff.
func TestChecksumOfAnAnswerIsNotZero(t *testing.T) {
	p := loadTier(t)
	p.at(t, true)
	shape := packet{v6: true}
	for try := uint64(1); ; try++ {
		// The checksum covers the same the other way round, but for the payload.
		shape.payload = make([]byte, wire.HeaderLen)
		express.Request(shape.payload, express.Header{Session: peerSession, Exchange: 1, Try: try, Flags: wire.FlagResponse}, nil)
		if shape.parts(shape.bytes()).whole() != 0xffff {
			continue
		}
		shape.payload = requestOf(1, int(try-1), record{wire.Record{Code: wire.CodePut, Window: wideWindow}, make([]byte, 8)})
		verdict, out := p.exec(t, shape.bytes())
		if answer := shape.parts(out); verdict != xdpTX || answer.checksum() != 0xffff || answer.whole() != 0xffff {
			t.Errorf("try %d: verdict %d, checksum %#x", try, verdict, answer.checksum())
		}
		return
	}
}

// requestOf is the payload of a request of one record.
func requestOf(exchange uint64, try int, r record) []byte {
	return request(express.Header{Session: session, Exchange: exchange, Try: uint64(try + 1)}, r)
}

// endpointOf is an address and a port as a slot has them.
func endpointOf(a netip.Addr, port uint16) (e express.Endpoint) {
	copy(e.IP[:], a.AsSlice())
	e.Port = port
	return e
}

// The program looks where a frame came from. Requests and answers from elsewhere, and those with
// IPv4 options, are for user space.
func TestPath(t *testing.T) {
	p := loadTier(t)
	answer := make([]byte, wire.HeaderLen+8)
	express.Request(answer, express.Header{Session: session, Exchange: 1, Try: 1, Flags: wire.FlagResponse}, nil)
	put := func(flags uint8) []byte {
		return request(express.Header{Session: session, Exchange: 1, Try: 1, Flags: flags},
			record{wire.Record{Code: wire.CodePut, Window: wideWindow}, make([]byte, 8)})
	}
	expect := func(name string, frame packet, want bpf.ClassifierCounter) {
		t.Helper()
		before := p.counted(t, want)
		if p.exec(t, frame.bytes()); p.counted(t, want) != before+1 {
			t.Errorf("%s, %v: counter %d did not advance", name, frame, want)
		}
	}
	for _, shape := range shapes {
		p.at(t, shape.v6)
		own, peer := own4, from4
		if shape.v6 {
			own, peer = own6, from6
		}
		// Another address differs in its first or its last byte.
		first, last := endpointOf(peer, fromPort), endpointOf(peer, fromPort)
		first.IP[0]++
		last.IP[peer.BitLen()/8-1]++
		from, to := endpointOf(peer, fromPort), endpointOf(own, portBase)
		ownFirst, ownLast := to, to
		ownFirst.IP[0]++
		ownLast.IP[own.BitLen()/8-1]++
		shape.payload = put(0)
		for _, at := range []struct {
			name        string
			peer, local express.Endpoint
			want        bpf.ClassifierCounter
		}{
			{"unknown path", express.Endpoint{}, express.Endpoint{}, executed},
			{"its path", from, to, executed},
			{"another address", first, to, otherPath},
			{"another address in the end", last, to, otherPath},
			{"another port", endpointOf(peer, fromPort-1), to, otherPath},
			{"another address here", from, ownFirst, otherPath},
			{"another address here in the end", from, ownLast, otherPath},
			{"another port here", from, endpointOf(own, portBase+1), otherPath},
		} {
			p.tables.OpenSlot(0, express.Slot{Session: session, PeerSession: peerSession, Rank: memberRank, Peer: at.peer, Local: at.local})
			expect(at.name, shape, at.want)
			ofAnswer := shape
			if ofAnswer.payload = answer; at.want == executed {
				at.want = bpf.ClassifierCounterCOUNTER_EXPRESS_HANDED
			}
			expect("an answer, "+at.name, ofAnswer, at.want)
		}
		p.tables.OpenSlot(0, express.Slot{Session: session, PeerSession: peerSession, Rank: memberRank})
		if !shape.v6 {
			for _, options := range []int{4, 20, 40} {
				with := shape
				with.options = options
				expect("with options", with, otherPath)
				with.payload = answer
				expect("an answer with options", with, otherPath)
			}
		}
		shape.payload = put(wire.FlagUser)
		expect("for user space", shape, bpf.ClassifierCounterCOUNTER_EXPRESS_USER)
		shape.payload, shape.pad = put(0), 20
		expect("padded", shape, executed)
		_, out := p.exec(t, shape.bytes())
		h, body, fault := express.Decode(shape.parts(out).payload, nil)
		if fault != wire.OK || h.Exchange != 1 || h.Session != peerSession || len(body) != 0 {
			t.Errorf("%v: the answer to a padded frame: %+v, %x, %v", shape, h, body, fault)
		}
	}
}

// A frame that is split anywhere behind its header is served as a whole one is, whatever the frame before has left in the
// memory of the program.
func TestSplitFramesAreServed(t *testing.T) {
	testenv.NeedsFeature(t, testenv.SplitTestRun)
	for _, perfmon := range []bool{true, false} {
		t.Run(map[bool]string{true: "with CAP_PERFMON", false: "without CAP_PERFMON"}[perfmon], func(t *testing.T) {
			p := loadForm(t, perfmon)
			for _, shape := range shapes {
				p.at(t, shape.v6)
				for _, pad := range []int{0, 40} {
					shape.pad = pad
					for n := 0; n <= 64; n += 8 {
						p.splitFrames(t, shape, n)
					}
				}
			}
		})
	}
}

// splitFrames splits a put and a get of n bytes, and an answer with as many.
func (p *tier) splitFrames(t *testing.T, shape packet, n int) {
	t.Helper()
	header := express.Header{Session: session, Exchange: 1, Try: 1}
	answer := func(body []byte) []byte {
		h := header
		h.Flags = wire.FlagResponse
		payload := append(make([]byte, wire.HeaderLen), body...)
		express.Request(payload, h, nil)
		return payload
	}
	memory := p.chunks[0][wideBase:][:64]
	// serve returns the answer, and the target's memory.
	serve := func(payload []byte, first int) ([]byte, bool) {
		shape := shape
		shape.payload = payload
		frame := shape.bytes()
		if first == 0 {
			first = len(frame)
		}
		clear(p.slots)
		p.tables.OpenSlot(0, express.Slot{Session: session, PeerSession: peerSession, Rank: memberRank})
		o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64), Context: &md{DataEnd: uint32(first)}, Repeat: 1}
		verdict, err := p.XdprmaClassify.Run(&o)
		if err != nil {
			t.Fatalf("run: %v", err)
		}
		if handed := p.handed(t); verdict != xdpTX {
			return handed, handed != nil
		}
		return append(o.DataOut, memory...), true
	}
	values, others := make([]byte, n), bytes.Repeat([]byte{0xff}, 256)
	for i := range values {
		values[i] = byte(i + 1)
	}
	part := make([]byte, wire.PartLen)
	wire.PutPart(part, 0, uint32(n))
	payloads := [][]byte{answer(values)}
	if n > 0 {
		payloads = append(payloads, request(header, record{wire.Record{Code: wire.CodePut, Window: wideWindow}, values}),
			request(header, record{wire.Record{Code: wire.CodeGet, Window: wideWindow}, part}))
	}
	for _, payload := range payloads {
		copy(memory, others)
		want, served := serve(payload, 0)
		if !served {
			t.Fatalf("%v, %d bytes of payload are not served: %x", shape, len(payload), payload)
		}
		headers := len(shape.bytes()) - shape.pad
		for first := headers + wire.HeaderLen; first < headers+len(payload)+shape.pad; first++ {
			if _, served := serve(answer(others[:len(payload)-wire.HeaderLen]), 0); !served {
				t.Fatalf("an answer of %d bytes is not served", len(payload))
			}
			copy(memory, others)
			if got, _ := serve(payload, first); !bytes.Equal(got, want) {
				t.Errorf("%v, %d bytes of payload, the first %d of the frame together:\n%x, want\n%x", shape, len(payload), first, got, want)
			}
		}
	}
}
