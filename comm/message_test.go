package comm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/launch/job"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

// TestMessages sends messages around the limits of frames between all ranks of several
// communicators, themselves included.
func TestMessages(t *testing.T) {
	const size = 3
	ctx, jobs := join(t, size, userspace.Limits{})
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		back, err := j.World().Split(ctx, 0, -j.Rank())
		if err != nil {
			return err
		}
		for _, n := range []int{0, 8, 1024, 1025, 8192, 8193, 100 << 10, 1 << 20} {
			for _, c := range []*comm.Comm{j.World(), back} {
				if err := messages(ctx, c, n); err != nil {
					return fmt.Errorf("rank %d, %d bytes: %w", c.Rank(), n, err)
				}
			}
		}
		return nil
	})...); err != nil {
		t.Fatal(err)
	}
}

func messages(ctx context.Context, c *comm.Comm, n int) error {
	var sends []*comm.Request
	for to := range c.Size() {
		r, err := comm.Isend(ctx, c, text(c.Rank(), to, n), to, n%7)
		if err != nil {
			return err
		}
		sends = append(sends, r)
	}
	for from := range c.Size() {
		buf := make([]byte, n+3)
		want := comm.Status{Source: from, Tag: n % 7, Count: n}
		source, tag := from, n%7
		if from == 1 {
			tag = comm.AnyTag
		}
		found, err := c.Probe(ctx, source, tag)
		if err != nil || found != want {
			return fmt.Errorf("the probe found %v, want %v: %w", found, want, err)
		}
		if s, ok, err := c.Iprobe(source, tag); err != nil || !ok || s != want {
			return fmt.Errorf("the second probe found %v, want %v: %w", s, want, err)
		}
		got, err := comm.Recv(ctx, c, buf, source, tag)
		if err != nil || got != want {
			return fmt.Errorf("received %v, want %v: %w", got, want, err)
		}
		if !bytes.Equal(buf[:n], text(from, c.Rank(), n)) || !bytes.Equal(buf[n:], []byte{0, 0, 0}) {
			return fmt.Errorf("the message of rank %d is wrong", from)
		}
	}
	return comm.WaitAll(ctx, sends...)
}

// TestSendrecv has all ranks pass large blocks round the ring at once, both ways.
func TestSendrecv(t *testing.T) {
	const size, n = 4, 1 << 17
	ctx, jobs := join(t, size, userspace.Limits{TxFrames: 64, RxFrames: 64})
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		w := j.World()
		next, before := (w.Rank()+1)%size, (w.Rank()+size-1)%size
		for round := range 6 {
			to, from := next, before
			if round%2 == 1 {
				to, from = before, next
			}
			in := make([]int64, n)
			s, err := comm.Sendrecv(ctx, w, part(w.Rank()+round, n), to, round, in, from, comm.AnyTag)
			if err != nil {
				return err
			}
			if s != (comm.Status{Source: from, Tag: round, Count: 8 * n}) || comm.CountOf[int64](s) != n {
				return fmt.Errorf("round %d: status %v", round, s)
			}
			for i, v := range in {
				if v != value(from+round, i) {
					return fmt.Errorf("round %d: element %d is %d", round, i, v)
				}
			}
		}
		// At the ends of a line there is nobody.
		up, down := w.Rank()+1, w.Rank()-1
		if up == size {
			up = comm.ProcNull
		}
		if down < 0 {
			down = comm.ProcNull
		}
		in := []int32{-1}
		s, err := comm.Sendrecv(ctx, w, []int16{int16(w.Rank()), 0}, up, 1, in, down, 1)
		want := comm.Status{Source: down, Tag: 1, Count: 4}
		if down == comm.ProcNull {
			want = comm.Status{Source: comm.ProcNull, Tag: comm.AnyTag}
		}
		if err != nil || s != want || down >= 0 && in[0] != int32(down) || down < 0 && in[0] != -1 {
			return fmt.Errorf("at the ends: %v, %v, %w", s, in, err)
		}
		return nil
	})...); err != nil {
		t.Fatal(err)
	}
}

