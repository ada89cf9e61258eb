package rma_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

func TestWindowAttributes(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	j.each(func(n *rma.Node) error {
		w, err := rma.Allocate(j.ctx, n.World(), 24, 8, rma.Info{"accumulate_ordering": "none", "unknown": "key"})
		if err != nil {
			return err
		}
		if w.Size() != 24 || w.DispUnit() != 8 || w.Flavor() != rma.FlavorAllocate || w.Model() != rma.ModelUnified || w.Comm() != n.World() || w.Group().Compare(n.World().Group()) != comm.Identical {
			return fmt.Errorf("size %d, unit %d, flavour %v, model %v", w.Size(), w.DispUnit(), w.Flavor(), w.Model())
		}
		if got := w.Info()["accumulate_ordering"]; got != "none" {
			return fmt.Errorf("accumulate_ordering is %q", got)
		}
		c, err := rma.Create(j.ctx, n.World(), make([]byte, 5), 1, nil)
		if err != nil {
			return err
		}
		if c.Size() != 5 || c.Flavor() != rma.FlavorCreate {
			return fmt.Errorf("created: size %d, flavour %v", c.Size(), c.Flavor())
		}
		return errors.Join(c.Free(j.ctx), w.Free(j.ctx))
	})
}

// TestWindowRefused lets one rank pass something wrong; the call fails at all
// ranks with the same class, and the next one works.
func TestWindowRefused(t *testing.T) {
	j := newJob(t, 3, rma.Limits{})
	for _, c := range []struct {
		name       string
		size, unit int
		info       rma.Info
		class      rma.Class
	}{
		{"negative size", -1, 1, nil, rma.ErrSize},
		{"no unit", 8, 0, nil, rma.ErrDisp},
		{"unit too large", 8, 1 << 31, nil, rma.ErrDisp},
		{"negative unit", 8, -8, nil, rma.ErrDisp},
		{"too much memory", 1 << 62, 1, nil, rma.ErrNoMem},
		{"info value", 8, 1, rma.Info{"no_locks": "perhaps"}, rma.ErrArg},
		{"same size", 9, 1, rma.Info{"same_size": "true"}, rma.ErrSize},
		{"same unit", 8, 2, rma.Info{"same_disp_unit": "true"}, rma.ErrDisp},
	} {
		for rank, err := range j.outcomes(func(n *rma.Node) error {
			size, unit, info := 8, 1, rma.Info(nil)
			if n.Rank() == 1 {
				size, unit, info = c.size, c.unit, c.info
			}
			_, err := rma.Allocate(j.ctx, n.World(), size, unit, info)
			return err
		}) {
			if !errors.Is(err, c.class) {
				t.Errorf("%s: rank %d got %v, want class %q", c.name, rank, err, error(c.class))
			}
		}
	}
	wins := j.windows(8, 8)
	j.each(func(n *rma.Node) error { return wins[n.Rank()].Free(j.ctx) })
}

// TestManyWindows has several windows open at once, and frees them in another
// order than they were made in.
func TestManyWindows(t *testing.T) {
	const windows = 8
	j := newJob(t, 3, rma.Limits{})
	var all [windows][]*rma.Win
	for i := range all {
		all[i] = j.windows(8*(i+1), 8)
	}
	j.each(func(n *rma.Node) error {
		var err error
		next := (n.Rank() + 1) % n.Size()
		for i := range all {
			v := int64(10*n.Rank() + i)
			w := all[i][n.Rank()]
			err = errors.Join(err, w.Lock(j.ctx, rma.LockExclusive, next, 0), w.Put(buffer.Value(&v), next, rma.At(int64(i))))
		}
		for i := range all {
			err = errors.Join(err, all[i][n.Rank()].Unlock(j.ctx, next))
		}
		return errors.Join(err, n.World().Barrier(j.ctx))
	})
	j.each(func(n *rma.Node) error {
		last := (n.Rank() + n.Size() - 1) % n.Size()
		for k := range all {
			i := k * 3 % windows
			w := all[i][n.Rank()]
			if got := rma.Slice[int64](w.Memory())[i]; got != int64(10*last+i) {
				return fmt.Errorf("window %d holds %d, want %d", i, got, 10*last+i)
			}
			if err := w.Free(j.ctx); err != nil {
				return err
			}
		}
		return nil
	})
}
