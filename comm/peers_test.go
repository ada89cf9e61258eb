package comm_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/lab/logs"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/launch/job"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

// TestLongWaitsAreToldWithTheirCause joins a job whose rendezvous does not come, and one
// of whose ranks do not: the log says again and again what is waited for, and why.
func TestLongWaitsAreToldWithTheirCause(t *testing.T) {
	defer func(was time.Duration) { job.LongWait = was }(job.LongWait)
	job.LongWait = time.Millisecond
	limit, places, _ := serve(t, 4)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, test := range []struct{ name, address, cause string }{
		{"nobody listens", "tcp:127.0.0.1:1", "nobody listens there yet"},
		{"nobody answers", "tcp:" + silent.Addr().String(), "it does not answer"},
	} {
		ctx, cancel := context.WithCancel(limit)
		var log logs.Log
		o := job.Config{Place: places[1], Logger: log.Logger()}
		o.Place.Rendezvous = test.address
		ended := make(chan error)
		go func() {
			j, err := comm.Join(ctx, o)
			if err == nil {
				_ = j.Close()
			}
			ended <- err
		}()
		log.Await(limit, t, 3, "rendezvous", test.address, test.cause)
		cancel()
		if err := <-ended; !errors.Is(err, mpierr.Timeout) {
			t.Errorf("%s: got %v, want class timeout", test.name, err)
		}
	}

	var log logs.Log
	j, err := comm.Join(limit, job.Config{Place: places[0], Logger: log.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	disagrees := places[2]
	disagrees.Size = 3
	if _, err := comm.Join(limit, job.Config{Place: disagrees}); !errors.Is(err, mpierr.Arg) || !errors.Is(err, bootstrap.ErrRefused) {
		t.Errorf("a rank with another size: got %v, want class arg", err)
	}
	waiting, giveUp := context.WithCancel(limit)
	ended := make(chan error)
	go func() { ended <- j.World().Barrier(waiting) }()
	log.Await(limit, t, 3, "rank=", "never seen: 1, 2, 3", "as rank 2: it was told that the job has 3 ranks")
	giveUp()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("barrier: %v", err)
	}
}

// TestAutoWithoutInterfaceSaysUDP joins with a transport and a place that leave XDP out.
func TestAutoWithoutInterfaceSaysUDP(t *testing.T) {
	for _, transport := range []userspace.Transport{userspace.Auto, userspace.UDP} {
		limit, places, _ := serve(t, 2)
		var log bytes.Buffer
		place := places[0]
		place.Transport, place.Interface, place.Address = transport, "", netip.Addr{}
		j, err := comm.Join(limit, job.Config{Place: place, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		_ = j.Close()
		told := strings.Contains(log.String(), "the transport auto means UDP here")
		if told != (transport == userspace.Auto) || told && !strings.Contains(log.String(), bootstrap.EnvInterface) {
			t.Errorf("%s: %s", transport, &log)
		}
	}
}

// TestUnreachedRendezvousIsATimeout joins with a limit that the place has.
func TestUnreachedRendezvousIsATimeout(t *testing.T) {
	p := bootstrap.Config{Rank: 1, Size: 2, Job: 1, Rendezvous: "127.0.0.1:1", Patience: time.Millisecond}
	if _, err := comm.Join(context.Background(), job.Config{Place: p}); !errors.Is(err, mpierr.Timeout) {
		t.Errorf("got %v, want class timeout", err)
	}
}

// TestRanksOfTwoFamiliesAreTold has a rank with IPv4 speak to one with IPv6: the one whose family is
// not the rendezvous's is told when it joins, and both when they speak.
func TestRanksOfTwoFamiliesAreTold(t *testing.T) {
	ctx, places, _ := serve(t, 2)
	places[1].Address = netip.IPv6Loopback()
	jobs := make([]*comm.Job, 2)
	for rank := range jobs {
		var log logs.Log
		j, err := comm.Join(ctx, job.Config{Place: places[rank], Logger: log.Logger()})
		if err != nil {
			t.Fatal(err)
		}
		if n := log.Lines("not of the family", "rank=1", "address=::1", "rendezvous=127.0.0.1", bootstrap.EnvAddress); n != rank || log.Lines("not of the family") != rank {
			t.Errorf("rank %d is warned %d times:\n%s", rank, n, &log)
		}
		jobs[rank] = j
		defer jobs[rank].Close()
	}
	for rank, want := range []string{"rank 1 is at ::1 and rank 0 at 127.0.0.1", "rank 0 is at 127.0.0.1 and rank 1 at ::1"} {
		err := comm.Send(ctx, jobs[rank].World(), make([]byte, 1), 1-rank, 0)
		if !errors.Is(err, mpierr.ProcFailed) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), bootstrap.EnvAddress) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

// TestEndedProcessFailsItsPeersAtOnce has the launcher tell of processes that end: one
// that never joined, one that others talk to, and one that nobody has met. Silence alone
// would not tell within an hour.
func TestEndedProcessFailsItsPeersAtOnce(t *testing.T) {
	ctx, places, server := serve(t, 4)
	jobs := make([]*comm.Job, 4)
	const absent, met, stranger = 1, 2, 3
	for _, rank := range []int{0, met, stranger} {
		j, err := comm.Join(ctx, job.Config{Place: places[rank], Limits: userspace.Limits{DeadAfter: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		jobs[rank] = j
		defer jobs[rank].Close()
	}
	world := jobs[0].World()
	one := make([]byte, 1)
	if err := errors.Join(each([]*comm.Comm{world, jobs[met].World()}, func(c *comm.Comm) error {
		if c.Rank() == 0 {
			return comm.Send(ctx, c, one, met, 0)
		}
		_, err := comm.Recv(ctx, c, make([]byte, 1), 0, 0)
		return err
	})...); err != nil {
		t.Fatal(err)
	}
	for i, rank := range []int{absent, met, stranger} {
		waits := make(chan error)
		if rank != stranger {
			go func() {
				_, err := comm.Recv(ctx, world, make([]byte, 1), rank, 0)
				waits <- err
			}()
		}
		server.Ended(rank, "it was killed by SIGKILL")
		check := func(when string, err error) {
			t.Helper()
			e, ok := errors.AsType[*mpierr.Error](err)
			if !ok || e.Class != mpierr.ProcFailed || e.Rank != rank || !strings.Contains(err.Error(), "killed by SIGKILL") {
				t.Errorf("rank %d, %s: %v", rank, when, err)
			}
		}
		if rank != stranger {
			check("a receive that waited", <-waits)
		}
		check("a send afterwards", comm.Send(ctx, world, make([]byte, 1<<20), rank, 0))
		if n := world.Failed().Size(); n != i+1 {
			t.Errorf("after rank %d, %d have failed, want %d", rank, n, i+1)
		}
	}
}

// TestRankSpeaksForNoOther has a rank say at the rendezvous that it is where another is.
func TestRankSpeaksForNoOther(t *testing.T) {
	ctx, places, server := serve(t, 3)
	jobs := make([]*comm.Job, 2)
	for rank := range jobs {
		j, err := comm.Join(ctx, job.Config{Place: places[rank]})
		if err != nil {
			t.Fatal(err)
		}
		jobs[rank] = j
		defer jobs[rank].Close()
	}
	const liar = 2
	m, err := bootstrap.Open(ctx, places[liar], nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	other, err := m.Find(ctx, 1)
	if err := errors.Join(err, m.Publish(ctx, other.Place)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(each([]*comm.Comm{jobs[0].World(), jobs[1].World()}, func(c *comm.Comm) error {
		if c.Rank() == 0 {
			return comm.Send(ctx, c, make([]byte, 1), 1, 0)
		}
		_, err := comm.Recv(ctx, c, make([]byte, 1), 0, 0)
		return err
	})...); err != nil {
		t.Error(err)
	}
	server.Ended(liar, "it was killed")
	for _, j := range jobs {
		testenv.Await(t, "the news of an end", func() bool { return j.World().Failed().Size() > 0 })
		if dead, err := j.World().Failed().Translate([]int{0}, j.World().Group()); err != nil || dead[0] != liar {
			t.Errorf("rank %d takes rank %v for the first to fail, %v", j.Rank(), dead, err)
		}
	}
}

// TestRankThatCannotJoinFailsItsPeers has one of three ranks fail to join: the others are told
// why, also the one that does not speak with it, which waits at the barrier for the other.
func TestRankThatCannotJoinFailsItsPeers(t *testing.T) {
	ctx, places, _ := serve(t, 3)
	const absent = 1
	var worlds []*comm.Comm
	for _, rank := range []int{0, 2} {
		j, err := comm.Join(ctx, job.Config{Place: places[rank], Limits: userspace.Limits{DeadAfter: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		worlds = append(worlds, j.World())
	}
	errs := make(chan error)
	for _, c := range worlds {
		go func() { errs <- c.Barrier(ctx) }()
	}
	place := places[absent]
	place.Transport, place.Interface, place.Address = userspace.UDP, "xr-no-such", netip.Addr{}
	if _, err := comm.Join(ctx, job.Config{Place: place}); !errors.Is(err, mpierr.Unsupported) {
		t.Errorf("the rank joins: %v", err)
	}
	reasons := 0 // one may hear first from the other that the communicator is broken
	for range worlds {
		err := <-errs
		if e, ok := errors.AsType[*mpierr.Error](err); !ok || e.Class != mpierr.ProcFailed || e.Rank != absent {
			t.Errorf("a barrier: %v", err)
		} else if strings.Contains(err.Error(), "could not join the job") && strings.Contains(err.Error(), "xr-no-such") {
			reasons++
		}
	}
	if reasons == 0 {
		t.Error("nobody says why the rank does not join")
	}
}

// TestMissingInterfaceComesBeforeTheRendezvous has a rank name an interface that is not there, and a
// rendezvous that nobody serves: the log says so while the rank still tries to tell the others.
func TestMissingInterfaceComesBeforeTheRendezvous(t *testing.T) {
	limit, _, _ := serve(t, 2)
	ctx, giveUp := context.WithCancel(limit)
	place := bootstrap.Config{Rank: 1, Size: 2, Job: 5, Rendezvous: "unix:" + filepath.Join(t.TempDir(), "nobody")}
	place.Interface = "xr-no-such"
	var log logs.Log
	ended := make(chan error)
	go func() {
		_, err := comm.Join(ctx, job.Config{Place: place, Logger: log.Logger()})
		ended <- err
	}()
	log.Await(limit, t, 1, "level=ERROR", "this rank cannot join the job", "rank=1", "xr-no-such", "`ip link` lists those there are")
	giveUp()
	err := <-ended
	if !errors.Is(err, mpierr.Unsupported) || !strings.Contains(err.Error(), "xr-no-such") || strings.Contains(err.Error(), "rendezvous") {
		t.Errorf("%v", err)
	}
}

// TestRankThatDoesNotJoinIsNotWaitedForForEver has a rank not come.
func TestRankThatDoesNotJoinIsNotWaitedForForEver(t *testing.T) {
	t.Parallel() // the most of it is waiting
	ctx, places, _ := serve(t, 2)
	places[0].JoinTimeout = time.Millisecond
	j, err := comm.Join(ctx, job.Config{Place: places[0]})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for range 2 {
		_, err = comm.Recv(ctx, j.World(), make([]byte, 1), 1, 0)
		if !errors.Is(err, mpierr.ProcFailed) || !strings.Contains(err.Error(), bootstrap.EnvJoin) || !strings.Contains(err.Error(), "never seen: 1") {
			t.Errorf("%v", err)
		}
	}
}
