package seat

// The model has two callers that wait again and again, the background goroutine, an
// outsider that uses the engine without waiting, and Close. Each step of it is one atomic
// step of the poller: a change of the State or the Rest, a section under the engine's
// lock, or a system call. All are compared by value, so a set of them is a map.
type model struct {
	state      State
	rest       Rest
	readable   bool // the eventfd
	frame      bool // one is in the device
	bell       bool // the word by which a sleeper has the program wake it
	rung       bool // the program has woken who was in the kernel
	nudged     bool // the channel that ends a nap is full
	latest     int8 // the caller that registered last, which is first in the list
	callers    [2]actor
	background actor
	outsider   actor
	closer     actor
	program    actor
}

// actor is where a goroutine is.
type actor struct {
	at    place
	owes  Order // favours, to be done first
	saw   bool  // the eventfd readable, when its sleep ended
	met   bool  // its condition is
	ended bool  // its context is
	in    list
	token bool // its channel is full
}

// list is where a caller is registered.
type list int8

const (
	nowhere list = iota
	parked
	sleeping
)

// place is a point in the program of an actor.
type place int8

const (
	idle     place = iota
	waits          // a caller, inside
	claims         //
	parks          // is to register
	blocks         // has registered, is to report it
	blocked        //
	wakes          // is to take itself off the list
	returns        // from the list, its condition met or its context ended
	retries        // from the list
	polls          //
	takes          // has frames, or a deadline is due
	tired          // there was nothing
	beds           // has the bed, is to register
	dozes          // is to ring for the program
	glances        // is to look whether it has an answer by now
	lies           // is to lie down
	sleeps         // in the kernel
	up             // has left the kernel
	drains         // is to reset the eventfd
	stills         // is to ring no more
	unlinks        // is to take itself off the list
	rises          // is to leave the bed, its condition not met
	risesMet       //
	leaves         //
	exits          //
	rouses         // is to call Wake
	writes         // is to write the eventfd
	looks          // the background goroutine
	naps1          // briefly
	naps2          // for longer
	yields         //
	enters         // the outsider
	turns          //
	loops          // Close
	gone           //
	asks           // the program has made room for an answer, and is to look at the bell
	submits        // has looked
)

// rules are what a model goes by: those of the package, or broken ones.
type rules struct {
	on             func(State, Event) (State, Order)
	liesDown       func(Rest) (Rest, bool)
	wakes          func(Rest) (Rest, bool)
	registersFirst bool // who wants to sleep registers before it has the bed
	glancesFirst   bool // who wants to sleep looks for an answer before it rings
	asksFirst      bool // the program looks at the bell before it makes room
	closes         bool // there is a Close
	outsider       bool // there is one
	program        bool // frames are answers, which a program hands over
	contexts       bool // contexts end
}

func soundRules() rules {
	return rules{on: State.On, liesDown: Rest.LiesDown, wakes: Rest.Wakes}
}

// step is what can come next.
type step struct {
	to       model
	external bool // nothing may count on it
}

// explorer collects the steps from one state.
type explorer struct {
	rules
	from  model
	steps []step
	fault string
}

// add adds what f makes of the present state.
func (x *explorer) add(external bool, f func(m *model)) {
	m := x.from
	f(&m)
	m.forget()
	x.steps = append(x.steps, step{m, external})
}

// forget clears what makes no difference any more: which caller is which, too.
func (m *model) forget() {
	for i := range m.callers {
		switch c := &m.callers[i]; c.at {
		case idle:
			*c = actor{owes: c.owes}
		case returns, exits, leaves, risesMet:
			c.met, c.ended = true, false
		}
	}
	if m.callers[0].code() > m.callers[1].code() {
		m.callers[0], m.callers[1], m.latest = m.callers[1], m.callers[0], 1-m.latest
	}
	if m.callers[0].in != parked || m.callers[1].in != parked {
		m.latest = 0
	}
}

// code is another number for each different actor.
func (a *actor) code() uint32 {
	n := uint32(a.at)<<16 | uint32(a.owes)<<8 | uint32(a.in)<<4
	for i, b := range [...]bool{a.saw, a.met, a.ended, a.token} {
		if b {
			n |= 1 << i
		}
	}
	return n
}

