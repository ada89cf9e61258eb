package testenv

import (
	"math/rand/v2"
	"sync"
)

const period = 1 << 20

// noise is what Fill copies from: the race detector looks at a copy once, and at a
// loop for each byte.
var noise = sync.OnceValue(func() []byte {
	b := make([]byte, 2*period)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
})

// Fill writes bytes that depend on key, the same ones each time.
func Fill(b []byte, key uint32) {
	at := key * 2654435761 % period
	for len(b) > 0 {
		b = b[copy(b, noise()[at:]):]
	}
}
