package perf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// FloorPlace is one side of a floor: 0 measures, 1 answers.
type FloorPlace struct {
	Side      int
	Interface string     // of an XDP device
	Address   netip.Addr // of a UDP device
	Payload   int        // bytes of a frame of a UDP device
}

const (
	// opOverhead is what an operation's frame carries beside its bytes.
	opOverhead = 72
	// replyLen is the payload of the frame that answers.
	replyLen = opOverhead + smallest
	// lossAfter is how long a side spins for frames before it takes them for lost, and
	// how much longer after each loss in a row: on a busy machine the other side may
	// have to wait for a processor.
	lossAfter = 50 * time.Millisecond
	// mostLosses in a row end a floor.
	mostLosses = 20
	// spinsPerLook is how often an empty ring is looked at between looks at the clock.
	spinsPerLook = 256
)

// errSilence ends a floor.
var errSilence = fmt.Errorf("the other side answered none of the last %d times, not within %v in the end: the interface drops frames, or the machine is too busy; try again when it is idle", mostLosses, patience(mostLosses-1))

// patience is how long a side spins for frames after a number of losses in a row.
func patience(losses int) time.Duration { return time.Duration(losses+1) * lossAfter }

// side is one process of a floor.
type side struct {
	line
	plan    *Plan
	numbers [receiveMax]uint64
	point   uint64 // of the plan, from 1
	every   int    // frames of a stream that the receiver acknowledges at once
}

// newSide returns a side for point i of the plan, over l.
func newSide(l line, plan *Plan, i int) (*side, error) {
	s := &side{line: l, plan: plan, point: uint64(i + 1), every: l.window() / acksPerWindow}
	if step := costOf(plan.Floors[i].Kind); step >= 0 {
		costs, err := newCostLine(l, step)
		if err != nil {
			return nil, err
		}
		s.line, s.every = costs, costs.every()
	}
	return s, nil
}

// countBits is how many bits of a frame's number count within a point; the
// others are the point, so that what an earlier one left on its way is known.
const countBits = 40

// sendCount sends n frames of the current point.
func (s *side) sendCount(count uint64, n, length int) error {
	return s.send(s.point<<countBits|count, n, length)
}

// arrivals returns the counts of frames of the current point that have arrived,
// until the next call.
func (s *side) arrivals() ([]uint64, error) {
	n, err := s.receive(s.numbers[:])
	counts := s.numbers[:0]
	for _, number := range s.numbers[:n] {
		if number>>countBits == s.point {
			counts = append(counts, number&(1<<countBits-1))
		}
	}
	return counts, err
}

// FloorStreams returns the two ends of a stream, one for each side of a floor.
func FloorStreams() (ends [2]*os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return ends, fmt.Errorf("connect the sides of a floor: %w", err)
	}
	for side, fd := range pair {
		ends[side] = os.NewFile(uintptr(fd), "stream of a floor")
	}
	return ends, nil
}

// talk is how the two sides tell each other what no frame of a floor says.
type talk struct {
	*json.Encoder
	*json.Decoder
}

// gather blocks until the other side has called it, too.
func (t talk) gather() error {
	if err := t.Encode(true); err != nil {
		return err
	}
	return t.hear(new(bool))
}

// hear blocks until the other side has told something of the type that what points to.
func (t talk) hear(what any) error {
	if err := t.Decode(what); err != nil {
		return fmt.Errorf("the other side has ended, or tells something else: %w", err)
	}
	return nil
}

// RunFloor measures the floors of a plan between the two processes whose places
// differ in Side, and which a stream connects (FloorStreams). emit is called on side 0. It blocks until
// both are through, and spins while it measures. It closes the stream.
func RunFloor(ctx context.Context, stream io.ReadWriteCloser, at FloorPlace, plan *Plan, emit func(*FloorSample) error) (err error) {
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { stream.Close() })()
	l, err := openLine(plan.Device, at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	t := talk{json.NewEncoder(stream), json.NewDecoder(stream)}
	if err := t.Encode(l.address()); err != nil {
		return err
	}
	var peer []byte
	if err := t.hear(&peer); err != nil {
		return err
	}
	if err := l.connect(peer); err != nil {
		return err
	}
	if plan.Bind {
		release, err := bind(at.Side, 2)
		if err != nil {
			return err
		}
		defer release()
	}
	for i, p := range plan.Floors {
		s, err := newSide(l, plan, i)
		if err == nil {
			err = s.measure(t, at.Side, p, emit)
		}
		if err != nil {
			return fmt.Errorf("%s, %d bytes, %s, MTU %d: %w; on side %d: %s", p.Kind, p.Bytes, l.mode(), l.payload()+ipUDP, err, at.Side, l.counts())
		}
	}
	return t.gather() // nobody leaves while frames are on their way
}

// measure runs one point at both sides at the same time.
func (s *side) measure(t talk, id int, p FloorPoint, emit func(*FloorSample) error) error {
	switch p.Kind {
	case SignedStream:
		s.protecting(secure.Sign)
	case SealedStream:
		s.protecting(secure.Seal)
	default:
		s.checking(p.Kind == CheckedStream)
	}
	runtime.GC()
	if err := s.taking(p.taker(id)); err != nil {
		return err
	}
	if err := t.gather(); err != nil {
		return err
	}
	costs, of := s.line.(*costLine)
	if id != 0 {
		if err := s.answer(t, p); err != nil || !of {
			return err
		}
		return t.Encode(costs.spent())
	}
	sample := &FloorSample{Point: p, Mode: s.mode(), MTU: s.payload() + ipUDP}
	run := s.stream
	if p.roundTrips() {
		run = s.echo
	}
	if err := run(p, sample); err != nil {
		return err
	}
	if err := t.Encode(true); err != nil { // it is over
		return err
	}
	if of {
		sample.SenderTime = costs.spent()
		if err := t.hear(&sample.ReceiverTime); err != nil {
			return err
		}
	}
	return emit(sample)
}

// answer serves the other side until that says it is over.
func (s *side) answer(t talk, p FloorPoint) error {
	var done atomic.Bool
	told := make(chan error, 1)
	go func() {
		err := t.hear(new(bool))
		done.Store(true)
		told <- err
	}()
	serve := s.acknowledge
	switch {
	case p.Kind == Echo:
		serve = s.reflect
	case p.inKernel():
		return s.bear(p, told)
	}
	if err := serve(p, &done); err != nil {
		return err
	}
	return <-told
}

// bear keeps this side under the load of a floor in the kernel until it is told.
func (s *side) bear(p FloorPoint, told <-chan error) error {
	if p.Load == "" {
		return <-told
	}
	l, err := findLoad(p.Load)
	if err != nil {
		return err
	}
	under := l.start(s.plan.Duration+2*warmUpTime, func(int64, int64) {})
	under.begin()
	err = <-told
	return errors.Join(err, under.finish())
}

// layout returns how many frames of what payload carry an operation.
func (s *side) layout(bytes int) (frames, length int) {
	most := s.payload() - opOverhead
	frames = (bytes + most - 1) / most
	return frames, opOverhead + (bytes+frames-1)/frames
}
