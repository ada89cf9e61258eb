package bpf_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// onesSum is the sum of 16-bit words, in the arithmetic of checksums.
func onesSum(b ...[]byte) uint16 {
	sum := uint32(0)
	for _, part := range b {
		for ; len(part) > 1; part = part[2:] {
			sum += uint32(binary.BigEndian.Uint16(part))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// pseudoHeader is what the checksum of a plain UDP frame covers beside the datagram.
func pseudoHeader(frame []byte) []byte {
	return append(bytes.Clone(frame[26:34]), 0, 17, frame[38], frame[39])
}

// The answer to a request with a partial checksum has a partial one too in generic mode. All
// others have none.
func TestChecksumsOfAnswers(t *testing.T) {
	p := loadTier(t)
	part := make([]byte, wire.PartLen)
	wire.PutPart(part, 0, 1024)
	for _, ask := range []struct {
		name string
		record
	}{
		{"shorter", record{wire.Record{Code: wire.CodePut, Window: wideWindow}, make([]byte, 64)}},
		{"of the same length", record{wire.Record{Code: wire.CodeGet, Window: wideWindow}, part}},
	} {
		for _, sum := range []struct {
			name    string
			of      func(pseudo, datagram []byte) uint16
			partial bool
		}{
			{"none", func(_, _ []byte) uint16 { return 0 }, false},
			{"whole", func(pseudo, datagram []byte) uint16 { return ^onesSum(pseudo, datagram) }, false},
			{"partial", func(pseudo, _ []byte) uint16 { return onesSum(pseudo) }, true},
		} {
			for generic := range uint64(2) {
				t.Run(fmt.Sprintf("%s, %s, generic %d", ask.name, sum.name, generic), func(t *testing.T) {
					p.tables.OpenSlot(0, express.Slot{Session: session, PeerSession: peerSession, Rank: memberRank})
					p.cfg.Generic = generic
					p.configure(t)
					for exchange, tries := uint64(1), 0; tries < 4; tries++ {
						exchange += uint64(tries % 2)
						frame := packet{payload: requestOf(exchange, tries, ask.record)}.bytes()
						binary.BigEndian.PutUint16(frame[40:], sum.of(pseudoHeader(frame), frame[34:]))
						verdict, out := p.exec(t, frame)
						if verdict != xdpTX {
							t.Fatalf("exchange %d: verdict %d", exchange, verdict)
						}
						want := uint16(0)
						if sum.partial && generic == 1 {
							want = onesSum(pseudoHeader(out))
						}
						if got := binary.BigEndian.Uint16(out[40:]); got != want {
							t.Errorf("exchange %d: the answer's checksum is %#x, want %#x", exchange, got, want)
						}
					}
				})
			}
		}
	}
}

// requestOf is the payload of a request of one record.
func requestOf(exchange uint64, try int, r record) []byte {
	return request(express.Header{Session: session, Exchange: exchange, Try: uint64(try + 1)}, r)
}
