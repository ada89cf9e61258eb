package twin

import (
	"bytes"
	"slices"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/elements"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// Trial is a record that combines elements, and what the tier is to make of it.
type Trial struct {
	wire.Record        // of a window that the test chooses
	Data        []byte // that the record has
	Executed    bool   // by the table in package wire
	Old, New    []byte // the window's memory, and what it then becomes by package elements
	Result      []byte // likewise; nil: the record asks for none
}

// trialValues are of elements: two of them tell the operators apart, with a sign or without one.
var trialValues = []uint64{0, 1, 1<<64 - 1, 0x7f7f7f7f7f7f7f7f, 0x8080808080808080, 0x0123456789abcdef}

// Trials yields trials of each operator on each datatype, with one element, two, the most and
// one more: one of what is not executed, and else one for each two values.
func Trials(yield func(Trial) bool) {
	for _, b := range Codes(datatype.Basic.Valid) {
		for _, op := range Codes(datatype.Op.Valid) {
			for _, n := range []int{1, 2, wire.MaxElements, wire.MaxElements + 1} {
				for _, code := range []wire.Code{wire.CodeAccumulate, wire.CodeGetAccumulate} {
					for from, more := 0, true; more; from += n {
						t := trial(code, b, op, n, from)
						if !yield(t) {
							return
						}
						more = t.Executed && from+n < len(trialValues)*len(trialValues)
					}
				}
			}
		}
	}
}

// Codes returns the datatypes, or operators, of which is holds.
func Codes[T datatype.Basic | datatype.Op](is func(T) bool) (list []T) {
	for c := range T(255) {
		if is(c) {
			list = append(list, c)
		}
	}
	return list
}

// trial returns the trial of n elements that begins with a pair of values.
func trial(code wire.Code, b datatype.Basic, op datatype.Op, n, pair int) Trial {
	size := b.Size()
	value := func(i int) []byte { // of up to 16 bytes
		word := le.AppendUint64(nil, trialValues[i%len(trialValues)])
		return slices.Concat(word, word)[:size]
	}
	place := pair / n % 4 * size // in the words of the memory, with elements behind it
	t := Trial{
		Record:   wire.Record{Code: code, Basic: uint8(b), Op: uint8(op), Disp: uint64(place)},
		Executed: n <= wire.TierElements(op, wire.TierSize(b)) && wire.TierSize(b) > 0,
		Old:      bytes.Repeat([]byte{0x5a}, (n+4)*size),
	}
	var operand []byte
	for i := range n {
		copy(t.Old[place+i*size:], value(pair+i))
		operand = append(operand, value((pair+i)/len(trialValues))...)
	}
	t.New, t.Data = bytes.Clone(t.Old), operand
	if code == wire.CodeGetAccumulate {
		t.Result, t.Data = make([]byte, n*size), make([]byte, wire.PartLen)
		wire.PutPart(t.Data, 0, uint32(n*size))
		if op != datatype.NoOp {
			t.Data = append(t.Data, operand...)
		}
	}
	switch mem := t.New[place:][:n*size]; {
	case !t.Executed:
	case t.Result != nil:
		elements.GetAccumulate(op, b, mem, operand, t.Result)
	default:
		elements.Accumulate(op, b, mem, operand)
	}
	return t
}