// TestMessageOrder has all ranks send to all at once, from several goroutines, and
// receive with and without wildcards: nothing overtakes, nothing is lost.
func TestMessageOrder(t *testing.T) {
	const size, each1, tags = 3, 300, 3
	ctx, jobs := join(t, size, userspace.Limits{TxFrames: 64, RxFrames: 64})
	seed := rand.Uint64()
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		w := j.World()
		rng := rand.New(rand.NewPCG(seed, uint64(w.Rank())))
		sent := make(chan error, tags)
		for tag := range tags { // one goroutine a tag: so the order of each tag is known
			lengths := rand.New(rand.NewPCG(seed, uint64(tag)))
			go func() {
				var pending []*comm.Request
				for i := range each1 {
					for to := range size {
						n := 8 + []int{0, 0, 100, 2000, 20_000}[lengths.IntN(5)]
						r, err := comm.Isend(ctx, w, append([]byte{byte(i), byte(i >> 8), 0, 0, 0, 0, 0, 0}, text(w.Rank(), to, n-8)...), to, tag)
						if err != nil {
							sent <- err
							return
						}
						pending = append(pending, r)
					}
				}
				sent <- comm.WaitAll(ctx, pending...)
			}()
		}
		var next [size][tags]int
		buf := make([]byte, 20_008)
		for n := range size * each1 * tags {
			source, tag := comm.AnySource, comm.AnyTag
			if rng.IntN(3) == 0 { // a rank and tag with messages left
				source, tag = rng.IntN(size), rng.IntN(tags)
				if next[source][tag] == each1 {
					source, tag = comm.AnySource, comm.AnyTag
				}
			}
			s, err := comm.Recv(ctx, w, buf, source, tag)
			if err != nil {
				return err
			}
			due := &next[s.Source][s.Tag]
			if i := int(buf[0]) | int(buf[1])<<8; i != *due || !bytes.Equal(buf[8:s.Count], text(s.Source, w.Rank(), s.Count-8)) {
				return fmt.Errorf("receive %d got message %d with tag %d of rank %d, not %d", n, i, s.Tag, s.Source, *due)
			}
			*due++
		}
		for range tags {
			if err := <-sent; err != nil {
				return err
			}
		}
		return w.Barrier(ctx)
	})...); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
}

func TestMessagesRefused(t *testing.T) {
	ctx, jobs := join(t, 1, userspace.Limits{})
	w := jobs[0].World()
	var told int
	w.SetErrhandler(func(*comm.Comm, error) { told++ })
	b := make([]byte, 4)
	request := func(r *comm.Request, err error) error {
		if err != nil {
			return err
		}
		return r.Wait(ctx)
	}
	probed := func(_ comm.Status, _ bool, err error) error { return err }
	second := func(_ comm.Status, err error) error { return err }
	refused := []struct {
		got  error
		want mpierr.Class
	}{
		{comm.Send(ctx, w, b, 1, 0), mpierr.Rank},
		{comm.Send(ctx, w, b, comm.AnySource, 0), mpierr.Rank},
		{comm.Send(ctx, w, b, 0, -1), mpierr.Tag},
		{comm.Send(ctx, w, b, 0, comm.AnyTag), mpierr.Tag},
		{comm.Send(ctx, w, b, 0, comm.MaxTag+1), mpierr.Tag},
		{request(comm.Isend(ctx, w, b, -5, 0)), mpierr.Rank},
		{second(comm.Recv(ctx, w, b, 1, 0)), mpierr.Rank},
		{second(comm.Recv(ctx, w, b, 0, -2)), mpierr.Tag},
		{request(comm.Irecv(ctx, w, b, 7, 0, nil)), mpierr.Rank},
		{second(w.Probe(ctx, 1, 0)), mpierr.Rank},
		{probed(w.Iprobe(0, -1)), mpierr.Tag},
		{second(comm.Sendrecv(ctx, w, b, 0, 0, b, 1, 0)), mpierr.Rank},
		{second(comm.Sendrecv(ctx, w, b, 0, -1, b, 0, 0)), mpierr.Tag},
	}
	for i, test := range refused {
		if !errors.Is(test.got, test.want) {
			t.Errorf("call %d: %v, want class %v", i, test.got, test.want)
		}
	}
	if told != len(refused) {
		t.Errorf("the handler was told of %d errors of %d", told, len(refused))
	}
	for i, err := range []error{
		comm.Send(ctx, w, b, comm.ProcNull, 0), request(comm.Isend(ctx, w, b, comm.ProcNull, 0)),
		second(comm.Recv(ctx, w, b, comm.ProcNull, 0)), request(comm.Irecv(ctx, w, b, comm.ProcNull, comm.AnyTag, nil)),
		second(w.Probe(ctx, comm.ProcNull, 3)), probed(w.Iprobe(comm.ProcNull, 3)), second(comm.Sendrecv(ctx, w, b, comm.ProcNull, 0, b, comm.ProcNull, 0)),
	} {
		if err != nil {
			t.Errorf("call %d to nobody: %v", i, err)
		}
	}
	if n := comm.CountOf[int64](comm.Status{Count: 12}); n != comm.Undefined {
		t.Errorf("12 bytes are %d elements of 8", n)
	}
}

