package seat

import (
	"fmt"
	"strings"
	"testing"
)

// check returns what is wrong with m in itself, or if nothing happens any more unless
// the world outside moves.
func check(m *model, quiet bool) string {
	drivers, beds := 0, 0
	for _, a := range m.actors() {
		if a.at >= polls && a.at <= leaves {
			drivers++
		}
		if a.at >= dozes && a.at <= stills {
			beds++
		}
	}
	if m.background.at >= dozes && m.background.at <= stills {
		drivers-- // it sleeps without the seat
	}
	switch {
	case drivers > 1:
		return "two drive"
	case beds > 1:
		return "two sleep on the device"
	case m.closer.at == gone && m.state.Inside() > 0:
		return "a caller is inside, and the device is closed"
	case !quiet:
		return ""
	case m.state.Closed():
		return checkClosed(m)
	}
	waiting, sleeper := false, m.background.at == sleeps
	if sleeper && m.frame {
		return "an answer is there, and the background goroutine sleeps"
	}
	for i := range m.callers {
		c := &m.callers[i]
		switch {
		case c.at == idle:
			continue
		case c.met:
			return "a caller waits though its condition is met"
		case c.ended:
			return "a caller waits though its context has ended"
		}
		if c.at == sleeps && m.frame {
			return "an answer is there, and a caller sleeps"
		}
		waiting = true
		sleeper = sleeper || c.at == sleeps
	}
	switch {
	case waiting && m.state&callerDrives == 0:
		return "a caller waits, and none drives"
	case !sleeper && (m.background.at != naps1 || waiting):
		return "nobody would notice a frame or a deadline"
	}
	return ""
}

func checkClosed(m *model) string {
	for _, c := range m.callers {
		if c.at != idle {
			return "a caller waits though the poller is closed"
		}
	}
	if m.background.at != gone || m.closer.at != gone {
		return "Close does not end"
	}
	return ""
}

func (m *model) actors() [4]*actor {
	return [4]*actor{&m.callers[0], &m.callers[1], &m.background, &m.outsider}
}

// explore goes through all states that rules allow, and returns how many there are and
// the first fault with the way to it.
func explore(r rules) (states int, fault string) {
	x := &explorer{rules: r}
	known := map[model]int32{{}: 0}
	all, from := []model{{}}, []int32{-1}
	var back [][2]int32 // internal steps: to, from
	var quiet []int32
	way := func(i int32) (text string) {
		for ; i >= 0; i = from[i] {
			text = fmt.Sprintf("%+v\n%s", all[i], text)
		}
		return text
	}
	for i := int32(0); int(i) < len(all); i++ {
		rests := true
		m := all[i]
		for _, s := range x.all(m) {
			j, old := known[s.to]
			if !old {
				j = int32(len(all))
				known[s.to] = j
				all, from = append(all, s.to), append(from, i)
			}
			if !s.external && j != i {
				rests = false
				back = append(back, [2]int32{j, i})
			}
		}
		if x.fault == "" {
			x.fault = check(&m, rests)
		}
		if x.fault != "" {
			return len(all), x.fault + "\n" + way(i)
		}
		if rests {
			quiet = append(quiet, i)
		}
	}
	if i := stuck(len(all), back, quiet); i >= 0 {
		return len(all), "never comes to rest\n" + way(i)
	}
	return len(all), ""
}

// stuck returns a state from which no internal steps lead to one of quiet, or -1.
func stuck(n int, back [][2]int32, quiet []int32) int32 {
	start := make([]int32, n+2) // of each state's predecessors
	for _, e := range back {
		start[e[0]+2]++
	}
	for i := range n {
		start[i+2] += start[i+1]
	}
	before := make([]int32, len(back))
	for _, e := range back {
		before[start[e[0]+1]] = e[1]
		start[e[0]+1]++
	}
	reached := make([]bool, n)
	for _, i := range quiet {
		reached[i] = true
	}
	for ; len(quiet) > 0; quiet = quiet[1:] {
		for _, j := range before[start[quiet[0]]:start[quiet[0]+1]] {
			if !reached[j] {
				reached[j] = true
				quiet = append(quiet, j)
			}
		}
	}
	for i, ok := range reached {
		if !ok {
			return int32(i)
		}
	}
	return -1
}

// The worlds that are explored: one with everything would be too large.
var worlds = map[string]rules{
	"contexts end":              {contexts: true},
	"an outsider meets, drives": {outsider: true},
	"Close":                     {closes: true},
	"a program answers":         {program: true},
}

// In every interleaving of two callers and the background goroutine, at most one drives
// and at most one sleeps on the device; a frame or a deadline finds somebody; a caller
// whose condition is met or whose context has ended returns; and so do all after Close.
func TestNoWakeUpIsLost(t *testing.T) {
	for name, w := range worlds {
		t.Run(name, func(t *testing.T) {
			n, fault := explore(soundRules().in(w))
			if fault != "" {
				t.Fatal(fault)
			}
			t.Logf("%d states", n)
		})
	}
}

// in returns the rules for a world.
func (r rules) in(w rules) rules {
	r.contexts, r.outsider, r.closes, r.program = w.contexts, w.outsider, w.closes, w.program
	return r
}

// without makes the machine forget a favour that an event orders.
func without(favour Order, at Event) func(*rules) {
	return instead(at, func(_, to State, o Order) (State, Order) { return to, o &^ favour })
}

