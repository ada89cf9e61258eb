package engine

// Isolate fails the sessions with all ranks: this process reaches none any more, for the
// reason why. The device refuses sessions that would begin later.
func (e *Engine) Isolate(why error) {
	for rank := range e.cfg.Size { // not the map: the order is the same each time
		if s := e.Session(rank); s != nil {
			s.Fail(why)
		}
	}
}
