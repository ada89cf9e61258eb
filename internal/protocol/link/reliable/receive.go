// Package reliable holds the pure parts of the transport between two ranks:
// which sequence numbers have arrived and been applied, which packets to
// acknowledge, how long to wait for an answer, and how much to have in flight.
// Nothing here knows the time, a network or a goroutine.
package reliable

import "math/bits"

// Span is how far, in bundles, a sender may run ahead of the oldest bundle that
// the receiver has not applied. It bounds the receiver's memory.
const Span = 1024

// Verdict is the answer to a received sequence number.
type Verdict uint8

// The verdicts.
const (
	Fresh     Verdict = iota // not seen before
	Duplicate                // seen before
	TooFar                   // beyond Span, or zero: not acceptable
)

// Receiver remembers, for one class of bundles, which were received and which
// of those have been applied. Sequence numbers start at 1. The zero value is ready.
type Receiver struct {
	below   uint64 // every sequence number < below+1 has been applied
	got     [Span / 64]uint64
	applied [Span / 64]uint64
}

// Next returns the lowest sequence number that has not been applied: everything
// below it has been.
func (r *Receiver) Next() uint64 { return r.below + 1 }

// Check says whether seq is fresh, without recording it.
func (r *Receiver) Check(seq uint64) Verdict {
	switch {
	case seq == 0 || seq > r.below+Span:
		return TooFar
	case seq <= r.below || r.got[seq/64%(Span/64)]&(1<<(seq%64)) != 0:
		return Duplicate
	}
	return Fresh
}

// Received records that seq, which Check found fresh, has been taken in.
func (r *Receiver) Received(seq uint64) {
	r.got[seq/64%(Span/64)] |= 1 << (seq % 64)
}

// Applied records that seq, which was received, has taken effect.
func (r *Receiver) Applied(seq uint64) {
	r.applied[seq/64%(Span/64)] |= 1 << (seq % 64)
	for {
		next := r.below + 1
		word, bit := next/64%(Span/64), next%64
		run := uint64(bits.TrailingZeros64(^(r.applied[word] >> bit)))
		if run == 0 {
			return
		}
		run = min(run, 64-bit)
		mask := (^uint64(0) >> (64 - run)) << bit
		r.applied[word] &^= mask
		r.got[word] &^= mask
		r.below += run
	}
}

// PacketNumbers remembers which packet numbers to acknowledge: the largest received
// and the 64 before it.
type PacketNumbers struct {
	Largest uint64
	Bits    uint64 // bit i: packet Largest-1-i was received
}

// Add records that packet n has arrived.
func (p *PacketNumbers) Add(n uint64) {
	if n > p.Largest {
		shift := n - p.Largest
		p.Bits = p.Bits << shift // a shift of 64 or more gives 0
		if p.Largest != 0 && shift <= 64 {
			p.Bits |= 1 << (shift - 1)
		}
		p.Largest = n
		return
	}
	if d := p.Largest - n; d >= 1 && d <= 64 {
		p.Bits |= 1 << (d - 1)
	}
}

// Has reports whether packet n is acknowledged by largest and ackBits.
func Has(largest, ackBits, n uint64) bool {
	if n >= largest {
		return n == largest
	}
	d := largest - n
	return d <= 64 && ackBits&(1<<(d-1)) != 0
}
