package device

import (
	"sync"
	"testing"
)

func TestPathTable(t *testing.T) {
	var table pathTable[int]
	a, b := 7, 8
	if id := table.intern(&a, 2); id != 0 || table.intern(&b, 2) != 1 || table.intern(&a, 2) != id {
		t.Error("paths are not numbered in order, or not known again")
	}
	c := 9
	if id := table.intern(&c, 2); id != NoPath {
		t.Errorf("a third path is %d beyond the limit", id)
	}
	if id := table.intern(&c, 3); id != 2 || *table.get(2) != 9 || *table.get(0) != 7 {
		t.Errorf("path %d, or a wrong one", id)
	}
	if n := testing.AllocsPerRun(100, func() { table.intern(&b, 2); table.get(1) }); n != 0 {
		t.Errorf("%v allocations for a known path", n)
	}
	for _, id := range []PathID{NoPath, 3} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("path %d: no panic", id)
				}
			}()
			table.get(id)
		}()
	}
}

func TestPathTableConcurrently(t *testing.T) {
	const paths, readers = 2000, 4
	var table pathTable[int]
	zero := 0
	table.intern(&zero, paths)
	var wait sync.WaitGroup
	for range readers {
		wait.Go(func() {
			for i := range paths {
				id := table.intern(&i, paths)
				if got := *table.get(id); got != i {
					t.Errorf("path %d is %d, want %d", id, got, i)
					return
				}
			}
		})
	}
	wait.Wait()
}
