package onesided

import (
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// A bundle of requests may travel as an exchange if the target's XDP program can execute
// all of it. Then its answer has the results of all its operations.

// SetReach says whether the window that a leads to is in memory that the target's XDP
// program reaches.
func (a *Access) SetReach(on bool) { a.reach = on }

// Express returns how many records there are in the body of a bundle to s, and how
// many bytes of results, each padded to 8. It returns 0 records if the target's program
// cannot execute them all.
func (x *Origin) Express(s *Peer, records []byte) (n, results int) {
	var r wire.Record
	holds, held := false, uint32(0)
	for at := 0; at < len(records); n++ {
		size := wire.NextRecord(records[at:], &r)
		a := s.accessTo(r.Window)
		if size == 0 || n == express.MaxRecords || a == nil || !a.reach || a.checked {
			return 0, 0
		}
		_, result, ok := Form(&r)
		at += size
		switch {
		case !ok:
			return 0, 0
		case r.Code == wire.CodeLock:
			if n > 0 {
				return 0, 0
			}
			holds, held = true, r.Window
		case r.Code == wire.CodeUnlock:
			if !holds || held != r.Window || at < len(records) {
				return 0, 0
			}
			holds = false
		}
		results += express.Padded(result)
	}
	if holds { // the lock is to outlive the bundle
		return 0, 0
	}
	return n, results
}

// Executed takes in that the target has executed the records of a bundle at once: all of
// them have completed. A record whose bit is set in refused failed, since its window is gone.
func (x *Origin) Executed(s *Peer, records, results []byte, refused uint8) {
	var r wire.Record
	for at := 0; at < len(records); refused >>= 1 {
		at += wire.NextRecord(records[at:], &r)
		_, n, _ := Form(&r)
		result := results[:n]
		results = results[express.Padded(n):]
		if refused&1 != 0 {
			f := refusalOf(&r, mpierr.Win)
			x.refused(s, &f)
		} else if a := r.Code.Row().Answer; a != 0 {
			x.answer(s, &wire.Record{Code: a, Window: r.Window, Token: r.Token, Data: result})
		}
	}
}

// Form says what a record that communicates needs: the bytes of the window from its
// displacement on, and the length of its result, which an answer pads to a multiple of 8.
// It returns false for a record that the tier never executes. Records of locks and notifications need nothing.
func Form(r *wire.Record) (span, result int, ok bool) {
	row, n := r.Code.Row(), len(r.Data)
	ok = row.Tier && r.Flags&^row.TierFlags == 0
	switch row.Data {
	case wire.DataNone:
		return 0, 0, ok && n == 0
	case wire.DataPair:
		size := wire.TierSize(datatype.Basic(r.Basic))
		return size, size, ok && size != 0 && n == 2*size && r.Disp%uint64(size) == 0
	case wire.DataOperand:
		span = n
	case wire.DataPart, wire.DataPartOperand:
		want, asks := part(r)
		operand := 0
		if row.Data == wire.DataPartOperand && datatype.Op(r.Op) != datatype.NoOp {
			operand = want
		}
		span, result, ok = want, want, ok && asks && n == wire.PartLen+operand
	default:
		return 0, 0, false
	}
	if row.Combines {
		return span, result, ok && combines(r, span)
	}
	return span, result, ok && whole(r.Disp, span)
}

// part reads how many bytes of result r asks for, which is to be the whole result.
func part(r *wire.Record) (want int, ok bool) {
	if len(r.Data) < wire.PartLen {
		return 0, false
	}
	offset, length := wire.Part(r.Data)
	return int(length), offset == 0 && length <= express.MaxResults
}

// whole reports whether n bytes at a displacement are moved without tearing an element
// by words of 8 bytes and what is left of them.
func whole(disp uint64, n int) bool {
	switch n {
	case 0:
		return false
	case 1, 2, 4:
		return disp%uint64(n) == 0
	}
	return disp%8 == 0
}

// combines reports whether the tier executes the accumulate r on n bytes of the window.
func combines(r *wire.Record, n int) bool {
	size := wire.TierSize(datatype.Basic(r.Basic))
	return size != 0 && n != 0 && n%size == 0 && r.Disp%uint64(size) == 0 && n/size <= wire.TierElements(datatype.Op(r.Op), size)
}
