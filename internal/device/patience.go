package device

// patience says how long to poll a device that is quiet, before sleeping on it. It learns how
// long it usually is quiet before a frame comes. It has no clock; times are in nanoseconds.
type patience struct {
	least int64 // whatever it has learned
	most  int64 // the same
	usual int64 // a mean of how long it was quiet lately, with nothing counted for more than most
}

// newPatience returns that of a machine on which it takes wake to wake a thread. A frame that finds
// its rank asleep is late by that, so polling for as long costs no more than twice the
// best choice. For twice as long it also spans the waking of the peer, and so two ranks that
// wait for each other get out of a state in which each finds the other asleep.
func newPatience(wake, most int64) patience {
	return patience{least: min(2*wake, most), most: most}
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
