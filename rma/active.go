package rma

import (
	"context"
	"slices"

	"github.com/xdprma/xdprma/comm"
)

// Fence ends the epochs that the last fence began and begins new ones, at all
// ranks of the window (MPI_Win_fence, section 11.5.1). It is collective. It blocks
// until what this rank has issued has completed everywhere and what others have
// issued to it has been applied. Until the next fence each rank may access every
// other one. An epoch in which nothing was issued does not count: a lock, a start,
// a post or Free may follow it. If ctx ends first, the window has no more fences: those of
// the other ranks fail, and so does the next one here. Locks, post and start, and Free
// still work.
//
// assert may combine ModeNoStore, ModeNoPut, ModeNoPrecede (no operations were
// issued since the last fence; ErrAssert if there were, which are completed all the
// same) and ModeNoSucceed (none will be until the next one: no epoch begins).
// Classes: ErrAssert, ErrRMASync while another epoch is open, ErrWin, and those of
// the operations that it completes.
func (w *Win) Fence(ctx context.Context, assert ...Assert) error {
	return w.report(w.run(ctx, w.epochs.Fence(union(assert))))
}

// Start begins an access epoch on targets, ranks of the window's communicator
// (MPI_Win_start, section 11.5.2); ProcNull among them stands for nobody. Each of them opens its window with
// Post. Start does not wait for that, nor do the calls that communicate: what is
// issued before the post is kept here and sent when it comes. With ModeNoCheck the
// posts have been made already, and with the same assertion. It blocks for nothing: it
// connects to targets that it has not met in the background. Classes: ErrAssert,
// ErrRank, ErrRMASync while another access epoch is open, ErrWin.
func (w *Win) Start(_ context.Context, targets []int, assert ...Assert) error {
	return w.report(w.start(targets, assert))
}

func (w *Win) start(targets []int, assert []Assert) error {
	defer w.poller.Guard()
	t := w.turn()
	err := w.open("start")
	if err == nil {
		err = w.epochs.Start(t, present(targets), union(assert))
	}
	w.poller.Unlock()
	return err
}

// StartGroup is Start on the processes of a group. Beside its errors: ErrGroup if one is not in
// the window's communicator.
func (w *Win) StartGroup(_ context.Context, targets comm.Group, assert ...Assert) error {
	ranks, err := w.ranksOf("start", targets)
	if err == nil {
		err = w.start(ranks, assert)
	}
	return w.report(err)
}

// PostGroup is Post to the processes of a group. Beside its errors: ErrGroup if one is not in
// the window's communicator.
func (w *Win) PostGroup(_ context.Context, origins comm.Group, assert ...Assert) error {
	ranks, err := w.ranksOf("post", origins)
	if err == nil {
		err = w.post(ranks, assert)
	}
	return w.report(err)
}

// ranksOf returns the ranks in the window's communicator of the processes of a group.
func (w *Win) ranksOf(op string, g comm.Group) ([]int, error) {
	ranks := make([]int, g.Size())
	for i := range ranks {
		ranks[i] = i
	}
	ranks, err := g.Translate(ranks, w.comm.Group())
	if err == nil && slices.Contains(ranks, comm.Undefined) {
		err = newError(op, ErrGroup, NoRank, "the group has processes that are not in the window's communicator")
	}
	return ranks, err
}

// union is what several assertions say together.
func union(assert []Assert) (all Assert) {
	for _, a := range assert {
		all |= a
	}
	return all
}

// present returns ranks without ProcNull.
func present(ranks []int) []int {
	if !slices.Contains(ranks, ProcNull) {
		return ranks
	}
	return slices.DeleteFunc(slices.Clone(ranks), func(r int) bool { return r == ProcNull })
}

// Complete ends the epoch that Start began (MPI_Win_complete, section 11.5.2). It
// blocks until its operations have completed at the origin: results are there, and
// buffers may be used again. Operations without a result may still be on their way,
// or wait for the post; that they fail at the target is told by the next call that
// completes something there. If ctx ends first, the epoch is over all the same, and
// results must be left alone until they have come: call Complete again to wait for them.
// The error names a rank that has not posted. Classes: ErrRMASync without Start, ErrWin,
// ErrProcFailed, and those of the operations.
func (w *Win) Complete(ctx context.Context) error {
	return w.report(w.run(ctx, w.epochs.Complete()))
}

// Post exposes this rank's window to origins, ranks of the window's communicator, each of
// which begins its epoch with Start (MPI_Win_post, section 11.5.2); ProcNull among them
// stands for nobody. It does not wait for them. Wait or Test ends the exposure. assert may
// combine ModeNoCheck (nobody is told: origins call Start afterwards, with the same
// assertion), ModeNoStore and ModeNoPut. It blocks for nothing: it connects to origins
// that it has not met in the background. Classes: ErrAssert, ErrRank, ErrRMASync while the
// window is exposed or locked, ErrWin, ErrProcFailed.
func (w *Win) Post(_ context.Context, origins []int, assert ...Assert) error {
	return w.report(w.post(origins, assert))
}

func (w *Win) post(origins []int, assert []Assert) error {
	defer w.poller.Guard()
	e := w.poller.Lock()
	err := w.open("post")
	if err == nil {
		err = w.epochs.Post(e.Operations, present(origins), union(assert))
		w.poller.Tick() // the caller may have nothing to wait for
	}
	w.poller.Unlock()
	return err
}

// Wait ends the exposure that Post began (MPI_Win_wait, section 11.5.2). It blocks
// until every origin has called Complete and its operations have been applied. If
// ctx ends first, the window stays exposed: the error names an origin that has not
// completed, and Wait is to be called again. Classes: ErrRMASync without Post,
// ErrWin, ErrTimeout, ErrProcFailed if an origin died or left without completing.
func (w *Win) Wait(ctx context.Context) error {
	return w.report(w.run(ctx, w.epochs.Wait()))
}

// Test is Wait that does not block (MPI_Win_test, section 11.5.2): it reports
// whether the exposure is over, and then ends it. Called again and again it comes
// true, be it because an origin is found to be dead. Classes as for Wait.
func (w *Win) Test() (over bool, err error) {
	defer w.handle(&err)
	defer w.poller.Guard()
	t := w.turn()
	if err = w.open("test"); err == nil {
		over, err = w.epochs.Test(t)
	}
	w.poller.Unlock()
	return over, err
}