func (x *explorer) all(m model) []step {
	x.from, x.steps = m, x.steps[:0]
	for i := range m.callers {
		x.actor(func(m *model) *actor { return &m.callers[i] }, x.caller)
	}
	x.actor(func(m *model) *actor { return &m.background }, x.backgroundSteps)
	if x.outsider {
		x.actor(func(m *model) *actor { return &m.outsider }, x.outsiderSteps)
	}
	if x.closes {
		x.actor(func(m *model) *actor { return &m.closer }, x.closerSteps)
	}
	switch {
	case x.program:
		x.actor(func(m *model) *actor { return &m.program }, x.programSteps)
	case !m.frame:
		x.add(true, func(m *model) { m.frame = true })
	}
	return x.steps
}

// self finds an actor in a model.
type self func(m *model) *actor

// actor adds the steps of one actor: first what it owes to others.
func (x *explorer) actor(me self, program func(self, actor)) {
	switch a := *me(&x.from); {
	case a.owes&Pass != 0:
		x.add(false, func(m *model) {
			me(m).owes &^= Pass
			for _, i := range [2]int8{m.latest, 1 - m.latest} {
				if m.callers[i].in == parked {
					m.callers[i].token = true
					break
				}
			}
		})
	case a.owes&Nudge != 0:
		x.add(false, func(m *model) { me(m).owes &^= Nudge; m.nudged = true })
	default:
		program(me, a)
	}
}

// report tells the machine of e, and puts the actor where the order sends it.
func (x *explorer) report(me self, e Event, places map[Order]place) {
	x.add(false, func(m *model) {
		var o Order
		m.state, o = x.on(m.state, e)
		to, known := places[o.Task()]
		if !known {
			x.fault = "an order that the actor does not know"
		}
		me(m).at, me(m).owes = to, o&^o.Task()
	})
}

// The places to which orders send a caller that waits, the background goroutine, and the
// outsider.
var (
	ofCaller = map[Order]place{Done: idle, Drive: polls, Claim: claims, Park: parks, Block: blocked, Look: wakes,
		Sleep: beds, Rouse: rouses, Go: idle}
	ofBackground = map[Order]place{Done: gone, Drive: polls, Nap: naps1, LongNap: naps2, Look: looks, Sleep: dozes}
	ofOutsider   = map[Order]place{Done: idle, Drive: polls, Go: idle}
)

func (x *explorer) caller(me self, a actor) {
	next := func(to place) { x.add(false, func(m *model) { me(m).at = to }) }
	if x.contexts && a.at != idle && !a.ended {
		x.add(true, func(m *model) { me(m).ended = true })
	}
	switch a.at {
	case idle:
		x.add(true, func(m *model) {
			var o Order
			if m.state, o = x.on(m.state, Enters); o == Go {
				*me(m) = actor{at: waits}
			}
		})
	case waits:
		x.report(me, Waits, ofCaller)
	case claims: // until the background goroutine has left, or for a time
		x.report(me, Claimed, ofCaller)
	case parks:
		if a.met {
			next(exits)
			return
		}
		x.add(false, func(m *model) { m.register(me, parked); me(m).at = blocks })
	case blocks:
		x.report(me, Parks, ofCaller)
	case blocked:
		if a.token || a.ended {
			x.add(false, func(m *model) { me(m).token = false; me(m).at = wakes })
		}
	case wakes:
		to := retries
		if a.met || a.ended {
			to = returns
		}
		x.add(false, func(m *model) { me(m).in, me(m).token, me(m).at = nowhere, false, to })
	case returns:
		x.report(me, Goes, ofCaller)
	case retries:
		x.report(me, Unparks, ofCaller)
	case exits:
		x.report(me, Exits, ofCaller)
	case leaves:
		x.report(me, Leaves, ofCaller)
	case rouses, writes:
		then := polls
		if x.registersFirst {
			then = unlinks
		}
		x.wake(me, a, then)
	case polls, takes, tired:
		x.drives(me, a)
	default:
		x.bed(me, a)
	}
}

