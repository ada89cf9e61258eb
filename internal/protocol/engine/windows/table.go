package windows

import (
	"fmt"

	"github.com/xdprma/xdprma/mpierr"
)

// Table finds the windows of a process by id. The zero value is empty.
type Table struct {
	byID   map[uint32]*Window
	recent *Window // the one found last: most programs use one at a time
}

// Add enters w under its id; Arg if that id is taken.
func (t *Table) Add(w *Window) error {
	if t.byID[w.id] != nil {
		return mpierr.New("window create", mpierr.Arg, mpierr.NoRank, "window id %d is in use", w.id)
	}
	if t.byID == nil {
		t.byID = make(map[uint32]*Window)
	}
	t.byID[w.id] = w
	return nil
}

// Remove takes the window with that id out, if there is one.
func (t *Table) Remove(id uint32) {
	delete(t.byID, id)
	t.recent = nil
}

// Lookup returns the window with that id, nil if there is none.
func (t *Table) Lookup(id uint32) *Window {
	if w := t.recent; w != nil && w.id == id {
		return w
	}
	w := t.byID[id]
	if w != nil {
		t.recent = w
	}
	return w
}

// Name returns the name of the window with that id, the id in digits if it has none.
func (t *Table) Name(id uint32) string {
	if w := t.byID[id]; w != nil && w.name != "" {
		return w.name
	}
	return fmt.Sprint(id)
}

// Title is Window.Title of the window with that id, which may be gone.
func (t *Table) Title(id uint32) string {
	if w := t.byID[id]; w != nil {
		return w.Title()
	}
	return fmt.Sprintf("window %d", id)
}

// All calls f with every window, in no particular order.
func (t *Table) All(f func(w *Window)) {
	for _, w := range t.byID {
		f(w)
	}
}
