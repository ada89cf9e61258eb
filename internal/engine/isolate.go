package engine

// Isolate fails the sessions with all ranks: this process reaches none any more, for the
// reason why. Those that begin later are the device's to refuse.
func (e *Engine) Isolate(now int64, why error) {
	e.now = now
	for rank := range e.cfg.Size { // not the map: the order is the same each time
		if s := e.byRank[rank]; s != nil {
			e.fail(s, why)
		}
	}
}
