// Package seat decides who drives a poller: who may take frames from the device, who
// sleeps on it, and who is to be woken. It is a pure state machine. Callers of the
// poller and its background goroutine tell it of events and carry its orders out. All
// of its state is one word, so that the poller can change it by compare-and-swap, and a
// test can explore every interleaving.
package seat

import "fmt"

// State is the shared state. Its zero value is that of a new poller.
//
//   - The seat is free, or a caller or the background goroutine has it and drives.
//   - The bed is the one place to sleep on the device. A caller that sleeps there keeps
//     the seat. The background goroutine gives the seat up, so that a caller can take it
//     without waking anybody.
//   - The background goroutine naps away from the device while callers make progress. Its
//     nap is long while the caller in the seat sleeps for long.
//   - Callers that cannot drive are parked.
//   - All callers that use the device, in whatever way, are inside. Nobody enters after
//     Closes.
type State uint64

// The fields of a State.
const (
	callerDrives State = 1 << iota
	backgroundDrives
	callerInBed
	backgroundInBed
	napsShort
	napsLong
	retired // the caller in the seat has wanted to sleep for long
	wanted  // a caller waits for the background goroutine to leave the seat
	closed

	oneParked State = 1 << 16
	oneInside State = 1 << 40

	taken = callerDrives | backgroundDrives
	inBed = callerInBed | backgroundInBed
	naps  = napsShort | napsLong
)

func (s State) parked() uint64 { return uint64(s%oneInside) / uint64(oneParked) }

// Inside returns how many callers are inside.
func (s State) Inside() int { return int(s / oneInside) }

// Closed reports whether Closes has happened.
func (s State) Closed() bool { return s&closed != 0 }

// String describes the state for a message.
func (s State) String() string {
	text := fmt.Sprintf("%d inside, %d parked", s.Inside(), s.parked())
	for i, what := range [...]string{"a caller drives", "the background goroutine drives", "a caller is in bed",
		"the background goroutine is in bed", "it naps", "it naps for long", "the driver has retired", "the seat is wanted", "closed"} {
		if s>>i&1 != 0 {
			text += ", " + what
		}
	}
	return text
}

// BackgroundDrives reports whether the background goroutine has the seat.
func (s State) BackgroundDrives() bool { return s&backgroundDrives != 0 }

// Wanted reports whether the background goroutine is to leave the seat.
func (s State) Wanted() bool { return s&(wanted|closed) != 0 || s.parked() > 0 }

// Order tells whoever reported an event what to do next: one of the tasks, with any of
// the favours.
type Order uint8

// The tasks. Each says which events can end it.
const (
	Go      Order = iota // go on with whatever it was
	Refuse               // the poller is closed: keep away from the device
	Done                 // the caller is not inside any more, the background goroutine ends
	Drive                // with the seat. A caller: Tires, Retires, Leaves. The background goroutine: Quiets, Yields
	Claim                // wait briefly for the background goroutine to leave the seat: Claimed
	Park                 // register to be woken by others: Parks, or if the condition is met Exits
	Block                // until woken, then register no longer: Unparks, Goes
	Look                 // the same, but do not block. For the background goroutine: LooksCalm, LooksBusy
	Sleep                // on the device. A caller, which registers to be woken first: Rises. The background goroutine: LooksCalm, LooksBusy
	Rouse                // wake whoever sleeps on the device, and go on driving
	Nap                  // briefly, and away from the device: LooksCalm, LooksBusy
	LongNap              // the same for longer: whoever leaves the seat ends it
)

// The favours, which are done to others.
const (
	Pass  Order = 1 << 6 // wake one parked caller, to take the seat
	Nudge Order = 1 << 7 // end the nap of the background goroutine
)

// Task returns the order without the favours.
func (o Order) Task() Order { return o &^ (Pass | Nudge) }

// Event is something that a caller or the background goroutine does.
type Event uint8

// The events of callers.
const (
	Enters  Event = iota // to use the device: Go, Refuse
	Exits                // and does not use it any more: Go
	Turns                // inside, wants to drive for one batch: Drive, Done
	Waits                // inside, waits for its condition: Drive, Claim, Park, Done
	Claimed              // the seat, or is out of patience: Drive, Park, Done
	Parks                // registered: Block, Look
	Unparks              // not registered any more, and its condition is not met: Drive, Park, Done
	Goes                 // not registered any more, its condition is met or it gives up: Done
	Tires                // of driving, there has been nothing for a while: Sleep, Rouse
	Retires              // the same, and it is going to sleep for long
	Rises                // from its sleep on the device: Drive
	Leaves               // the seat, its condition is met or it gives up: Done
)

