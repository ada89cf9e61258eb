// Package siphash computes the codes that prove the origin of short frames: SipHash-2-4 with
// 64 bits, of Aumasson and Bernstein. bpf/siphash.h computes the same in the XDP program.
package siphash

import (
	"encoding/binary"
	"math/bits"
)

// Key is what both ends of a code know. Whoever does not know it guesses a code with 1 in
// 2^64.
type Key [16]byte

// Sum64 returns the code of b. It does not allocate.
func Sum64(k *Key, b []byte) uint64 {
	le := binary.LittleEndian
	k0, k1 := le.Uint64(k[:8]), le.Uint64(k[8:])
	v0, v1, v2, v3 := k0^0x736f6d6570736575, k1^0x646f72616e646f6d, k0^0x6c7967656e657261, k1^0x7465646279746573
	last := uint64(len(b)) << 56
	for ; len(b) >= 8; b = b[8:] {
		word := le.Uint64(b)
		v3 ^= word
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
		v0 ^= word
	}
	for i, c := range b {
		last |= uint64(c) << (8 * i)
	}
	v3 ^= last
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	v0 ^= last
	v2 ^= 0xff
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	v0, v1, v2, v3 = round(v0, v1, v2, v3)
	return v0 ^ v1 ^ v2 ^ v3
}

// round is one SipRound. The compiler inlines it.
func round(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v2 += v3
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v1
	v0 += v3
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}
