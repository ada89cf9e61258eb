package poller

import "time"

// patience says how long to poll a device that is quiet, before sleeping on it. It learns how
// long it usually is quiet before a frame comes. It has no clock; times are in nanoseconds.
//
// Two ranks that both sleep may be close all the same, where waking is dear: each finds it quiet for as
// long as the other takes to wake up. So now and then it polls for longer, several times in a row, and the peer, which
// finds it quiet for less than usual, does so too. In vain that happens ever more rarely.
type patience struct {
	least   int64 // poll at least so long
	most    int64 // and no longer than this
	longest int64 // but in a trial
	wake    int64 // how long it takes to wake up, by what is known of the machine

	usual int64 // a mean of how long it was quiet lately, with nothing counted for more than most
	took  int64 // a mean of how long it took until that was noticed, with nothing counted for much more than longest
	near  int   // how often in a row it was usually quiet for no longer than it polls
	far   int   // how often it was for longer, since the last trial
	next  int   // how often it is before the next trial
	trial int   // how many times more the present trial polls for longer; 0: there is none
}

const (
	firstTrial = 16   // times that it was quiet for too long before it polls for longer
	rareTrial  = 4096 // the same, after several trials
	longTrial  = 16   // times that it polls for longer then
	shortTrial = 8    // the same, after the peer was sooner
	settled    = 64   // times near in a row after which trials are as at first
)

func newPatience(least, most, longest, wake time.Duration) patience {
	return patience{least: int64(least), most: int64(most), longest: int64(longest), wake: int64(wake), next: firstTrial}
}

// note learns that a frame was noticed when it had been quiet for so long, and whether by waking up.
// Beside others that compute there are no trials, so none is counted then.
func (p *patience) note(quiet int64, slept, beside bool) {
	noticed := min(quiet, 2*p.longest)
	sooner := noticed < p.took/4*3
	p.took += (noticed - p.took) / 8
	came := quiet
	if slept { // when it came is not known, but how long waking takes
		came -= p.wake
	}
	p.usual += (max(0, min(came, p.most)) - p.usual) / 8
	if beside {
		return
	}
	switch {
	case !p.isFar():
		p.trial = 0
		if p.near++; p.near >= settled {
			p.far, p.next = 0, firstTrial
		}
		return
	case p.trial > 0 && quiet > p.longest:
		p.trial = 0
	case p.trial > 0:
		p.trial--
	case sooner && p.far >= p.next/4:
		p.try(shortTrial, 2)
	default:
		if p.far++; p.far >= p.next {
			p.try(longTrial, 4)
		}
	}
	p.near = 0
}

// try begins a trial. The next one is rarer by a factor, unless this one shows that the peer is near.
func (p *patience) try(times, rarer int) {
	p.far, p.trial, p.next = 0, times, min(rarer*p.next, rareTrial)
}

// isFar reports whether the next frame will most likely come too late to poll for it.
func (p *patience) isFar() bool { return p.usual > p.most/4*3 }

// spin returns how long to poll after the last frame: for twice as long as it usually is quiet,
// unless the next frame will most likely come too late.
func (p *patience) spin() int64 {
	switch {
	case p.trial > 0:
		return p.longest
	case p.isFar():
		return p.least
	}
	return max(p.least, min(2*p.usual, p.most))
}

// spinBeside returns how long to poll where others compute on this processor. Polling takes it from
// them, and the kernel gives it back late to a caller that has polled for long. A caller therefore
// polls for longer than crowdSpin only if the next frame usually comes soon.
func (p *patience) spinBeside() int64 {
	beside := int64(crowdSpin)
	if 2*p.usual <= int64(crowdMost) {
		beside = max(beside, 2*p.usual)
	}
	return min(beside, p.spin())
}
