package datatype

import (
	"iter"
	"math/bits"
)

// signature stands for a type's sequence of basic datatypes: exactly where they
// are all the same, else by a fingerprint. The fingerprint of a sequence is a
// polynomial with the datatypes' codes as coefficients, at two points and modulo
// the prime 2^61-1. It is kept as the map that appending the sequence applies to
// such a value, so sequences are appended and repeated by composing maps.
type signature struct {
	basic Basic // of all elements, 0 if they differ or there are none
	count int64 // elements, where basic is set
	print [2]affine
}

// affine is the map from x to mul*x + add.
type affine struct{ mul, add uint64 }

const prime = 1<<61 - 1

var (
	identity = affine{mul: 1}
	points   = [2]uint64{0x0b3f_94d0_49bb_1331, 0x1e37_79b9_7f4a_7c15}
)

func mulMod(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return addMod(lo&prime, hi<<3|lo>>61)
}

func addMod(a, b uint64) uint64 {
	s := a + b
	if s >= prime {
		s -= prime
	}
	return s
}

// then returns the map that applies f and after it g.
func (f affine) then(g affine) affine {
	return affine{mulMod(f.mul, g.mul), addMod(mulMod(f.add, g.mul), g.add)}
}

// times returns the map that applies f n times.
func (f affine) times(n int64) affine {
	result := identity
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			result = result.then(f)
		}
		f = f.then(f)
	}
	return result
}

func signatureOf(n *node) signature {
	if n.basic != 0 {
		return signature{basic: n.basic, count: n.size / int64(n.basic.Size())}
	}
	var s signature
	for i := range s.print {
		s.print[i] = fingerprint(n, points[i], map[*node]affine{})
	}
	return s
}

func fingerprint(n *node, point uint64, known map[*node]affine) affine {
	if n.basic != 0 {
		return affine{point, uint64(n.basic)}.times(n.size / int64(n.basic.Size()))
	}
	if f, ok := known[n]; ok {
		return f
	}
	f := identity
	switch {
	case n.kind == kindLoop:
		f = fingerprint(n.body, point, known).times(n.count)
	default:
		for _, it := range n.items {
			f = f.then(fingerprint(it.node, point, known))
		}
	}
	known[n] = f
	return f
}

// SameSignature reports whether aCount entries of a and bCount entries of b have
// the same basic datatypes in the same order, as the two sides of a transfer
// must; Byte is like Byte only. It takes no longer for large counts. For types
// whose elements are all alike the answer is exact; two different mixtures of
// elements are taken for the same in about one case of 2^120.
//
// It panics if a type is not committed, and returns false for negative counts.
func SameSignature(aCount int, a *Type, bCount int, b *Type) bool {
	if aCount < 0 || bCount < 0 {
		return false
	}
	p, q := a.mustCompiled(), b.mustCompiled()
	if p == q && aCount == bCount {
		return true
	}
	high, low := bits.Mul64(uint64(p.size), uint64(aCount))
	if h, l := bits.Mul64(uint64(q.size), uint64(bCount)); h != high || l != low {
		return false
	}
	if empty := high|low == 0; empty || p.sig.basic != 0 || q.sig.basic != 0 {
		return empty || p.sig.basic == q.sig.basic
	}
	for i := range p.sig.print {
		if p.sig.print[i].times(int64(aCount)) != q.sig.print[i].times(int64(bCount)) {
			return false
		}
	}
	return true
}

// Signature yields the basic datatypes of one entry in order, as runs: a
// datatype and how many elements in a row have it. It panics if t is not
// committed.
func (t *Type) Signature() iter.Seq2[Basic, int64] {
	p := t.mustCompiled()
	return func(yield func(Basic, int64) bool) {
		if p.sig.basic != 0 {
			yield(p.sig.basic, p.sig.count)
			return
		}
		var it Iter
		it.reset(p, p.elements, 1, true)
		var last Basic
		var n int64
		for {
			_, bytes, b, ok := it.Next(maxSpan)
			if b != last && n > 0 {
				if !yield(last, n) {
					return
				}
				n = 0
			}
			if !ok {
				return
			}
			last, n = b, n+int64(bytes)/int64(b.Size())
		}
	}
}

// mustCompiled returns what t is compiled to. It panics if there is none.
func (t *Type) mustCompiled() *compiled {
	if t == nil {
		panic("datatype: no datatype")
	}
	p := t.compiled.Load()
	if p == nil || p == freed {
		panic("datatype: " + t.String() + " is not committed")
	}
	return p
}