// drives adds the steps of a caller that has the seat.
func (x *explorer) drives(me self, a actor) {
	switch a.at {
	case polls:
		x.poll(me)
		if a.ended || x.from.state.Closed() {
			x.add(false, func(m *model) { me(m).at = leaves })
		}
	case takes:
		x.take(me, func(m *model) {
			if me(m).at = polls; me(m).met {
				me(m).at = leaves
			}
		})
	case tired:
		if x.registersFirst {
			x.add(false, func(m *model) {
				if me(m).at = leaves; !me(m).met {
					m.register(me, sleeping)
					me(m).at = beds
				}
			})
			return
		}
		x.report(me, Tires, ofCaller)
		x.report(me, Retires, ofCaller)
	}
}

// bed adds the steps of a caller from Tires or Retires to Rises.
func (x *explorer) bed(me self, a actor) {
	switch a.at {
	case beds:
		switch {
		case x.registersFirst:
			x.report(me, Tires, map[Order]place{Sleep: dozes, Rouse: rouses})
			x.report(me, Retires, map[Order]place{Sleep: dozes, Rouse: rouses})
		case a.met:
			x.add(false, func(m *model) { me(m).at = risesMet })
		default:
			x.add(false, func(m *model) { m.register(me, sleeping); me(m).at = dozes })
		}
	case unlinks:
		to := rises
		switch lain := x.from.state&callerInBed != 0; {
		case a.met && lain:
			to = risesMet
		case a.met:
			to = leaves
		case !lain:
			to = polls
		}
		x.add(false, func(m *model) { me(m).in, me(m).token, me(m).at = nowhere, false, to })
	case rises:
		x.report(me, Rises, ofCaller)
	case risesMet:
		x.report(me, Rises, map[Order]place{Drive: leaves})
	default:
		x.sleep(me, a, unlinks)
	}
}

// register puts a caller at the head of the list.
func (m *model) register(me self, l list) {
	me(m).in = l
	for i := range m.callers {
		if &m.callers[i] == me(m) {
			m.latest = int8(i)
		}
	}
}

// poll adds a look at the device.
func (x *explorer) poll(me self) {
	x.add(false, func(m *model) {
		if me(m).at = tired; m.frame && m.program.at != asks && m.program.at != submits {
			m.frame, me(m).at = false, takes
		}
	})
}

// take adds what frames and deadlines can do: they meet any conditions.
func (x *explorer) take(me self, then func(m *model)) {
	x.meet(func(m *model, rouse bool) {
		if rouse {
			x.fault = "a driver finds a caller that sleeps"
		}
		then(m)
	})
}

// meet adds a section under the lock that meets any of the conditions.
func (x *explorer) meet(then func(m *model, rouse bool)) {
	for which := range 4 {
		if which&1 != 0 && !x.from.callers[0].waiting() || which&2 != 0 && !x.from.callers[1].waiting() {
			continue
		}
		x.add(false, func(m *model) {
			rouse := false
			for i := range m.callers {
				c := &m.callers[i]
				if c.met = c.met || which>>i&1 != 0; c.met && c.in != nowhere {
					rouse = rouse || c.in == sleeping
					c.in, c.token = nowhere, true
				}
			}
			then(m, rouse)
		})
	}
}

func (a *actor) waiting() bool { return a.at != idle && !a.met }

// wake adds the steps of Device.Wake.
func (x *explorer) wake(me self, a actor, then place) {
	if a.at == writes {
		x.add(false, func(m *model) { m.readable = true; me(m).at = then })
		return
	}
	x.add(false, func(m *model) {
		var write bool
		me(m).at = then
		if m.rest, write = x.wakes(m.rest); write {
			me(m).at = writes
		}
	})
}

