package program

import (
	"fmt"
	"strings"

	"github.com/xdprma/xdprma/window"
)

// String shows the program: its windows, and the steps of each rank.
func (p *Program) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "program %d: %d ranks\n", p.Seed, p.Ranks)
	for i := range p.Windows {
		w := &p.Windows[i]
		fmt.Fprintf(&b, "window %d: %v, sizes %d, units %d", i, w.Flavor, w.Sizes, w.Units)
		if w.Flavor == window.FlavorDynamic {
			fmt.Fprintf(&b, ", regions end at %d", w.Cuts)
		}
		b.WriteByte('\n')
	}
	for i := range p.Shared {
		s := &p.Shared[i]
		fmt.Fprintf(&b, "shared %d: %d words at byte %d of window %d of rank %d, %v\n", i, len(s.Init), s.Offset, s.Win, s.Target, s.Kind)
	}
	for r := range p.Scripts {
		fmt.Fprintf(&b, "rank %d:\n", r)
		for i := range p.Scripts[r] {
			fmt.Fprintf(&b, "%5d  %v\n", i, &p.Scripts[r][i])
		}
	}
	return b.String()
}

// String returns the kind's name.
func (k SharedKind) String() string {
	return [...]string{"counted", "flipped", "swapped", "guarded"}[k]
}

// String returns the call's name in the standard, with transfer for communication.
func (c Code) String() string {
	return [...]string{"barrier", "fence", "post", "start", "complete", "wait", "lock", "unlock", "lock_all", "unlock_all", "flush",
		"sync", "transfer", "await", "check", "store", "send", "recv", "collective", "notify", "wait_notified"}[c]
}

// String returns the call's name in the standard.
func (c CallCode) String() string {
	return [...]string{"put", "get", "accumulate", "get_accumulate", "fetch_and_op", "compare_and_swap"}[c]
}

// String returns the collective's name in the standard.
func (c CollectiveCode) String() string {
	return [...]string{"bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce"}[c]
}

// asserts returns the names of assertions.
func asserts(a window.Assert) (s string) {
	for _, n := range []struct {
		bit  window.Assert
		name string
	}{{window.ModeNoCheck, "nocheck"}, {window.ModeNoPrecede, "noprecede"}, {window.ModeNoPut, "noput"},
		{window.ModeNoStore, "nostore"}, {window.ModeNoSucceed, "nosucceed"}} {
		if a&n.bit != 0 {
			s += " " + n.name
		}
	}
	return s
}

// String shows the step.
func (s *Step) String() string {
	t := fmt.Sprintf("w%d %v", s.Win, s.Code)
	switch s.Code {
	case Barrier:
		return "barrier"
	case Await:
		return fmt.Sprintf("await the requests of steps %d", s.Group)
	case Transfer:
		return s.Call.String()
	case Send, Recv:
		return fmt.Sprintf("%v %v", s.Code, s.Talk)
	case Collective:
		return fmt.Sprintf("%v %v", s.Talk.Code, s.Talk)
	case Post, Start:
		return fmt.Sprintf("%s %d%s", t, s.Group, asserts(s.Assert))
	case Wait:
		if s.Testing {
			t += " by test"
		}
	case Lock:
		kind := "shared"
		if s.Exclusive {
			kind = "exclusive"
		}
		return fmt.Sprintf("%s %s of rank %d%s", t, kind, s.Target, asserts(s.Assert))
	case Unlock:
		return fmt.Sprintf("%s of rank %d", t, s.Target)
	case Flush:
		if s.Local {
			t += " local"
		}
		if s.Target == Every {
			return t + " all"
		}
		return fmt.Sprintf("%s at rank %d", t, s.Target)
	case Check:
		if len(s.Shared) > 0 {
			t += fmt.Sprintf(", and report shared %d", s.Shared)
		}
	case Store:
		return fmt.Sprintf("%s %d bytes at %d", t, len(s.Memory), s.Offset)
	}
	return t + asserts(s.Assert)
}

// String shows the call.
func (c *Call) String() string {
	t := fmt.Sprintf("w%d %v", c.Win, c.Code)
	if c.Requested {
		t += " with a request"
	}
	if c.Op != 0 {
		t += " " + c.Op.String()
	}
	if c.Target == Null {
		t += " at null"
	} else {
		t += fmt.Sprintf(" at rank %d byte %d", c.Target, c.Disp)
	}
	if c.At.Layout != nil {
		t += " as " + c.At.String()
	}
	if c.Reads() {
		t += ", from " + c.Origin.String()
	}
	if c.Fetches() {
		t += ", to " + c.Result.String()
	}
	if c.Shared >= 0 {
		t += fmt.Sprintf(", shared %d", c.Shared)
	}
	return t
}

// String shows the message or collective without its name.
func (t *Talk) String() string {
	s := fmt.Sprintf("rank %d", t.Peer)
	if t.Tag != 0 {
		s += fmt.Sprintf(" tag %d", t.Tag)
	}
	if t.Reversed {
		s += " reversed"
	}
	if t.Requested {
		s += " with a request"
	}
	if t.Op != 0 {
		s += " " + t.Op.String()
	}
	if t.Out.Layout != nil {
		s += ", from " + t.Out.String()
	}
	if t.In.Layout != nil {
		s += ", to " + t.In.String()
	}
	return s
}

// String shows the side.
func (s *Side) String() string { return fmt.Sprintf("%d %v", s.Count, s.Type) }
