package comm_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/lab/logs"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/job"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

// speak is what is wrong with rank 1 of another version, as rank 0 says it.
func speak(theirs string) string {
	return fmt.Sprintf("rank 1 speaks %s of the frames and rank 0 version %d: start all ranks of a job from one build", theirs, wire.Version)
}

// TestRankOfAnotherVersionIsRefusedAtOnce has ranks need one of another build, in all ways
// in which a call waits for a rank. Its silence would not tell within an hour.
func TestRankOfAnotherVersionIsRefusedAtOnce(t *testing.T) {
	one, newer := make([]byte, 1), fmt.Sprintf("version %d", wire.Version+1)
	for _, call := range []struct {
		name string
		call func(ctx context.Context, j *comm.Job) error
	}{
		{"send", func(ctx context.Context, j *comm.Job) error { return comm.Send(ctx, j.World(), one, 1, 0) }},
		{"recv", func(ctx context.Context, j *comm.Job) error {
			_, err := comm.Recv(ctx, j.World(), make([]byte, 1), 1, 0)
			return err
		}},
		{"recv from any rank", func(ctx context.Context, j *comm.Job) error {
			_, err := comm.Recv(ctx, j.World(), make([]byte, 1), comm.AnySource, 0)
			return err
		}},
		{"barrier", func(ctx context.Context, j *comm.Job) error { return j.World().Barrier(ctx) }},
		{"split", func(ctx context.Context, j *comm.Job) error {
			_, err := j.World().Split(ctx, 0, 0)
			return err
		}},
		{"access to a window", func(ctx context.Context, j *comm.Job) error {
			e := j.Poller().Lock()
			s := e.Connect(1)
			j.Poller().Unlock()
			if err := j.Poller().Wait(ctx, deadSession{s}); err != nil {
				return err
			}
			return s.Failure()
		}},
	} {
		for theirs, place := range map[string]string{
			"an older version": "127.0.0.1:9",
			newer:              newer + " of the frames at 127.0.0.1:9",
		} {
			want := speak(theirs)
			t.Run(call.name+", "+theirs, func(t *testing.T) {
				ctx, places, _ := serve(t, 2)
				var log logs.Log
				j, err := comm.Join(ctx, job.Config{
					Place: places[0], Limits: userspace.Limits{DeadAfter: time.Hour}, Logger: log.Logger(),
				})
				if err != nil {
					t.Fatal(err)
				}
				defer j.Close()
				publish(ctx, t, joinByHand(ctx, t, places[1]), place)
				for _, when := range []string{"at first", "again"} {
					err := call.call(ctx, j)
					e, ok := errors.AsType[*mpierr.Error](err)
					if !ok || e.Class != mpierr.ProcFailed || !errors.Is(err, mpierr.Unsupported) {
						t.Errorf("%s: got %v, want class process failed, for the class unsupported", when, err)
					}
					if !strings.Contains(fmt.Sprint(err), want) {
						t.Errorf("%s: got %v, want %q", when, err, want)
					}
					if call.name == "barrier" || call.name == "split" {
						break // the communicator is broken
					}
				}
				if n := j.World().Failed().Size(); n != 1 {
					t.Errorf("%d ranks count as failed, want 1", n)
				}
				if err := j.Close(); err != nil { // what goes on in the background may log
					t.Error(err)
				}
				if n := log.Lines("frames and rank 0"); n != 1 {
					t.Errorf("the log tells of it %d times:\n%s", n, &log)
				}
			})
		}
	}
}

// deadSession is met when a session has ended.
type deadSession struct{ *engine.Session }

func (d deadSession) Met() bool { return d.Dead() }

func publish(ctx context.Context, t *testing.T, h *handMade, place string) {
	t.Helper()
	if err := h.Publish(ctx, []byte(place)); err != nil {
		t.Fatal(err)
	}
}

// TestRanksOfOneVersionGoOnTogether has a rank of another build among them, which sends
// frames of its version. They are counted, and nothing else.
func TestRanksOfOneVersionGoOnTogether(t *testing.T) {
	ctx, places, _ := serve(t, 3)
	jobs := make([]*comm.Job, 2)
	for rank := range jobs {
		j, err := comm.Join(ctx, job.Config{Place: places[rank], Limits: userspace.Limits{DeadAfter: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		jobs[rank] = j
		defer jobs[rank].Close()
	}
	const other = 2
	h := joinByHand(ctx, t, places[other])
	publish(ctx, t, h, h.LocalAddr().String())
	for rank, j := range jobs {
		hello := frameOf(wire.KindHello, 0, wire.Hello{Job: places[0].FrameJob(), Incarnation: h.Incarnation, Session: 7, Rank: other,
			Target: uint32(rank), MaxPayload: wire.MinPayload, Credits: 16})
		hello[4] = 3
		binary.LittleEndian.PutUint32(hello[16:], 0)
		binary.LittleEndian.PutUint32(hello[16:], wire.Checksum(hello))
		if _, err := h.WriteTo(hello, net.UDPAddrFromAddrPort(j.Poller().Facts().Local)); err != nil {
			t.Fatal(err)
		}
		testenv.Await(t, "the count of a frame of another version", func() bool {
			e := j.Poller().Lock()
			defer j.Poller().Unlock()
			return e.Stats.Faults[wire.BadVersion] == 1
		})
		e := j.Poller().Lock()
		if e.Stats.Handshakes+e.Stats.Refuted+e.Stats.Unverified != 0 || e.Session(other) != nil {
			t.Errorf("rank %d has judged a hello of version 3", rank)
		}
		j.Poller().Unlock()
	}

	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		if err := j.World().Barrier(ctx); !errors.Is(err, mpierr.ProcFailed) {
			return fmt.Errorf("rank %d: a barrier with the other rank: %w", j.Rank(), err)
		}
		d, err := survive(ctx, j.World(), 0)
		if err != nil {
			return err
		}
		if d.Size() != len(jobs) {
			return fmt.Errorf("%d ranks go on", d.Size())
		}
		return uses(ctx, d)
	})...); err != nil {
		t.Fatal(err)
	}
}

// TestRankFromTheRightBuildIsLetIn starts a rank again that was refused.
func TestRankFromTheRightBuildIsLetIn(t *testing.T) {
	ctx, places, _ := serve(t, 2)
	j, err := comm.Join(ctx, job.Config{Place: places[0], Limits: userspace.Limits{DeadAfter: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	h := joinByHand(ctx, t, places[1])
	publish(ctx, t, h, h.LocalAddr().String())
	if err := comm.Send(ctx, j.World(), make([]byte, 1), 1, 0); !errors.Is(err, mpierr.Unsupported) {
		t.Fatalf("a send to the rank of an older build: %v", err)
	}
	h.Member.Close()
	again, err := comm.Join(ctx, job.Config{Place: places[1]})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	sent := make(chan error, 1)
	go func() { sent <- comm.Send(ctx, again.World(), make([]byte, 1<<20), 0, 1) }() // long: it takes an answer
	testenv.Await(t, "the next life of rank 1", func() bool {
		e := j.Poller().Lock()
		defer j.Poller().Unlock()
		return e.Session(1).Life() == again.Incarnation()
	})
	if _, err := comm.Recv(ctx, j.World(), make([]byte, 1<<20), 1, 1); err != nil {
		t.Error(err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}