// TestTruncated receives into buffers that are too short.
func TestTruncated(t *testing.T) {
	ctx, jobs := join(t, 2, userspace.Limits{})
	for _, n := range []int{10, 100_000} {
		for _, room := range []int{0, 7} {
			if err := errors.Join(each(jobs, func(j *comm.Job) error {
				w := j.World()
				if w.Rank() == 0 {
					return errors.Join(comm.Send(ctx, w, text(0, 1, n), 1, 3), comm.Send(ctx, w, text(0, 1, 5), 1, 3))
				}
				buf := make([]byte, room)
				s, err := comm.Recv(ctx, w, buf, 0, 3)
				if !errors.Is(err, mpierr.Truncate) || s != (comm.Status{Source: 0, Tag: 3, Count: n}) || !bytes.Equal(buf, text(0, 1, n)[:room]) {
					return fmt.Errorf("%v, %w: %v", s, err, buf)
				}
				buf = make([]byte, 5)
				r, err := comm.Irecv(ctx, w, buf, comm.AnySource, 3, &s)
				if err == nil {
					err = r.Wait(ctx)
				}
				if err != nil || s.Count != 5 || !bytes.Equal(buf, text(0, 1, 5)) {
					return fmt.Errorf("after it: %v, %w", s, err)
				}
				return nil
			})...); err != nil {
				t.Errorf("%d bytes in %d: %v", n, room, err)
			}
		}
	}
}

// TestMessagesCancelled gives up calls that block. The library withdraws the receives
// that they had posted: these take no message, and the callers may use their memory
// again.
func TestMessagesCancelled(t *testing.T) {
	ctx, jobs := join(t, 2, userspace.Limits{})
	const n = 300_000
	ended := make(chan bool)
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		w := j.World()
		if err := w.Barrier(ctx); err != nil { // so that a send has not to connect first
			return err
		}
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		buf, data := make([]byte, n), text(0, 1, n)
		if w.Rank() == 0 {
			if err := comm.Send(short, w, data, 1, 1); !errors.Is(err, mpierr.Timeout) || !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("a send that nobody receives: %w", err)
			}
			clear(data)
			ended <- true
			return comm.Send(ctx, w, text(0, 1, 100), 1, 2)
		}
		for _, source := range []int{0, comm.AnySource} {
			if _, err := comm.Recv(short, w, buf, source, 2); !errors.Is(err, mpierr.Timeout) {
				return fmt.Errorf("a receive without a message: %w", err)
			}
			if _, err := w.Probe(short, source, 2); !errors.Is(err, mpierr.Timeout) {
				return fmt.Errorf("a probe without a message: %w", err)
			}
		}
		if _, err := comm.Sendrecv(short, w, text(1, 1, n), 1, 3, buf, 0, 3); !errors.Is(err, mpierr.Timeout) {
			return fmt.Errorf("an exchange with nobody: %w", err)
		}
		<-ended
		s, err := comm.Recv(ctx, w, buf, comm.AnySource, 2)
		if err != nil || s.Count != 100 || !bytes.Equal(buf[:100], text(0, 1, 100)) {
			return fmt.Errorf("the message for the next receive: %v, %w", s, err)
		}
		for _, from := range []int{0, 1} {
			if s, ok, err := w.Iprobe(from, comm.AnyTag); ok || err != nil {
				return fmt.Errorf("a message of rank %d after all had been given up: %v, %w", from, s, err)
			}
		}
		return nil
	})...); err != nil {
		t.Fatal(err)
	}
}

