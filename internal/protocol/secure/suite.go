package secure

import (
	"crypto/cipher"

	"golang.org/x/crypto/chacha20poly1305"
)

// Suite says how the frames of a session are protected. Both ends have the same.
type Suite struct {
	Level  Level // Sign or Seal
	Cipher Cipher
	Header int // bytes at the start of each frame that are not encrypted
	Bounds Bounds
}

// Bounds are how long keys last. Both ends have the same; tests alone have others than the zero value's.
type Bounds struct {
	// EpochBits is how many of a number's low bits count within one key; 0: 24. It is more than
	// frames in a row get lost: the peer knows the key of the next epoch, and not of the one after.
	EpochBits uint8
	// Forged is how many frames with wrong tags end a session; 0: as many as section 6.6 of RFC 9001 has for the
	// cipher, which counts them under all keys of a session alike.
	Forged uint64
}

// Cipher is what makes tags, and encrypts.
type Cipher uint8

// The ciphers.
const (
	AES    Cipher = iota // AES-128-GCM
	ChaCha               // ChaCha20-Poly1305, for processors that compute no AES
)

// mostForged returns how many frames with wrong tags are too many.
func (s Suite) mostForged() uint64 {
	switch {
	case s.Bounds.Forged != 0:
		return s.Bounds.Forged
	case s.Cipher == AES:
		return 1 << 52
	}
	return 1 << 36
}

// clear returns how many of the n bytes before a frame's trailer are not encrypted.
func (s Suite) clear(n int) int {
	if s.Level < Seal {
		return n
	}
	return min(n, s.Header)
}

// key returns the cipher with the key of a chain.
func (s Suite) key(chain *[32]byte) cipher.AEAD {
	n := chacha20poly1305.KeySize
	if s.Cipher == AES {
		n = 16
	}
	key := expand(chain, "key", n)
	defer clear(key)
	if s.Cipher == AES {
		return newGCM(key)
	}
	aead, err := chacha20poly1305.New(key)
	if err != nil {
		panic(err)
	}
	return aead
}
