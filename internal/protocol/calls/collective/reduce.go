package collective

import (
	"math/bits"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/elements"
	"github.com/xdprma/xdprma/mpierr"
)

// Reduce begins the combination of all ranks' send, elements of basic, in recv at rank
// root. The order of combination depends on the number of ranks alone.
func (c *Comm) Reduce(send, recv []byte, op datatype.Op, basic datatype.Basic, root int) *Call {
	return c.reduction("reduce", reduce, send, recv, op, basic, root, c.Rank == root)
}

// Allreduce begins to combine all ranks' send, elements of basic, in recv at every rank.
// All ranks get the same result, bit by bit.
func (c *Comm) Allreduce(send, recv []byte, op datatype.Op, basic datatype.Basic) *Call {
	return c.reduction("allreduce", allreduce, send, recv, op, basic, 0, true)
}

// reduction begins a reduction. gets says that this rank gets the result.
func (c *Comm) reduction(name string, next func(*Call) bool, send, recv []byte, op datatype.Op, basic datatype.Basic, root int, gets bool) *Call {
	k := c.begin(name, root, next)
	k.send, k.recv, k.operator, k.basic = send, recv, op, basic
	if op == datatype.NoOp || op == datatype.Replace {
		k.refuse(mpierr.New(name, mpierr.Op, mpierr.NoRank, "operator %s is for windows only", op))
	}
	k.refuse(op.Defined(basic))
	if gets && len(recv) != len(send) {
		k.refuse(countError(name, "recv has %d bytes, send has %d", len(recv), len(send)))
	}
	return k
}

// operands makes mine, a copy of what this rank brings in, and theirs, as long.
func (k *Call) operands() {
	n := len(k.send)
	padded := (n + 7) &^ 7
	both := k.c.scratch(2 * padded)
	k.mine, k.theirs = both[:n], both[padded:padded+n]
	copy(k.mine, k.send)
}

// combine combines what has come into mine.
func (k *Call) combine() { elements.Combine(k.operator, k.basic, k.mine, k.theirs) }

// reduce goes up a binomial tree.
func reduce(k *Call) bool {
	me := k.fromRoot()
	switch {
	case k.steps == 0:
		k.operands()
		k.dist = 1
	case me&k.dist != 0:
		return false // it has given what it had
	default:
		k.combine()
		k.dist *= 2
	}
	for ; k.dist < k.c.Size; k.dist *= 2 {
		switch {
		case me&k.dist != 0:
			return k.give(k.absolute(me-k.dist), 0, k.mine)
		case me+k.dist < k.c.Size:
			return k.take(k.absolute(me+k.dist), 0, k.theirs)
		}
	}
	copy(k.recv, k.mine)
	return false
}

// allreduce has two ranks at a time swap their elements. Both combine them, the
// lower rank's first, so that both have the same. Ranks from the last power of two on
// take no part: others bring their elements in.
func allreduce(k *Call) bool {
	const bringIn, bringBack, first = 0, 1, 2 // rounds
	c := k.c
	if k.steps == 0 {
		k.operands()
	}
	most := 1 << (bits.Len(uint(c.Size)) - 1)
	if c.Rank >= most {
		switch k.steps {
		case 0:
			return k.give(c.Rank-most, bringIn, k.mine)
		case 1:
			return k.take(c.Rank-most, bringBack, k.recv)
		}
		return false
	}
	rounds, round, helps := bits.Len(uint(most))-1, k.steps, c.Rank+most < c.Size
	if helps {
		if k.steps == 0 {
			return k.take(c.Rank+most, bringIn, k.theirs)
		}
		round--
	}
	if k.steps > 0 && round <= rounds {
		if round > 0 && c.Rank&(1<<(round-1)) != 0 { // what has come is the lower rank's
			k.mine, k.theirs = k.theirs, k.mine
		}
		k.combine()
	}
	switch {
	case round < rounds:
		peer := c.Rank ^ 1<<round
		return k.swap(peer, k.mine, peer, k.theirs, first+round)
	case round == rounds:
		copy(k.recv, k.mine)
		return helps && k.give(c.Rank+most, bringBack, k.recv)
	}
	return false
}