// TestMessagesOfTheDead lets a rank vanish that others wait for, or leave.
func TestMessagesOfTheDead(t *testing.T) {
	t.Parallel() // the most of it is waiting
	for _, leaves := range []bool{false, true} {
		ctx, jobs := join(t, 3, soon)
		if err := errors.Join(each(jobs, func(j *comm.Job) error { return j.World().Barrier(ctx) })...); err != nil {
			t.Fatal(err)
		}
		two, err := jobs[0].World().Group().Incl([]int{0, 1})
		if err != nil {
			t.Fatal(err)
		}
		var pair *comm.Comm
		if err := errors.Join(each(jobs, func(j *comm.Job) error {
			c, err := j.World().Create(ctx, two)
			if j.Rank() == 0 {
				pair = c
			}
			return err
		})...); err != nil {
			t.Fatal(err)
		}
		w, big := jobs[0].World(), make([]byte, 200_000)
		if err := comm.Send(ctx, jobs[2].World(), []byte("last words"), 0, 9); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Probe(ctx, 2, 9); err != nil {
			t.Fatal(err)
		}
		calls := map[string]func() error{
			"recv":  func() error { _, err := comm.Recv(ctx, w, make([]byte, 8), 2, 1); return err },
			"probe": func() error { _, err := w.Probe(ctx, 2, 1); return err },
			"send":  func() error { return comm.Send(ctx, w, big, 2, 1) },
			"sendrecv": func() error {
				_, err := comm.Sendrecv(ctx, w, big, 2, 1, make([]byte, 8), 2, 1)
				return err
			},
			"irecv": func() error {
				r, err := comm.Irecv(ctx, w, make([]byte, 8), 2, 1, nil)
				if err != nil {
					return err
				}
				return r.Wait(ctx)
			},
		}
		if !leaves {
			calls["recv from any source"] = func() error { _, err := comm.Recv(ctx, w, make([]byte, 8), comm.AnySource, 1); return err }
		}
		type result struct {
			name string
			err  error
		}
		results := make(chan result)
		for name, call := range calls {
			go func() { results <- result{name, call()} }()
		}
		alive, err := comm.Irecv(ctx, pair, make([]byte, 8), comm.AnySource, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond) // most of them wait by now
		if leaves {
			_ = jobs[2].Close()
		} else {
			_ = jobs[2].Poller().Close()
		}
		for range calls {
			if r := <-results; !errors.Is(r.err, mpierr.ProcFailed) {
				t.Errorf("leaves %v: %s: %v", leaves, r.name, r.err)
			}
		}
		last := make([]byte, 10)
		if _, err := comm.Recv(ctx, w, last, 2, 9); err != nil || string(last) != "last words" {
			t.Errorf("leaves %v: the last message is %q, %v", leaves, last, err)
		}
		if done, err := alive.Test(); done {
			t.Errorf("leaves %v: a receive from those that live has ended: %v", leaves, err)
		}
		if err := comm.Send(ctx, jobs[1].World(), []byte{1}, 0, 1); err != nil {
			t.Error(err)
		}
		if s, err := comm.Recv(ctx, w, last, comm.AnySource, 1); (err == nil) && s.Source != 1 {
			t.Errorf("leaves %v: from any source: %v, %v", leaves, s, err)
		}
	}
}

// TestFloodedRank sends a rank far more than it keeps, while it takes part in
// collectives; then it receives everything, the last message first.
func TestFloodedRank(t *testing.T) {
	const count, size = 4000, 3
	ctx, jobs := join(t, size, userspace.Limits{TxFrames: 64, RxFrames: 64})
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		w := j.World()
		if w.Rank() > 0 {
			var pending []*comm.Request
			for i := range count {
				r, err := comm.Isend(ctx, w, text(w.Rank(), i, 1000), 0, i)
				if err != nil {
					return err
				}
				pending = append(pending, r)
			}
			return errors.Join(w.Barrier(ctx), comm.WaitAll(ctx, pending...), w.Barrier(ctx))
		}
		if err := w.Barrier(ctx); err != nil {
			return err
		}
		buf := make([]byte, 1000)
		for i := range count {
			for from := 1; from < size; from++ {
				tag := (i + count - 1) % count // the last first
				if _, err := comm.Recv(ctx, w, buf, from, tag); err != nil || !bytes.Equal(buf, text(from, tag, 1000)) {
					return fmt.Errorf("message %d of rank %d: %w", tag, from, err)
				}
			}
		}
		return w.Barrier(ctx)
	})...); err != nil {
		t.Fatal(err)
	}
}

