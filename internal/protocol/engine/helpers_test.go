package engine

import (
	"encoding/binary"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
)

var le = binary.LittleEndian

func word(v uint64) []byte { return le.AppendUint64(nil, v) }

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