// sleep adds the steps of Device.Sleep.
func (x *explorer) sleep(me self, a actor, then place) {
	ends := then
	switch {
	case x.program:
		ends = stills
	case a.at == dozes:
		a.at = lies
	}
	switch a.at {
	case dozes:
		x.add(false, func(m *model) {
			if me(m).at = glances; !x.glancesFirst {
				m.bell = true
			}
		})
	case glances:
		x.add(false, func(m *model) {
			if me(m).at = lies; m.frame {
				me(m).at = stills
			}
		})
	case lies:
		x.add(false, func(m *model) {
			var down bool
			m.bell = x.program
			me(m).at = ends
			if m.rest, down = x.liesDown(m.rest); down {
				me(m).at = sleeps
			}
			// The kernel looks for an answer before the thread sleeps: after the glance, but nothing has it
			// look after the bell is rung.
			if down && x.program && m.frame && !x.glancesFirst {
				me(m).at = up
			}
		})
	case sleeps:
		// Sleep is bounded; only for the end of a context does anybody rely on it.
		if m := &x.from; m.frame && !x.program || m.rung || m.readable || a.ended {
			x.add(false, func(m *model) { m.rung, me(m).saw, me(m).at = false, m.readable, up })
		}
	case up:
		x.add(false, func(m *model) {
			if m.rest, me(m).at = Awake, ends; me(m).saw {
				me(m).saw, me(m).at = false, drains
			}
		})
	case drains:
		x.add(false, func(m *model) { m.readable = false; me(m).at = ends })
	case stills:
		x.add(false, func(m *model) { m.bell, me(m).at = false, then })
	}
}

// programSteps adds those of a program that hands an answer over, as often as the last one was taken.
func (x *explorer) programSteps(me self, a actor) {
	look := func(m *model) { me(m).saw = m.bell }
	switch a.at {
	case idle:
		if x.from.frame {
			return
		}
		x.add(true, func(m *model) {
			if me(m).at = asks; x.asksFirst {
				look(m)
				me(m).at = submits
				return
			}
			m.frame = true
		})
	case asks:
		x.add(false, func(m *model) { look(m); me(m).at = submits })
	case submits:
		x.add(false, func(m *model) {
			for _, a := range m.actors() {
				m.rung = m.rung || a.at == sleeps && me(m).saw
			}
			*me(m), m.frame = actor{}, true
		})
	}
}

func (x *explorer) backgroundSteps(me self, a actor) {
	switch a.at {
	case idle, looks:
		x.report(me, LooksCalm, ofBackground)
		x.report(me, LooksBusy, ofBackground)
	case naps1, naps2:
		if x.from.nudged {
			x.add(false, func(m *model) { m.nudged = false; me(m).at = looks })
		}
		x.add(true, func(m *model) { me(m).at = looks })
	case polls:
		if x.from.state.Wanted() {
			x.report(me, Yields, ofBackground)
			return
		}
		x.poll(me)
	case takes:
		x.take(me, func(m *model) { me(m).at = polls })
	case tired:
		x.report(me, Quiets, ofBackground)
	default:
		x.sleep(me, a, looks)
	}
}

func (x *explorer) outsiderSteps(me self, a actor) {
	switch a.at {
	case idle:
		first := len(x.steps)
		x.meet(func(m *model, rouse bool) { me(m).at, me(m).saw = enters, rouse })
		for i := range x.steps[first:] {
			x.steps[first+i].external = true
		}
	case enters:
		x.add(false, func(m *model) {
			var o Order
			me(m).at = idle
			if m.state, o = x.on(m.state, Enters); o == Go {
				if me(m).at = turns; me(m).saw {
					me(m).at = rouses
				}
			}
			me(m).saw = false
		})
	case rouses, writes:
		x.wake(me, a, turns)
	case turns:
		x.report(me, Turns, ofOutsider)
		x.report(me, Exits, ofOutsider)
	case polls:
		x.poll(me)
	case takes:
		x.take(me, func(m *model) { me(m).at = tired })
	case tired:
		x.report(me, Leaves, ofOutsider)
	}
}

func (x *explorer) closerSteps(me self, a actor) {
	switch a.at {
	case idle:
		x.add(true, func(m *model) {
			var o Order
			m.state, o = x.on(m.state, Closes)
			me(m).at, me(m).owes = loops, o
		})
	case loops:
		idle := x.from.rest == woken
		for _, c := range x.from.callers {
			idle = idle && (c.in == nowhere || c.token)
		}
		switch {
		case x.from.state.Inside() == 0:
			x.add(false, func(m *model) { me(m).at, me(m).saw = rouses, true })
		case !idle: // or it would go round and round
			x.add(false, func(m *model) {
				for i := range m.callers {
					c := &m.callers[i]
					c.token = c.token || c.in != nowhere
				}
				me(m).at = rouses
			})
		}
	case rouses, writes:
		then := loops
		if a.saw {
			then = gone
		}
		x.wake(me, a, then)
	}
}
