package rma

import (
	"context"
	"encoding/binary"
	"strconv"

	"github.com/xdprma/xdprma/internal/inside"
	"github.com/xdprma/xdprma/internal/launch/job"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
)

// Info returns the hints in use (MPI_Win_get_info, section 11.2.7): each that the library knows, with the
// value that the program gave or the default. Two may be missing: mpi_minimum_memory_alignment, the
// alignment in force, where the library has not aligned the memory, and mpi_assert_memory_alloc_kinds
// if it was not given. Some values are not as given. The values of alloc_shared_noncontig and
// xdprma_check_conflicts are those that hold for all ranks. The value of xdprma_express says whether this
// rank's XDP program reaches the window. The value of mpi_accumulate_granularity is 0: the library
// updates element by element.
func (w *Win) Info() Info {
	w.poller.Lock()
	defer w.poller.UnlockQuiet()
	info := w.hints.Info()
	info[windows.KeyExpress] = strconv.FormatBool(w.region != nil)
	return info
}

// SetInfo changes hints of the window (MPI_Win_set_info, section 11.2.7); those that
// info does not mention stay. It is collective, blocks until all ranks have called it,
// and concerns operations issued afterwards. The creation of a window settles no_locks,
// same_size, same_disp_unit, alloc_shared_noncontig, mpi_minimum_memory_alignment,
// xdprma_check_conflicts, xdprma_express, xdprma_in_clear and xdprma_access for good: SetInfo checks
// their values and ignores them.
// Classes: ErrArg for a value, at all ranks if at one; ErrWin; ErrProcFailed.
func (w *Win) SetInfo(ctx context.Context, info Info) (err error) {
	defer w.handle(&err)
	warnMisspelled(w.job, info)
	next, fault, err := w.hintsWith(info)
	if err != nil {
		return err
	}
	blocks, err := inside.Gather(ctx, w.ending, "window set_info", binary.LittleEndian.AppendUint32(nil, uint32(ClassOf(fault))))
	if err != nil {
		return named("window set_info", NoRank, err)
	}
	for r, b := range blocks {
		if fault == nil {
			fault = failedAt("window set_info", r, Class(binary.LittleEndian.Uint32(b)))
		}
	}
	if fault != nil {
		return fault
	}
	w.poller.Lock()
	defer w.poller.UnlockQuiet()
	next.Settled = w.hints.Settled
	w.hints = next
	if k := w.own.Checker(); k != nil {
		k.SameOp = w.hints.SameOp
	}
	return nil
}

// hintsWith returns the hints that the window has with info, and what is wrong with that. It fails if the window is not
// to be used.
func (w *Win) hintsWith(info Info) (next windows.Hints, fault, err error) {
	w.poller.Lock()
	defer w.poller.UnlockQuiet()
	if err := w.usable("window set_info"); err != nil {
		return next, nil, err
	}
	if next, fault = w.hints.With(info); fault == nil {
		fault = next.Rules.Check(w.comm.Size())
	}
	return next, fault, nil
}

// warnMisspelled has the log tell of info keys that have no meaning and are like one that has. The
// standard wants them ignored.
func warnMisspelled(j *job.Job, info Info) {
	for written, meant := range windows.Misspelled(info) {
		j.Logger().Warn("an info key has no meaning, and is ignored: is another one meant?", "key", written, "like", meant)
	}
}
