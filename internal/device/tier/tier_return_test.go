package tier

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/mpierr"
)

// hold has the program's runs go on until release is called, for what is to be quiesced.
func hold(tier *Tier) (release func()) {
	over := make(chan struct{})
	tier.graces = func() error {
		<-over
		return nil
	}
	return sync.OnceFunc(func() { close(over) })
}

// isGone waits until there is nothing to give back.
func (t *Tier) isGone() {
	t.mu.Lock()
	leaving := slices.Clone(t.leaving)
	t.mu.Unlock()
	for _, r := range leaving {
		<-r.back
	}
}

// takeAll takes all places for windows with an id, which have the memory of r. It returns them, and one
// more that has none.
func takeAll(t *testing.T, r region, id uint32) (taken []*Region, next *Region) {
	t.Helper()
	for next = r.Share(); next.Reserve(t.Context(), id) == nil; next = r.Share() {
		taken = append(taken, next)
	}
	return taken, next
}

// A window whose places are all taken gets one if a freed window has it still, and none if the
// others are there to stay.
func TestWindowWaitsForAPlace(t *testing.T) {
	tier, _ := openTier(t)
	release := hold(tier)
	defer release()
	r := allocate(t, tier, 8)
	defer r.close(t)
	taken, next := takeAll(t, r, 3)
	if err := next.Reserve(t.Context(), 3); len(taken) == 0 || !errors.Is(err, errNoPlace) {
		t.Errorf("beside %d others: %v", len(taken), err)
	}
	last := taken[len(taken)-1]
	last.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := next.Reserve(ctx, 3); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
	got := testenv.Start(func() error { return next.Reserve(t.Context(), 3) })
	select {
	case err := <-got:
		t.Errorf("the window does not wait for the place of one that the program may be at: %v", err)
	default:
	}
	release()
	if err := testenv.Ends(t, "Reserve", got); err != nil || next.place != last.place {
		t.Errorf("place %d, not that of the freed window, %d: %v", next.place, last.place, err)
	}
	for _, of := range append(taken, next) {
		of.Close()
	}
	tier.isGone()
}

// A wait for the place of a freed window ends with the device.
func TestWaitForAPlaceEndsWithTheDevice(t *testing.T) {
	tier, closeBoth := openTier(t)
	tier.graces = func() error { return errors.New("a test has it fail") }
	r := allocate(t, tier, 8)
	taken, next := takeAll(t, r, 3)
	taken[0].Close()
	got := testenv.Start(func() error { return next.Reserve(t.Context(), 3) })
	if err := closeBoth(); err != nil {
		t.Fatal(err)
	}
	if err := testenv.Ends(t, "Reserve", got); mpierr.ClassOf(err) != mpierr.Closed {
		t.Error(err)
	}
	r.close(t)
}

// Windows of several goroutines come and go without a pause. All have memory and a place, though that of
// those before comes back later.
func TestWindowsComeAndGo(t *testing.T) {
	tier, _ := openTier(t)
	before := descriptors(t)
	const makers = 3
	var all sync.WaitGroup
	for maker := range uint32(makers) {
		all.Go(func() {
			for i := range uint32(express.Chunks) {
				if err := tier.comeAndGo(t.Context(), 2*(makers*i+maker)); err != nil {
					t.Errorf("window %d of %d: %v", i, maker, err)
					return
				}
			}
		})
	}
	all.Wait()
	tier.isGone()
	if after := descriptors(t); !tier.idle() || after != before {
		t.Errorf("%d descriptors and mappings, %d before, or something is not given back", after, before)
	}
}

// comeAndGo makes and frees a window, and another one in the same memory, which has the next id.
func (t *Tier) comeAndGo(ctx context.Context, id uint32) error {
	file, err := t.Allocate(ctx, 8)
	if err != nil {
		return err
	}
	r, err := t.Reach(ctx, file)
	if err = errors.Join(err, unix.Close(file)); err != nil {
		return err
	}
	for i, of := range []*Region{r, r.Share()} {
		w := express.Window{ID: id + uint32(i), Size: 8}
		if err := of.Reserve(ctx, w.ID); err != nil {
			return err
		}
		of.Expose(w, r)
		defer of.Close()
		defer of.Retract()
	}
	return nil
}

// One wait in the kernel serves all that came before it began.
func TestQuiescedTogether(t *testing.T) {
	tier, _ := openTier(t)
	var waits atomic.Int32
	tier.graces = func() error {
		waits.Add(1)
		return nil
	}
	for range waitsInKernel {
		tier.gate <- struct{}{} // so that the wait does not begin
	}
	var quiesced sync.WaitGroup
	quiesced.Add(100)
	for range 100 {
		tier.Quiesce(quiesced.Done)
	}
	for range waitsInKernel {
		<-tier.gate
	}
	quiesced.Wait()
	if n := waits.Load(); n != 1 {
		t.Errorf("%d waits", n)
	}
}

// A wait for what freed windows give back goes on for windows that took it first, and are freed in turn; and
// looks again if something came back meanwhile.
func TestWaitGoesOnWhileWindowsAreFreed(t *testing.T) {
	tier := &Tier{ended: make(chan struct{})}
	free := func() *Region {
		r := (&chunk{tier: tier}).region()
		tier.leaving = append(tier.leaving, r)
		return r
	}
	lacking := errors.New("taken")
	tries, first := 0, free()
	var second *Region
	err := tier.insist(t.Context(), func() error {
		switch tries++; tries {
		case 1:
			first.vacate() // and another window takes it
		case 2:
			second = free()
			go second.vacate()
		case 3:
			free().vacate()
		case 4:
			return nil
		}
		return lacking
	})
	if err != nil || tries != 4 {
		t.Errorf("%v after %d tries", err, tries)
	}
	if err := tier.insist(t.Context(), func() error { return lacking }); err != lacking {
		t.Errorf("%v where nothing comes back", err)
	}
}
