package link

// KeepsFormer reports whether the frames from s have a former key still.
func (s *Session) KeepsFormer() bool { return s.guard.FormerUntil() != 0 }
