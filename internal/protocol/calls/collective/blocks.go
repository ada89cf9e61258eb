package collective

import (
	"encoding/binary"

	"github.com/xdprma/xdprma/mpierr"
)

// refuse is Refuse unless err is nil.
func (k *Call) refuse(err error) {
	if err != nil {
		k.Refuse(err)
	}
}

func countError(op, format string, args ...any) error {
	return mpierr.New(op, mpierr.Count, mpierr.NoRank, format, args...)
}

// CheckTimes refuses a buffer that is not Size times as long as one rank's part.
func (c *Comm) CheckTimes(op, name string, whole, part []byte) error {
	if len(whole) == c.Size*len(part) {
		return nil
	}
	return countError(op, "%s has %d bytes, %d times %d are needed", name, len(whole), c.Size, len(part))
}

// AllgatherBytes begins an allgather of the ranks' blocks, as a part of the call op. See
// Blocks.
func (c *Comm) AllgatherBytes(op string, mine []byte) *Call {
	k := c.begin(op, 0, bruck)
	k.send, k.theirs = mine, make([]byte, len(mine)*c.Size)
	return k
}

// Blocks returns what AllgatherBytes has gathered, by rank, in memory of its own.
func (k *Call) Blocks() [][]byte {
	n, blocks := len(k.send), make([][]byte, k.c.Size)
	for i := range blocks {
		blocks[(k.c.Rank+i)%k.c.Size] = k.theirs[i*n : (i+1)*n : (i+1)*n]
	}
	return blocks
}

// A broadcast is a message with the length and the start of the data, and pieces of
// the rest: so a rank makes room for no more than it is about to receive.
const (
	firstPiece = 1016
	nextPiece  = 1 << 20
)

// cast is the state of a broadcast.
type cast struct {
	first  []byte // the first message
	taking bool   // this rank has not got everything
	total  uint64 // what it is to get
	at     int    // what the child has been given, or everything
}

// BcastBytes begins a bcast of data whose length the root alone knows. See Data.
func (c *Comm) BcastBytes(data []byte, root int) *Call {
	k := c.begin("broadcast", root, broadcast)
	k.cast.first = c.scratch(8 + firstPiece)
	if c.Rank == root {
		k.send = data
	}
	return k
}

// Data returns what BcastBytes has brought; at the root, what it has given.
func (k *Call) Data() []byte { return k.send }

// broadcast goes down a binomial tree.
func broadcast(k *Call) bool {
	b, me := &k.cast, k.fromRoot()
	if k.steps == 0 {
		k.dist = k.upwards(me)
		if b.taking = me != 0; b.taking {
			more := k.take(k.absolute(me-k.dist), 0, b.first)
			k.shorter = true
			return more
		}
		k.passOn()
	}
	if b.taking {
		if k.steps == 1 && !k.takeFirst() {
			return false
		}
		if have := len(k.send); uint64(have) < b.total {
			k.send = append(k.send, make([]byte, min(nextPiece, b.total-uint64(have)))...)
			return k.take(k.absolute(me-k.dist), 0, k.send[have:])
		}
		b.taking = false
		k.passOn()
	}
	if at := b.at; at < len(k.send) {
		b.at = min(at+nextPiece, len(k.send))
		return k.give(k.absolute(me+k.dist), 0, k.send[at:b.at])
	}
	if !k.nextChild(me) {
		return false
	}
	b.at = min(firstPiece, len(k.send))
	return k.give(k.absolute(me+k.dist), 0, b.first[:8+b.at])
}

// passOn makes the first message, once this rank has everything.
func (k *Call) passOn() {
	binary.LittleEndian.PutUint64(k.cast.first, uint64(len(k.send)))
	copy(k.cast.first[8:], k.send)
	k.cast.at = len(k.send)
}

// takeFirst takes in the first message, and reports whether it makes sense.
func (k *Call) takeFirst() bool {
	b, n := &k.cast, k.transfer.In.Length
	if n >= 8 {
		b.total = binary.LittleEndian.Uint64(b.first)
	}
	if n < 8 || uint64(n-8) != min(b.total, firstPiece) {
		k.Refuse(mpierr.New(k.op, mpierr.Intern, k.transfer.from, "it sent %d bytes as the start of %d", n, b.total))
		return false
	}
	k.send = append([]byte(nil), b.first[8:n]...)
	return true
}