// instead changes what follows from an event.
func instead(at Event, f func(from, to State, o Order) (State, Order)) func(*rules) {
	return func(r *rules) {
		r.on = func(s State, e Event) (State, Order) {
			to, o := s.On(e)
			if e == at {
				return f(s, to, o)
			}
			return to, o
		}
	}
}

// Each mistake that the machine, or the poller around it, could have is found.
func TestMistakesAreFound(t *testing.T) {
	for _, mistake := range []struct {
		name  string
		make  func(*rules)
		world string
		want  string
	}{
		{"a caller leaves the seat to nobody", without(Pass, Leaves), "contexts end", "a caller waits, and none drives"},
		{"a caller that gives up keeps the seat from others", without(Pass, Goes), "contexts end", "a caller waits, and none drives"},
		{"the background goroutine leaves the seat to nobody", without(Pass, Yields), "contexts end", "a caller waits, and none drives"},
		{"a caller that slept for long leaves the background goroutine asleep", without(Nudge, Leaves), "contexts end", "nobody would notice"},
		{"Close leaves the background goroutine asleep", without(Nudge, Closes), "Close", "Close does not end"},
		{"a caller blocks without a look at the seat", instead(Parks, func(_, to State, _ Order) (State, Order) {
			return to, Block
		}), "contexts end", "a caller waits, and none drives"},
		{"a caller that is woken blocks again", instead(Unparks, func(from, _ State, _ Order) (State, Order) {
			return from - oneParked, Park
		}), "contexts end", "never comes to rest"},
		{"a caller takes the seat from the background goroutine", instead(Claimed, func(from, to State, o Order) (State, Order) {
			if from.BackgroundDrives() {
				return from&^backgroundDrives | callerDrives, Drive
			}
			return to, o
		}), "contexts end", "panics"},
		{"the background goroutine takes the seat from a caller", instead(LooksCalm, func(from, to State, o Order) (State, Order) {
			if from&callerDrives != 0 && from&callerInBed == 0 {
				return from&^(naps|backgroundInBed|callerDrives) | backgroundDrives, Drive
			}
			return to, o
		}), "contexts end", "two drive"},
		{"the background goroutine sleeps with the seat", instead(Quiets, func(from, to State, o Order) (State, Order) {
			if o == Sleep {
				return to | backgroundDrives, o
			}
			return to, o
		}), "contexts end", "panics"},
		{"the background goroutine sleeps though callers are parked", instead(Quiets, func(from, to State, _ Order) (State, Order) {
			return from&^(backgroundDrives|wanted) | backgroundInBed, Sleep
		}), "contexts end", "a caller waits, and none drives"},
		{"two sleep on the device", instead(Tires, func(from, _ State, _ Order) (State, Order) {
			return from&^backgroundInBed | callerInBed, Sleep
		}), "contexts end", "two sleep"},
		{"the background goroutine naps for long while a caller polls", instead(LooksBusy, func(_, to State, o Order) (State, Order) {
			if o == Nap {
				return to&^napsShort | napsLong, LongNap
			}
			return to, o
		}), "contexts end", "nobody would notice"},
		{"the seat remembers the sleep of who has left", instead(Leaves, func(from, to State, o Order) (State, Order) {
			return to | from&retired, o
		}), "contexts end", "nobody would notice"},
		{"the bed stays made for who has left it", instead(Rises, func(from, to State, o Order) (State, Order) {
			return to | callerInBed, o
		}), "contexts end", "panics"},
		{"the background goroutine does not leave the bed", instead(LooksBusy, func(from, to State, o Order) (State, Order) {
			return to | from&backgroundInBed, o
		}), "contexts end", "never comes to rest"},
		{"callers enter after Close", instead(Enters, func(from, _ State, _ Order) (State, Order) {
			return from + oneInside, Go
		}), "Close", "inside, and the device is closed"},
		{"a wake before the sleep is forgotten", func(r *rules) {
			r.liesDown = func(Rest) (Rest, bool) { return asleep, true }
		}, "an outsider meets, drives", "its condition is met"},
		{"a wake does not reach the kernel", func(r *rules) {
			r.wakes = func(Rest) (Rest, bool) { return woken, false }
		}, "an outsider meets, drives", "its condition is met"},
		{"a caller registers to be woken before it has the bed", func(r *rules) { r.registersFirst = true },
			"an outsider meets, drives", "its condition is met"},
		{"who goes to sleep looks for an answer before it rings for one", func(r *rules) { r.glancesFirst = true },
			"a program answers", "an answer is there"},
		{"the program looks at the bell before the answer can be seen", func(r *rules) { r.asksFirst = true },
			"a program answers", "an answer is there"},
	} {
		t.Run(mistake.name, func(t *testing.T) {
			t.Parallel()
			r := soundRules().in(worlds[mistake.world])
			mistake.make(&r)
			if _, fault := explored(r); !strings.Contains(fault, mistake.want) {
				t.Errorf("found %.200q, want %q", fault, mistake.want)
			}
		})
	}
}

// explored is explore for rules that may lead where the machine panics.
func explored(r rules) (states int, fault string) {
	defer func() {
		if why := recover(); why != nil {
			fault = fmt.Sprint("panics: ", why)
		}
	}()
	return explore(r)
}
