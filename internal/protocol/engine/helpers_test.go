package engine

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
)

var le = binary.LittleEndian

func word(v uint64) []byte { return le.AppendUint64(nil, v) }

func noise(n int) []byte {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func committed(t *datatype.Type, err error) *datatype.Type {
	if err == nil {
		err = t.Commit()
	}
	if err != nil {
		panic(err)
	}
	return t
}

// sessionAt returns the session that a leads through.
func sessionAt(a *onesided.Access) *Session { return sessionOf(a.Session()) }