// TestClosedMessages closes a job while calls wait.
func TestClosedMessages(t *testing.T) {
	ctx, places, _ := serve(t, 3) // rank 2 never joins
	jobs := make([]*comm.Job, 2)
	for rank := range jobs {
		j, err := comm.Join(ctx, job.Config{Place: places[rank]})
		if err != nil {
			t.Fatal(err)
		}
		jobs[rank] = j
		defer jobs[rank].Close()
	}
	w := jobs[0].World()
	results := make(chan error)
	for _, source := range []int{0, 1, 2, comm.AnySource} {
		go func() { _, err := comm.Recv(ctx, w, make([]byte, 1), source, 1); results <- err }()
	}
	for _, target := range []int{1, 2} {
		go func() { results <- comm.Send(ctx, w, make([]byte, 1<<20), target, 1) }()
	}
	go func() { results <- w.Barrier(ctx) }()
	time.Sleep(5 * time.Millisecond)
	_ = jobs[0].Close()
	for range 7 {
		if err := <-results; !errors.Is(err, mpierr.Closed) {
			t.Errorf("a call that waited: %v", err)
		}
	}
	if err := comm.Send(ctx, w, []byte{1}, 1, 1); !errors.Is(err, mpierr.Closed) {
		t.Errorf("a send after it: %v", err)
	}
	if _, _, err := w.Iprobe(1, 1); !errors.Is(err, mpierr.Closed) {
		t.Errorf("a probe after it: %v", err)
	}
}

// TestFreeWithMessages frees communicators on which messages wait that nobody receives,
// again and again: they take nothing from those on other communicators.
func TestFreeWithMessages(t *testing.T) {
	ctx, jobs := join(t, 2, userspace.Limits{})
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		w := j.World()
		for range 50 {
			d, err := w.Dup(ctx)
			if err != nil {
				return err
			}
			var long *comm.Request
			if j.Rank() == 0 {
				for range 30 {
					if err := comm.Send(ctx, d, make([]byte, 1000), 1, 1); err != nil {
						return err
					}
				}
				if long, err = comm.Isend(ctx, d, make([]byte, 10_000), 1, 1); err != nil {
					return err
				}
			}
			if err := errors.Join(d.Barrier(ctx), d.Free()); err != nil {
				return err
			}
			if j.Rank() == 0 {
				err = errors.Join(comm.Send(ctx, w, []byte{1}, 1, 1), long.Wait(ctx))
			} else {
				_, err = comm.Recv(ctx, w, make([]byte, 1), 0, 1)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})...); err != nil {
		t.Fatal(err)
	}
	e := jobs[1].Poller().Lock()
	defer jobs[1].Poller().Unlock()
	if u := e.Usage(); u.Unexpected != 0 {
		t.Errorf("%+v", u)
	}
}

// looks is a context that ends after so many looks at it.
type looks struct {
	context.Context
	left int
}

func (c *looks) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestReceivesGivenUp gives up receives of long messages at any time: each has its
// message, or leaves it to the next one, and does not use its buffer afterwards.
func TestReceivesGivenUp(t *testing.T) {
	ctx, jobs := join(t, 2, userspace.Limits{})
	const rounds, length = 100, 1 << 20
	errs := each(jobs, func(j *comm.Job) error {
		c, rng := j.World(), rand.New(rand.NewPCG(1, 2))
		in, out := make([]int64, length/8), make([]int64, length/8)
		for round := range rounds {
			if j.Rank() == 0 {
				for i := range out {
					out[i] = int64(round)
				}
				if err := comm.Send(ctx, c, out, 1, 3); err != nil {
					return err
				}
				continue
			}
			_, err := comm.Recv(&looks{Context: ctx, left: rng.IntN(200)}, c, in, 0, 3)
			if errors.Is(err, mpierr.Timeout) {
				clear(in)
				_, err = comm.Recv(ctx, c, out, 0, 3)
				if in, out = out, in; slices.ContainsFunc(out, func(v int64) bool { return v != 0 }) {
					return fmt.Errorf("round %d: a receive that was given up has used its buffer", round)
				}
			}
			if err != nil {
				return err
			}
			for i := range in {
				if in[i] != int64(round) {
					return fmt.Errorf("round %d: element %d is %d", round, i, in[i])
				}
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// TestSendAndClose has ranks send and close their job before they have heard of the
// receiver, which gets the messages.
func TestSendAndClose(t *testing.T) {
	for range 5 {
		ctx, jobs := join(t, 4, userspace.Limits{DeadAfter: time.Hour})
		if err := errors.Join(each(jobs, func(j *comm.Job) error {
			w := j.World()
			if j.Rank() > 0 {
				return errors.Join(comm.Send(ctx, w, []byte{byte(j.Rank())}, 0, 1), j.Close())
			}
			for from := 1; from < 4; from++ {
				b := make([]byte, 1)
				if _, err := comm.Recv(ctx, w, b, from, 1); err != nil || int(b[0]) != from {
					return fmt.Errorf("the message of rank %d: %d, %w", from, b[0], err)
				}
			}
			return nil
		})...); err != nil {
			t.Fatal(err)
		}
	}
}
