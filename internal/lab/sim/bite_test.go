package sim

import (
	"bytes"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/program"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// resign changes a frame's header as a broken sender would, checksum included.
func resign(b []byte, change func(*wire.Header)) []byte {
	var h wire.Header
	if h.Decode(b) != wire.OK {
		return b
	}
	c := bytes.Clone(b)
	change(&h)
	h.Encode(c)
	return c
}

func isRequest(b []byte) bool {
	return wire.Kind(b[5]) == wire.KindData && b[6]&wire.FlagResponse == 0
}

// Each of these breaks a promise of the protocol in a way that checksums do not
// show. If the oracles are any good, a few seeds are enough to notice.
func TestOraclesBite(t *testing.T) {
	t.Parallel()
	const seeds = 200
	tests := []struct {
		name   string
		tamper func() func(from, to int, b []byte) [][]byte
	}{
		{"a late duplicate under a later sequence number", func() func(int, int, []byte) [][]byte {
			n := 0
			return func(_, _ int, b []byte) [][]byte {
				if n++; !isRequest(b) || n%20 != 0 {
					return [][]byte{b}
				}
				return [][]byte{b, resign(b, func(h *wire.Header) { h.Sequence++; h.Packet += 1 })}
			}
		}},
		{"requests without order", func() func(int, int, []byte) [][]byte {
			return func(_, _ int, b []byte) [][]byte {
				return [][]byte{resign(b, func(h *wire.Header) { h.Flags &^= wire.FlagOrdered })}
			}
		}},
		{"requests without fences", func() func(int, int, []byte) [][]byte {
			return func(_, _ int, b []byte) [][]byte {
				return [][]byte{resign(b, func(h *wire.Header) { h.Flags &^= wire.FlagAfterAll })}
			}
		}},
		{"applied acknowledged too early", func() func(int, int, []byte) [][]byte {
			return func(_, _ int, b []byte) [][]byte {
				return [][]byte{resign(b, func(h *wire.Header) {
					if h.AckRequests > 0 {
						h.AckRequests++
					}
				})}
			}
		}},
		{"received acknowledged though lost", func() func(int, int, []byte) [][]byte {
			return func(_, _ int, b []byte) [][]byte {
				return [][]byte{resign(b, func(h *wire.Header) {
					if h.AckLargest > 0 {
						h.AckBits = ^uint64(0)
					}
				})}
			}
		}},
		{"no acknowledgement from rank 1", func() func(int, int, []byte) [][]byte {
			return func(from, _ int, b []byte) [][]byte {
				if from == 1 {
					b = resign(b, func(h *wire.Header) { h.AckLargest, h.AckBits, h.AckRequests, h.AckResponses = 0, 0, 0, 0 })
				}
				return [][]byte{b}
			}
		}},
		{"data damaged before the checksum", func() func(int, int, []byte) [][]byte {
			n := 0
			return func(_, _ int, b []byte) [][]byte {
				if n++; wire.Kind(b[5]) == wire.KindData && len(b) > wire.HeaderLen+wire.RecordLen && n%50 == 0 {
					b = bytes.Clone(b)
					b[wire.HeaderLen+wire.RecordLen] ^= 1
					b = resignDamaged(b)
				}
				return [][]byte{b}
			}
		}},
		{"an exchange again under the next number", func() func(int, int, []byte) [][]byte {
			return func(_, _ int, b []byte) [][]byte {
				h, _, fault := express.Decode(b, nil)
				if fault != wire.OK || h.Flags == wire.FlagResponse {
					return [][]byte{b}
				}
				c := bytes.Clone(b)
				h.Exchange++
				express.Request(c, h, nil)
				return [][]byte{b, c}
			}
		}},
		{"wrong results of exchanges", func() func(int, int, []byte) [][]byte {
			return func(_, _ int, b []byte) [][]byte {
				h, body, fault := express.Decode(b, nil)
				if fault != wire.OK || h.Flags != wire.FlagResponse || len(body) == 0 {
					return [][]byte{b}
				}
				c := bytes.Clone(b)
				c[wire.HeaderLen] ^= 1
				express.Request(c, h, nil)
				return [][]byte{c}
			}
		}},
		{"marks that say nothing", func() func(int, int, []byte) [][]byte {
			return func(_, _ int, b []byte) [][]byte { return [][]byte{unmarked(b)} }
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range uint64(seeds) {
				if r := Run(Config{Seed: seed, Tamper: tt.tamper()}); r.Err != nil {
					t.Logf("seed %d: %.160s", seed, r.Err)
					return
				}
			}
			t.Errorf("%d seeds noticed nothing", seeds)
		})
		t.Run(tt.name+", generated programs", func(t *testing.T) {
			for seed := range uint64(seeds) {
				if r := Run(Config{Seed: seed, Program: program.Generate(seed, program.Ranks(seed)), Tamper: tt.tamper()}); r.Err != nil {
					t.Logf("seed %d: %.160s", seed, r.Err)
					return
				}
			}
			t.Errorf("%d seeds noticed nothing", seeds)
		})
	}
}

// TestOraclesBiteOnOrderUntold leaves the targets of ordered windows untold that they are.
func TestOraclesBiteOnOrderUntold(t *testing.T) {
	const seeds = 100
	for seed := range uint64(seeds) {
		r := Run(Config{Seed: seed, unordered: true, shape: func(p *plan, _ int64) { p.ordered = 1<<numWindows - 1 }})
		if r.Err != nil {
			t.Logf("seed %d: %.160s", seed, r.Err)
			return
		}
	}
	t.Errorf("%d seeds noticed nothing", seeds)
}

// TestOraclesBiteOnCallsLeftUndropped leaves calls that are given up as they are, so that
// their answers go on to be awaited, and written to their results.
func TestOraclesBiteOnCallsLeftUndropped(t *testing.T) {
	const seeds = 100
	for seed := range uint64(seeds) {
		if r := Run(Config{Seed: seed, undropped: true}); r.Err != nil {
			t.Logf("seed %d: %.160s", seed, r.Err)
			return
		}
	}
	t.Errorf("%d seeds noticed nothing", seeds)
}

// unmarked makes pings of the marks in a frame.
func unmarked(b []byte) []byte {
	return eachRecord(b, func(code wire.Code, record []byte) {
		if code == wire.CodeMark {
			record[0] = byte(wire.CodePing)
		}
	})
}

// resignDamaged computes the checksum of a frame whose content was changed.
func resignDamaged(b []byte) []byte {
	c := bytes.Clone(b)
	var h wire.Header
	h.Decode(c) // fails on the checksum alone, and has read all fields by then
	h.Encode(c)
	return c
}
