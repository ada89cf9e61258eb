// Package words copies memory of windows in whole words, and finds the words of elements.
package words

import (
	"encoding/binary"
	"sync/atomic"
)

var le = binary.LittleEndian

// Put and get move data without a datatype, yet a reader of an aligned element
// of 1, 2, 4 or 8 bytes must never see half of it. The runtime's memmove alone
// does not promise that: it moves 2 bytes as two single bytes, covers an odd
// length by two overlapping moves that may meet inside an element, and in long
// loops aligns itself to one side, whose words need not be the other's. So the
// ends are moved in aligned pieces. The middle, which starts at a multiple of 8
// in the window and is a multiple of 8 long, is moved in words, or, where it is
// long, by memmove in portions of moveMax: up to that length memmove has no loop
// on amd64 and arm64, every load and store of it starts and ends between the
// window's words, and the hardware splits an access at no other place.
//
// Where the two overlap, bytes are read before they are overwritten: the pieces are
// moved from the end if the destination begins within the source.
const (
	wordsMax = 64
	moveMax  = 128
)

// CopyIn copies src, anywhere in memory, to the start of dst, window memory. Each
// aligned element of 1, 2, 4 or 8 bytes that src covers is written whole, in no
// particular order. A copy of exactly one aligned element of 4 or 8 bytes is an
// atomic store in the sense of sync/atomic. It panics if dst is shorter than
// src. The two may overlap, as those of copy may.
func CopyIn(dst, src []byte) {
	n := len(src)
	dst = dst[:n]
	at := Address(dst)
	switch {
	case n == 8 && at&7 == 0:
		atomic.StoreUint64(Word64(dst, 0), le.Uint64(src))
		return
	case n == 4 && at&3 == 0:
		atomic.StoreUint32(Word32(dst, 0), le.Uint32(src))
		return
	case BeginsWithin(dst, src):
		copyBackward(dst, src, at, moveIn)
		return
	}
	i := 0
	for i < n && (at+uintptr(i))&7 != 0 {
		i += moveIn(dst, src, i, piece(at+uintptr(i), n-i))
	}
	if end := i + (n-i)&^7; end-i <= wordsMax {
		for ; i < end; i += 8 {
			*Word64(dst, i) = le.Uint64(src[i:])
		}
	} else {
		for i < end {
			i += copy(dst[i:min(end, i+moveMax)], src[i:end])
		}
	}
	for i < n {
		i += moveIn(dst, src, i, piece(at+uintptr(i), n-i))
	}
}

// CopyOut copies the start of src, window memory, to dst, anywhere in memory, and
// fills dst. Each aligned element of 1, 2, 4 or 8 bytes of the window is read
// whole, in no particular order; a copy of exactly one aligned element of 4 or
// 8 bytes is an atomic load in the sense of sync/atomic. It panics if src is
// shorter than dst. The two may overlap, as those of copy may.
func CopyOut(dst, src []byte) {
	n := len(dst)
	src = src[:n]
	at := Address(src)
	switch {
	case n == 8 && at&7 == 0:
		le.PutUint64(dst, atomic.LoadUint64(Word64(src, 0)))
		return
	case n == 4 && at&3 == 0:
		le.PutUint32(dst, atomic.LoadUint32(Word32(src, 0)))
		return
	case BeginsWithin(dst, src):
		copyBackward(dst, src, at, moveOut)
		return
	}
	i := 0
	for i < n && (at+uintptr(i))&7 != 0 {
		i += moveOut(dst, src, i, piece(at+uintptr(i), n-i))
	}
	if end := i + (n-i)&^7; end-i <= wordsMax {
		for ; i < end; i += 8 {
			le.PutUint64(dst[i:], *Word64(src, i))
		}
	} else {
		for i < end {
			i += copy(dst[i:min(end, i+moveMax)], src[i:end])
		}
	}
	for i < n {
		i += moveOut(dst, src, i, piece(at+uintptr(i), n-i))
	}
}

// BeginsWithin reports whether the memory of dst begins within that of src, after its start.
// Then copying from the start on would overwrite what is yet to be read.
func BeginsWithin(dst, src []byte) bool {
	distance := Address(dst) - Address(src)
	return distance > 0 && distance < uintptr(len(src))
}

// copyBackward copies src to dst, which is as long, from the end on. The one whose address
// is at is window memory, whose pieces move moves.
func copyBackward(dst, src []byte, at uintptr, move func(dst, src []byte, i, size int) int) {
	i := len(src)
	for i > 0 && (at+uintptr(i))&7 != 0 {
		size := piece(at+uintptr(i), i)
		i -= move(dst, src, i-size, size)
	}
	for first := i & 7; i > first; {
		next := max(first, i-moveMax)
		i -= copy(dst[next:i], src[next:i])
	}
	for i > 0 {
		size := piece(at+uintptr(i), i)
		i -= move(dst, src, i-size, size)
	}
}

// piece returns the length of the largest aligned element of at most 4 bytes that begins,
// or ends, at address at, with left bytes to go.
func piece(at uintptr, left int) int {
	switch {
	case at&3 == 0 && left >= 4:
		return 4
	case at&1 == 0 && left >= 2:
		return 2
	}
	return 1
}

// moveIn copies the piece of the given size at i to window memory, where it is aligned, and
// returns its size.
func moveIn(dst, src []byte, i, size int) int {
	switch size {
	case 4:
		*Word32(dst, i) = le.Uint32(src[i:])
	case 2:
		*word16(dst, i) = le.Uint16(src[i:])
	default:
		dst[i] = src[i]
	}
	return size
}

// moveOut is moveIn in the other direction.
func moveOut(dst, src []byte, i, size int) int {
	switch size {
	case 4:
		le.PutUint32(dst[i:], *Word32(src, i))
	case 2:
		le.PutUint16(dst[i:], *word16(src, i))
	default:
		dst[i] = src[i]
	}
	return size
}
