package device

// patience says how long to poll a device that is quiet, before sleeping on it. It learns how
// long it usually is quiet before a frame comes. It has no clock; times are in nanoseconds.
type patience struct {
	least int64 // poll at least so long, at most as long as most
	most  int64 // and never longer than this
	usual int64 // a mean of how long it was quiet lately, with nothing counted for more than most
}

// note learns that a frame has come when it had been quiet for so long.
func (p *patience) note(quiet int64) {
	p.usual += (max(0, min(quiet, p.most)) - p.usual) / 8
}

// spin returns how long to poll after the last frame: for twice as long as it usually is quiet,
// unless the next frame will most likely come too late.
func (p *patience) spin() int64 {
	if p.usual > p.most/4*3 {
		return p.least
	}
	return max(p.least, min(2*p.usual, p.most))
}
