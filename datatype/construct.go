package datatype

import "github.com/xdprma/xdprma/mpierr"

// The constructors return a type that is not committed. Their errors have class
// ErrType if an old type is nil or freed, ErrCount if a count is negative, and ErrArg if
// another argument is not allowed, if the layout reaches beyond 2^60 bytes, or
// if its simplest form is nested more than 16 deep.

// Contiguous returns count entries of old, one after the other.
func Contiguous(count int, old *Type) (*Type, error) {
	const op = "contiguous"
	if err := counted(op, count, old); err != nil {
		return nil, err
	}
	l, err := old.layout.repeat(int64(count), old.layout.extent())
	return derive(op, describe(op, count, old), l, err)
}

// Vector returns count blocks of blockLen entries of old; the starts of the
// blocks are stride extents of old apart, which may be negative.
func Vector(count, blockLen, stride int, old *Type) (*Type, error) {
	const op = "vector"
	if err := counted(op, count, old); err != nil {
		return nil, err
	}
	var c calc
	bytes := c.mul(int64(stride), old.layout.extent())
	if c.bad && count > 1 {
		return derive(op, "", layout{}, c.err())
	}
	return vector(op, describe(op, count, blockLen, stride, old), count, blockLen, bytes, old)
}

// Hvector is Vector with the stride in bytes.
func Hvector(count, blockLen, strideBytes int, old *Type) (*Type, error) {
	const op = "hvector"
	if err := counted(op, count, old); err != nil {
		return nil, err
	}
	return vector(op, describe(op, count, blockLen, strideBytes, old), count, blockLen, int64(strideBytes), old)
}

func vector(op, made string, count, blockLen int, stride int64, old *Type) (*Type, error) {
	if blockLen < 0 {
		return nil, fail(op, mpierr.Arg, "a block of %d entries", blockLen)
	}
	l, err := old.layout.repeat(int64(blockLen), old.layout.extent())
	if err == nil {
		l, err = l.repeat(int64(count), stride)
	}
	return derive(op, made, l, err)
}

// Indexed returns blocks of blockLens[i] entries of old, displaced by disps[i]
// extents of old.
func Indexed(blockLens, disps []int, old *Type) (*Type, error) {
	const op = "indexed"
	if err := counted(op, 0, old); err != nil {
		return nil, err
	}
	return indexed(op, describe(op, blockLens, disps, old), func(i int) int { return blockLens[i] }, len(blockLens), disps, old.layout.extent(), old)
}

// Hindexed is Indexed with the displacements in bytes.
func Hindexed(blockLens, dispsBytes []int, old *Type) (*Type, error) {
	const op = "hindexed"
	if err := counted(op, 0, old); err != nil {
		return nil, err
	}
	return indexed(op, describe(op, blockLens, dispsBytes, old), func(i int) int { return blockLens[i] }, len(blockLens), dispsBytes, 1, old)
}

// IndexedBlock is Indexed with blocks of one length.
func IndexedBlock(blockLen int, disps []int, old *Type) (*Type, error) {
	const op = "indexed_block"
	if err := counted(op, 0, old); err != nil {
		return nil, err
	}
	return indexed(op, describe(op, blockLen, disps, old), func(int) int { return blockLen }, len(disps), disps, old.layout.extent(), old)
}

// HindexedBlock is IndexedBlock with the displacements in bytes.
func HindexedBlock(blockLen int, dispsBytes []int, old *Type) (*Type, error) {
	const op = "hindexed_block"
	if err := counted(op, 0, old); err != nil {
		return nil, err
	}
	return indexed(op, describe(op, blockLen, dispsBytes, old), func(int) int { return blockLen }, len(dispsBytes), dispsBytes, 1, old)
}

func indexed(op, made string, blockLen func(int) int, blocks int, disps []int, unit int64, old *Type) (*Type, error) {
	if blocks != len(disps) {
		return nil, fail(op, mpierr.Arg, "%d block lengths and %d displacements", blocks, len(disps))
	}
	parts := make([]layout, 0, blocks)
	known := map[int]layout{} // blocks of one length share a node
	for i, disp := range disps {
		n := blockLen(i)
		if n < 0 {
			return nil, fail(op, mpierr.Arg, "block %d of %d entries", i, n)
		}
		if n == 0 {
			continue
		}
		block, ok := known[n]
		if !ok {
			var err error
			if block, err = old.layout.repeat(int64(n), old.layout.extent()); err != nil {
				return derive(op, made, block, err)
			}
			known[n] = block
		}
		var c calc
		at := c.mul(int64(disp), unit)
		placed, err := block.shift(at)
		if err == nil {
			err = c.err()
		}
		if err != nil {
			return derive(op, made, placed, err)
		}
		parts = append(parts, placed)
	}
	l, err := concat(parts)
	return derive(op, made, l, err)
}

// Struct returns blocks of blockLens[i] entries of types[i], displaced by
// dispsBytes[i] bytes.
func Struct(blockLens, dispsBytes []int, types []*Type) (*Type, error) {
	const op = "struct"
	if len(blockLens) != len(dispsBytes) || len(blockLens) != len(types) {
		return nil, fail(op, mpierr.Arg, "%d block lengths, %d displacements and %d types", len(blockLens), len(dispsBytes), len(types))
	}
	parts := make([]layout, 0, len(types))
	for i, old := range types {
		if err := usable(op, old); err != nil {
			return nil, err
		}
		if blockLens[i] < 0 {
			return nil, fail(op, mpierr.Arg, "block %d of %d entries", i, blockLens[i])
		}
		block, err := old.layout.repeat(int64(blockLens[i]), old.layout.extent())
		if err == nil && blockLens[i] > 0 {
			block, err = block.shift(int64(dispsBytes[i]))
		}
		if err != nil {
			return derive(op, "", block, err)
		}
		parts = append(parts, block)
	}
	l, err := concat(parts)
	return derive(op, describe(op, blockLens, dispsBytes, types), l, err)
}

// Resized returns old with the given lower bound and extent in bytes, which may
// be negative and need not cover its data.
func Resized(old *Type, lowerBound, extent int) (*Type, error) {
	const op = "resized"
	if err := usable(op, old); err != nil {
		return nil, err
	}
	l, err := old.layout.resize(int64(lowerBound), int64(extent))
	return derive(op, describe(op, old, lowerBound, extent), l, err)
}

// Dup returns a copy of old, committed if old is.
func Dup(old *Type) (*Type, error) {
	const op = "dup"
	if err := usable(op, old); err != nil {
		return nil, err
	}
	t := &Type{made: describe(op, old), layout: old.layout}
	if old.Committed() {
		t.compiled.Store(compile(old.layout))
	}
	return t, nil
}

// counted checks what most constructors are given.
func counted(op string, count int, old *Type) error {
	if count < 0 {
		return fail(op, mpierr.Count, "%d blocks", count)
	}
	return usable(op, old)
}
