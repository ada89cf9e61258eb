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
		a := s.access[r.Window]
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
		switch {
		case refused&1 != 0:
			f := refusalOf(&r, mpierr.Win)
			x.refused(s, &f)
		case n > 0:
			x.answer(s, &wire.Record{Code: wire.CodeResult, Window: r.Window, Token: r.Token, Data: result})
		case answered(r.Code):
			x.answer(s, &wire.Record{Code: wire.CodeGranted, Window: r.Window, Token: r.Token})
		}
	}
}

// maxElements is the most that one accumulate of the tier may combine.
const maxElements = 16

// Form says what a record that communicates needs: the bytes of the window from its
// displacement on, and the length of its result, which an answer pads to a multiple of 8.
// It returns false for a record that the tier never executes. Records of locks and notifications need nothing.
func Form(r *wire.Record) (span, result int, ok bool) {
	n, none := len(r.Data), r.Flags == 0
	if r.Flags == wire.FlagNotify && r.Notifies() {
		none = true
	}
	switch r.Code {
	case wire.CodeNotify:
		return 0, 0, r.Flags <= wire.FlagIfDone && n == 0
	case wire.CodeLock:
		return 0, 0, r.Flags <= wire.FlagExclusive && n == 0
	case wire.CodeUnlock:
		return 0, 0, none && n == 0
	case wire.CodePut:
		return n, 0, none && whole(r.Disp, n)
	case wire.CodeGet:
		want, ok := part(r)
		return want, want, none && ok && n == wire.PartLen && whole(r.Disp, want)
	case wire.CodeAccumulate:
		return n, 0, none && combines(r, n)
	case wire.CodeGetAccumulate:
		want, ok := part(r)
		operand := want
		if datatype.Op(r.Op) == datatype.NoOp {
			operand = 0
		}
		return want, want, none && ok && n == wire.PartLen+operand && combines(r, want)
	case wire.CodeCompareSwap:
		size := integerSize(r.Basic)
		return size, size, none && size != 0 && n == 2*size && r.Disp%uint64(size) == 0
	}
	return 0, 0, false
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
	size, op := integerSize(r.Basic), datatype.Op(r.Op)
	if size == 0 || n == 0 || n%size != 0 || r.Disp%uint64(size) != 0 || op < datatype.Sum || op > datatype.NoOp {
		return false
	}
	if n == size {
		return true
	}
	switch op {
	case datatype.Sum, datatype.BAnd, datatype.BOr, datatype.BXor, datatype.Replace:
		return size >= 4 && n/size <= maxElements
	}
	return false
}

// integerSize returns the size of an integer, 0 if basic is none.
func integerSize(basic uint8) int {
	b := datatype.Basic(basic)
	if b < datatype.BasicInt8 || b > datatype.BasicUint64 {
		return 0
	}
	return b.Size()
}