// The events of the background goroutine, and of Close.
const (
	LooksCalm Event = Leaves + 1 + iota // callers have made no call for a while: Drive, Nap, LongNap, Done
	LooksBusy                           // they have: Nap, LongNap, Done
	Yields                              // the seat: Look
	Quiets                              // there has been nothing to drive for a while: Sleep, Look
	Closes                              // the poller: Go, or Done if it is closed
)

// On returns the state after e, and what whoever reports e is to do.
func (s State) On(e Event) (State, Order) {
	switch e {
	case Enters:
		if s.Closed() {
			return s, Refuse
		}
		return s + oneInside, Go
	case Exits:
		return s - oneInside, Go
	case Closes:
		if s.Closed() {
			return s, Done
		}
		return s | closed, s.nudge()
	case LooksCalm, LooksBusy, Yields, Quiets:
		return s.onBackground(e)
	}
	return s.onCaller(e)
}

func (s State) onCaller(e Event) (State, Order) {
	switch e {
	case Turns:
		if s&(taken|closed) != 0 {
			return s - oneInside, Done
		}
		return s | callerDrives, Drive
	case Waits, Claimed:
		if e == Waits && s.BackgroundDrives() && !s.Closed() {
			return s | wanted, Claim
		}
		return s.place()
	case Parks:
		if s&taken == 0 {
			return s + oneParked, Look
		}
		return s + oneParked, Block
	case Unparks:
		return (s - oneParked).place()
	case Goes:
		s -= oneParked + oneInside
		return s, Done | s.pass()
	case Tires, Retires:
		s.must(s&callerDrives != 0 && s&callerInBed == 0, e)
		if e == Retires {
			s |= retired
		}
		if s&backgroundInBed != 0 {
			return s, Rouse
		}
		return s | callerInBed, Sleep
	case Rises:
		s.must(s&callerDrives != 0 && s&callerInBed != 0, e)
		return s &^ callerInBed, Drive
	case Leaves:
		s.must(s&callerDrives != 0 && s&callerInBed == 0, e)
		order := Done
		if s&retired != 0 {
			order |= s.nudge()
		}
		s = s&^(callerDrives|retired) - oneInside
		return s, order | s.pass()
	}
	panic(fmt.Sprintf("seat: event %d does not exist", e))
}

// place is where a caller finds one that waits and is not parked.
func (s State) place() (State, Order) {
	switch {
	case s.Closed():
		s -= oneInside
		return s, Done | s.pass()
	case s&taken == 0:
		return s | callerDrives, Drive
	}
	return s, Park
}

func (s State) onBackground(e Event) (State, Order) {
	drives := e == Yields || e == Quiets
	s.must(s.BackgroundDrives() == drives, e)
	switch {
	case drives && (e == Yields || s.Wanted()):
		s &^= backgroundDrives | wanted
		return s, Look | s.pass()
	case drives:
		s.must(s&inBed == 0, e)
		return s&^backgroundDrives | backgroundInBed, Sleep
	}
	switch s &^= naps | backgroundInBed; {
	case s.Closed():
		return s, Done
	case e == LooksCalm && s&taken == 0 && s.Inside() == 0:
		return s | backgroundDrives, Drive
	case s&retired != 0:
		return s | napsLong, LongNap
	}
	return s | napsShort, Nap
}

// pass is the favour of somebody after whom the state is s: a free seat goes to a parked
// caller. Whoever is woken takes it, finds that another one has, or passes it on.
func (s State) pass() Order {
	if s&taken == 0 && s.parked() > 0 {
		return Pass
	}
	return 0
}

func (s State) nudge() Order {
	if s&naps != 0 {
		return Nudge
	}
	return 0
}

// must panics unless e is possible in the state s.
func (s State) must(possible bool, e Event) {
	if !possible {
		panic(fmt.Sprintf("seat: event %d is not possible: %v", e, s))
	}
}
