package sim

import (
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// disguise makes a call with derived datatypes of a plain one. It has the same
// effect: both sides have the same blocks in the same order, which is not that of
// memory.
func (t *task) disguise(c *onesided.Call) {
	w := t.w
	old, n := datatype.Byte, len(c.Origin)
	switch c.Code {
	case wire.CodePut:
	case wire.CodeGet:
		n = len(c.Result)
	case wire.CodeAccumulate, wire.CodeGetAccumulate:
		old = c.Basic.Type()
		n = max(n, len(c.Result)) / old.Size()
	default:
		return
	}
	if n < 2 {
		return
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
	var origin, result onesided.Local
	if c.Code != wire.CodeGet && c.Op != datatype.NoOp {
		origin = onesided.Local{Mem: c.Origin, Type: typ, Count: 1}
	}
	if c.Result != nil {
		result = onesided.Local{Mem: c.Result, Type: typ, Count: 1}
	}
	c.Typed = t.l.e.Typed(&origin, &result, typ, 1, n*old.Size())
	c.Origin, c.Result = nil, nil
	if w.chance(0.5) {
		_ = typ.Free() // it is not needed any more, and derived
	}
}
