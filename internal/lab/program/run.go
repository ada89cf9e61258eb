package program

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/xdprma/xdprma/window"
)

// Machine carries out one rank's calls. Errors are those of the library: none is
// in order.
type Machine interface {
	Begin(step int) // tells of the step that comes
	Barrier() error
	Fence(win int, assert window.Assert) error
	Post(win int, group []int, assert window.Assert) error
	Start(win int, group []int, assert window.Assert) error
	Complete(win int) error
	Wait(win int, testing bool) error // by test, again and again, if testing
	Lock(win, target int, exclusive bool, assert window.Assert) error
	Unlock(win, target int) error
	LockAll(win int, assert window.Assert) error
	UnlockAll(win int) error
	Flush(win, target int, local bool) error // target may be Every
	Sync(win int) error
	Notify(win, target, counter int) error
	WaitNotified(win, counter int, atLeast uint64) (number uint64, err error)
	Memory(win int) []byte // of this rank

	// Issue begins a call. data and compare may be changed once it returns; result
	// must be left alone until a call that completes it, or wait, which is set if
	// c.Requested.
	Issue(c *Call, data, compare, result []byte) (wait func() error, err error)

	// Send and Recv begin one end of a message. data and into must be left alone until
	// wait returns, which is called at once unless t.Requested.
	Send(t *Talk, data []byte) (wait func() error, err error)
	Recv(t *Talk, into []byte) (wait func() (Status, error), err error)
	Collective(t *Talk, data, into []byte) error
}

// Record is what a rank saw that the model does not predict: the words that a call
// fetched, or that Check found in place of words that are swapped.
type Record struct {
	Step    int
	Compare uint64   // of compare_and_swap
	Values  []uint64 // what was there
}

// Run carries out a rank's part of a program. It returns what Judge needs, and the
// first thing that is not as the model says.
func Run(p *Program, rank int, m Machine) ([]Record, error) {
	r := &runner{p: p, rank: rank, m: m, seen: map[int]uint64{}, read: map[int][]byte{}}
	for i := range p.Scripts[rank] {
		s := &p.Scripts[rank][i]
		m.Begin(i)
		if err := r.step(i, s); err != nil {
			return r.records, fmt.Errorf("program %d, rank %d, step %d: %v: %w", p.Seed, rank, i, s, err)
		}
	}
	return r.records, nil
}

// runner is a rank at work.
type runner struct {
	p       *Program
	rank    int
	m       Machine
	flights []flight
	waits   map[int]func() error
	seen    map[int]uint64 // of swapped words, by their number in Program.Shared
	read    map[int][]byte // of guarded words, by step
	records []Record
}

// flight is a call whose result has not come.
type flight struct {
	step    int
	call    *Call
	compare []byte
	result  []byte
}

func (r *runner) step(i int, s *Step) error {
	switch s.Code {
	case Barrier:
		return r.m.Barrier()
	case Fence:
		return r.completing(r.m.Fence(s.Win, s.Assert), s.Win, Every)
	case Post:
		return r.m.Post(s.Win, s.Group, s.Assert)
	case Start:
		return r.m.Start(s.Win, s.Group, s.Assert)
	case Complete:
		return r.completing(r.m.Complete(s.Win), s.Win, Every)
	case Wait:
		return r.m.Wait(s.Win, s.Testing)
	case Lock:
		return r.m.Lock(s.Win, s.Target, s.Exclusive, s.Assert)
	case Unlock:
		return r.completing(r.m.Unlock(s.Win, s.Target), s.Win, s.Target)
	case LockAll:
		return r.m.LockAll(s.Win, s.Assert)
	case UnlockAll:
		return r.completing(r.m.UnlockAll(s.Win), s.Win, Every)
	case Flush:
		return r.completing(r.m.Flush(s.Win, s.Target, s.Local), s.Win, s.Target)
	case Sync:
		return r.m.Sync(s.Win)
	case Notify:
		return r.m.Notify(s.Win, s.Target, s.Counter)
	case WaitNotified:
		n, err := r.m.WaitNotified(s.Win, s.Counter, s.Number)
		if err == nil && n != s.Number { // others come later
			err = fmt.Errorf("counter %d of window %d is %d, not %d", s.Counter, s.Win, n, s.Number)
		}
		return err
	case Transfer:
		return r.issue(i, s.Call)
	case Await:
		return r.await(s.Group)
	case Send, Recv:
		return r.message(i, s)
	case Collective:
		return r.collective(s.Talk)
	case Check:
		return r.check(i, s)
	case Store:
		copy(r.m.Memory(s.Win)[s.Offset:], s.Memory)
		return nil
	}
	return fmt.Errorf("no step has the code %d", s.Code)
}

