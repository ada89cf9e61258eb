package wire

import "encoding/binary"

// PieceLen is the length of the header in a data frame without a sequence.
const PieceLen = 16

// PieceOf says which part of a bundle a data frame without a sequence brings. A frame in
// which all of it is 0 brings nothing: it is only to be acknowledged.
type PieceOf struct {
	Sequence uint64 // of the bundle
	Offset   uint32 // in the bundle's records
	Total    uint32 // bytes of the bundle's records
}

// Put writes w to b, which has room for PieceLen bytes.
func (w PieceOf) Put(b []byte) {
	_ = b[PieceLen-1]
	binary.LittleEndian.PutUint64(b[0:], w.Sequence)
	binary.LittleEndian.PutUint32(b[8:], w.Offset)
	binary.LittleEndian.PutUint32(b[12:], w.Total)
}

// Decode reads w from b and reports whether b is long enough.
func (w *PieceOf) Decode(b []byte) bool {
	if len(b) < PieceLen {
		return false
	}
	w.Sequence = binary.LittleEndian.Uint64(b[0:])
	w.Offset = binary.LittleEndian.Uint32(b[8:])
	w.Total = binary.LittleEndian.Uint32(b[12:])
	return true
}
