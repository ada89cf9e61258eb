package sim

import (
	"slices"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/elements"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// keepOrder issues puts, gets and accumulates to one place of an ordered window without a flush
// between them: each finds what those before it have left, and nothing of those after it.
func (t *task) keepOrder(k *link, win int, m *regionModel) {
	w := t.w
	var results []fetched
	limit := []int{8, 300, dataSize}[w.rng.IntN(3)]
	from := w.rng.IntN(dataSize - limit + 1)
	for range w.between(2, 12) {
		n := w.between(1, limit)
		at := from + w.rng.IntN(limit-n+1)
		mem := m.data[at : at+n]
		c := onesided.Call{Disp: t.region() + uint64(at)}
		was, will := slices.Clone(mem), slices.Clone(mem)
		switch kind := w.rng.IntN(5); kind {
		case 0, 1:
			c.Code, c.Origin = wire.CodePut, t.random(n)
			copy(will, c.Origin)
		case 2:
			c.Basic, c.Op, c.Origin = datatype.BasicUint8, datatype.Sum, t.random(n)
			if c.Code = wire.CodeAccumulate; w.chance(0.5) {
				c.Code, c.Result = wire.CodeGetAccumulate, make([]byte, n)
			}
			elements.Accumulate(c.Op, c.Basic, will, c.Origin)
		default:
			c.Code, c.Result = wire.CodeGet, make([]byte, n)
		}
		became := t.change(t.haste(), k.at(win), c, mem, will)
		if became == failed || !t.rise(k, win, m) {
			return
		}
		if became == issued && c.Result != nil {
			results = append(results, fetched{c.Result, was})
		}
	}
	t.completed(k, win, m, results, "in order were fetched")
}