func (r *runner) issue(i int, c *Call) error {
	f := flight{step: i, call: c, compare: bytes.Clone(c.Compare)}
	data := bytes.Clone(c.Data)
	if c.Fetches() {
		f.result = bytes.Repeat([]byte{pattern}, c.Result.Len)
	}
	if c.Shared >= 0 {
		s := &r.p.Shared[c.Shared]
		if s.Kind == Swapped {
			if _, known := r.seen[c.Shared]; !known {
				r.seen[c.Shared] = s.Init[0]
			}
			f.compare = le.AppendUint64(nil, r.seen[c.Shared])
		}
		if c.From >= 0 {
			for w := 0; w < len(data); w += 8 {
				le.PutUint64(data[w:], le.Uint64(data[w:])+le.Uint64(r.read[c.From][w:]))
			}
		}
	}
	compare := bytes.Clone(f.compare)
	wait, err := r.m.Issue(c, data, compare, f.result)
	if err != nil {
		return err
	}
	for _, b := range [][]byte{data, compare} { // they are the program's again
		for i := range b {
			b[i] ^= 0xff
		}
	}
	if f.result != nil {
		r.flights = append(r.flights, f)
	}
	if wait != nil {
		r.later(i, wait)
	}
	return nil
}

// message begins one end of a message, and waits for it unless it is requested.
func (r *runner) message(i int, s *Step) error {
	t := s.Talk
	var wait func() error
	if s.Code == Send {
		data := bytes.Clone(t.Data)
		sent, err := r.m.Send(t, data)
		if err != nil {
			return err
		}
		wait = func() error {
			err := sent()
			clear(data) // it is the program's again
			return err
		}
	} else {
		into := bytes.Repeat([]byte{pattern}, t.In.Len)
		received, err := r.m.Recv(t, into)
		if err != nil {
			return err
		}
		wait = func() error {
			got, err := received()
			if err == nil && got != t.Got {
				err = fmt.Errorf("the status is %+v, not %+v", got, t.Got)
			}
			if err != nil {
				return err
			}
			return same(into, t.Want)
		}
	}
	if !t.Requested {
		return wait()
	}
	r.later(i, wait)
	return nil
}

func (r *runner) collective(t *Talk) error {
	into := bytes.Repeat([]byte{pattern}, t.In.Len)
	data := bytes.Clone(t.Data)
	if err := r.m.Collective(t, data, into); err != nil {
		return err
	}
	if err := same(data, t.Data); err != nil {
		return fmt.Errorf("what was sent has changed: %w", err)
	}
	return same(into, t.Want)
}

// later has the request of step i waited for.
func (r *runner) later(i int, wait func() error) {
	if r.waits == nil {
		r.waits = map[int]func() error{}
	}
	r.waits[i] = wait
}

func (r *runner) await(steps []int) error {
	for _, i := range steps {
		wait := r.waits[i]
		delete(r.waits, i)
		if err := wait(); err != nil {
			return fmt.Errorf("the request of step %d: %w", i, err)
		}
		if err := r.finish(func(f *flight) bool { return f.step == i }); err != nil {
			return err
		}
	}
	return nil
}

// completing looks at the results that a synchronisation call has completed.
func (r *runner) completing(err error, win, target int) error {
	if err != nil {
		return err
	}
	return r.finish(func(f *flight) bool {
		return f.call.Win == win && (target == Every || f.call.Target == target)
	})
}

func (r *runner) finish(completed func(*flight) bool) (err error) {
	r.flights = slices.DeleteFunc(r.flights, func(f flight) bool {
		if err != nil || !completed(&f) {
			return false
		}
		if fault := r.look(&f); fault != nil {
			err = fmt.Errorf("the result of step %d, %v: %w", f.step, f.call, fault)
		}
		return true
	})
	return err
}

// look compares a result with the model, or records it.
func (r *runner) look(f *flight) error {
	c := f.call
	if c.Shared < 0 {
		return same(f.result, c.Want)
	}
	record := Record{Step: f.step}
	for at := 0; at < len(f.result); at += 8 {
		record.Values = append(record.Values, le.Uint64(f.result[at:]))
	}
	switch {
	case r.p.Shared[c.Shared].Kind == Guarded:
		r.read[f.step] = f.result
	case c.Code == CompareAndSwap:
		record.Compare = le.Uint64(f.compare)
		r.seen[c.Shared] = record.Values[0]
		if record.Values[0] == record.Compare {
			r.seen[c.Shared] = le.Uint64(c.Data)
		}
	}
	r.records = append(r.records, record)
	return nil
}

func (r *runner) check(i int, s *Step) error {
	want := bytes.Clone(s.Memory)
	got := r.m.Memory(s.Win)
	record := Record{Step: i}
	for _, n := range s.Shared {
		at := r.p.Shared[n].Offset
		record.Values = append(record.Values, le.Uint64(got[at:]))
		copy(want[at:at+8], got[at:])
	}
	if len(s.Shared) > 0 {
		r.records = append(r.records, record)
	}
	return same(got[:len(want)], want)
}

func same(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	wrong, first := 0, -1
	for i := range want {
		if got[i] != want[i] {
			if wrong++; first < 0 {
				first = i
			}
		}
	}
	end := min(first+16, len(want))
	return fmt.Errorf("%d of %d bytes are wrong, from byte %d on: % x, not % x", wrong, len(want), first, got[first:end], want[first:end])
}
