package link

// timeline is a list of sessions in the order of times, so that one who has nothing to do but to wait
// for a time costs nothing until then. Times that are put in never decrease: the span to each is constant.
type timeline struct{ first, last *Session }

// onTimeline is the place of a session on a timeline.
type onTimeline struct {
	before, after *Session
	at            int64 // 0: it is not there
}

// The timelines.
const (
	renewal = iota // of keys of sessions at rest
	expiry         // of former keys
	numTimelines
)

// put has due return s at a time, and not before.
func (l *Link) put(which int, s *Session, at int64) {
	l.takeOff(which, s)
	t := &l.timelines[which]
	s.times[which] = onTimeline{before: t.last, at: at}
	if t.last != nil {
		t.last.times[which].after = s
	} else {
		t.first = s
	}
	t.last = s
	l.WakeBy(at)
}

// takeOff has due not return s any more.
func (l *Link) takeOff(which int, s *Session) {
	p, t := s.times[which], &l.timelines[which]
	if p.at == 0 {
		return
	}
	if p.before != nil {
		p.before.times[which].after = p.after
	} else {
		t.first = p.after
	}
	if p.after != nil {
		p.after.times[which].before = p.before
	} else {
		t.last = p.before
	}
	s.times[which] = onTimeline{}
}

// due takes off the first session whose time has come, or returns nil and sets the deadline for the next one.
func (l *Link) due(which int) *Session {
	s := l.timelines[which].first
	if s == nil {
		return nil
	}
	if at := s.times[which].at; at > l.Now {
		l.WakeBy(at)
		return nil
	}
	l.takeOff(which, s)
	return s
}
