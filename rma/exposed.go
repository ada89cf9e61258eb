package rma

// exposed is the memory of a window at this rank. The duplicates of the window have the same: the
// last of them that is freed gives it back.
type exposed struct {
	bytes  []byte       // that other ranks access; nil without
	mapped []byte       // what unmap takes away; nil for memory of the program
	unmap  func() error // nil for memory of the program

	windows int // that have it; guarded by the engine's lock
}

// leave says that a window has the memory no more. Before the memory goes, evict ends what would
// read or write it later. It is called with the engine's lock held.
func (m *exposed) leave(evict func(mem []byte)) (err error) {
	if m.windows--; m.windows > 0 {
		return nil
	}
	evict(m.mapped)
	if m.unmap != nil {
		err = m.unmap()
	}
	*m = exposed{}
	return err
}
