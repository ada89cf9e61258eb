package sim

import (
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// block is a part of a call's memory, in bytes.
type block struct{ at, length int }

// disguise makes a call with derived datatypes of a plain one. It has the same
// effect: both sides have the same blocks in the same order, which is not that of
// memory. It returns nil if it leaves the call as it is.
func (t *task) disguise(c *onesided.Call) (y *epochs.Derived, blocks []block) {
	w := t.w
	old, n := datatype.Byte, max(len(c.Origin), len(c.Result))
	if c.Code.Row().Combines {
		old = c.Basic.Type()
		n /= old.Size()
	}
	if n < 2 || c.Code == wire.CodeCompareSwap {
		return nil, nil
	}
	var lens, disps []int
	longest := max(1, n/[]int{2, 2, 10, 300}[w.rng.IntN(4)])
	for at := 0; at < n; {
		block := min(w.between(1, longest), n-at)
		lens, disps = append(lens, block), append(disps, at)
		at += block
	}
	w.rng.Shuffle(len(lens), func(i, j int) {
		lens[i], lens[j], disps[i], disps[j] = lens[j], lens[i], disps[j], disps[i]
	})
	typ, err := datatype.Indexed(lens, disps, old)
	if err == nil {
		err = typ.Commit()
	}
	if err != nil {
		w.failf("a datatype: %v", err)
	}
	for i := range lens {
		blocks = append(blocks, block{disps[i] * old.Size(), lens[i] * old.Size()})
	}
	y = &epochs.Derived{Type: typ, Count: 1, Size: n * old.Size()}
	if c.Code != wire.CodeGet && c.Op != datatype.NoOp {
		y.Origin = onesided.Local{Mem: c.Origin, Type: typ, Count: 1}
	}
	if c.Result != nil {
		y.Result = onesided.Local{Mem: c.Result, Type: typ, Count: 1}
	}
	c.Origin, c.Result = nil, nil
	return y, blocks
}
