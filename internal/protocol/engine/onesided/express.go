package onesided

import (
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// A bundle of requests may travel as an exchange if the target's XDP program can execute
// all of it. Then its answer has the results of all its operations.

// SetReach says whether the window that a leads to is in memory that the target's XDP
// program reaches.
func (a *Access) SetReach(on bool) { a.reach = on }

// Express returns how many records there are in the body of a bundle to s, and how
// many bytes of results, each padded to 8. It returns 0 records if the target's program
// cannot execute them all.
func (x *Operations) Express(s *Peer, records []byte) (n, results int) {
	var r wire.Record
	holds, held := false, uint32(0)
	for at := 0; at < len(records); n++ {
		size := wire.NextRecord(records[at:], &r)
		a := s.access[r.Window]
		if size == 0 || n == express.MaxRecords || a == nil || !a.reach || a.checked {
			return 0, 0
		}
		_, result, ok := express.Form(&r)
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
func (x *Operations) Executed(s *Peer, records, results []byte, refused uint8) {
	var r wire.Record
	for at := 0; at < len(records); refused >>= 1 {
		at += wire.NextRecord(records[at:], &r)
		_, n, _ := express.Form(&r)
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
