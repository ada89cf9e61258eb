package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// join connects as a rank, until the test ends.
func join(t *testing.T, s *Server, rank, size int) (*Member, error) {
	t.Helper()
	return joinWith(t, s, rank, size, nil)
}

// joinWith is join with a job key.
func joinWith(t *testing.T, s *Server, rank, size int, key *secure.Key) (*Member, error) {
	t.Helper()
	place := rankAt(s.Addr(), rank, size)
	place.Key = key
	m, err := Open(testContext(t), *place, nil, nil)
	if err == nil {
		t.Cleanup(func() { m.Close() })
	}
	return m, err
}

// TestIncarnationsNeverRunBack starts a rank again and again while the clock stands
// still, goes back, and is before 1970.
func TestIncarnationsNeverRunBack(t *testing.T) {
	s := serveAt(t, "127.0.0.1:0")
	s.members.limit = time.Hour // one process comes when the other has gone, however late that shows
	now := time.Unix(1000, 0)
	s.members.now = func() time.Time { return now }
	var last uint64
	for i, clock := range []time.Time{now, now, now.Add(-time.Hour), time.Unix(-5, 0), now.Add(time.Hour)} {
		now = clock
		m, err := join(t, s, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		if m.Incarnation <= last {
			t.Errorf("process %d of the rank, at %v: incarnation %d after %d", i, clock, m.Incarnation, last)
		}
		last = m.Incarnation
		m.Close()
	}
	if want := uint64(time.Unix(4600, 0).UnixNano()); last != want {
		t.Errorf("incarnation %d, want the time %d", last, want)
	}
	alone, err := Open(testContext(t), Config{Size: 1}, nil, nil)
	if err != nil || alone.Incarnation == 0 {
		t.Errorf("a job of one rank: incarnation 0, %v", err)
	}
}

// TestRanksThatDisagreeAreRefused joins with another size than the first rank's, and
// with a number that somebody has; those who wait for such a rank can see why.
func TestRanksThatDisagreeAreRefused(t *testing.T) {
	s := serveAt(t, "127.0.0.1:0")
	s.members.limit = time.Millisecond
	first, err := join(t, s, 0, 4)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name       string
		rank, size int
		why        string
	}{
		{"another size", 1, 5, "told that the job has 5 ranks, and others that it has 4"},
		{"a smaller size", 1, 2, "told that the job has 2 ranks, and others that it has 4"},
		{"no such rank", 4, 4, "a job of 4 ranks has none of that number"},
		{"the same number", 0, 4, "has this rank and is still connected"},
	} {
		_, err := join(t, s, test.rank, test.size)
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), test.why) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.why)
		}
		who, err := first.Attendance(testContext(t))
		if err != nil || !strings.Contains(who, test.why) || !strings.Contains(who, "1 of 4 ranks are connected; never seen: 1, 2, 3") {
			t.Errorf("%s: those who wait see %q, %v", test.name, who, err)
		}
	}
	if _, err := join(t, s, 1, 4); err != nil {
		t.Errorf("a rank that agrees: %v", err)
	}
}

// TestRestartedRankWaitsForItsPredecessor starts a rank while the server has not yet
// seen the end of its last process.
func TestRestartedRankWaitsForItsPredecessor(t *testing.T) {
	s := serveAt(t, "127.0.0.1:0")
	s.members.limit = time.Hour
	before, err := join(t, s, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		m   *Member
		err error
	}
	after := make(chan outcome)
	go func() {
		m, err := Open(testContext(t), *rankAt(s.Addr(), 1, 2), nil, nil)
		after <- outcome{m, err}
	}()
	testenv.Await(t, "the second process", func() bool {
		s.members.mu.Lock()
		defer s.members.mu.Unlock()
		return !s.members.ranks[1].wanted.IsZero()
	})
	select {
	case o := <-after:
		t.Fatalf("two processes have one rank: %v", o.err)
	default:
	}
	before.Close()
	o := <-after
	if o.err != nil {
		t.Fatal(o.err)
	}
	defer o.m.Close()
	if o.m.Incarnation <= before.Incarnation {
		t.Errorf("incarnation %d after %d", o.m.Incarnation, before.Incarnation)
	}
}

// TestEndedRankIsNotWaitedFor has the launcher tell of processes that ended before they
// published where they are, and after.
func TestEndedRankIsNotWaitedFor(t *testing.T) {
	s := serveAt(t, "127.0.0.1:0")
	ctx := testContext(t)
	waiter, err := join(t, s, 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	late, err := join(t, s, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	if _, found, err := waiter.FindNow(ctx, 2); found || err != nil {
		t.Errorf("a rank that has published nothing: found %t, %v", found, err)
	}
	found := make(chan error, 1)
	go func() {
		_, err := waiter.Find(ctx, 1)
		found <- err
	}()
	ends := make(chan *EndedError)
	go func() {
		for range 2 {
			e, err := waiter.End(ctx)
			if err != nil {
				t.Error(err)
			}
			ends <- &e.EndedError
		}
	}()
	if err := late.Publish(ctx, []byte("here")); err != nil {
		t.Fatal(err)
	}
	if p, err := waiter.Find(ctx, 2); err != nil || string(p.Place) != "here" || p.Incarnation != late.Incarnation {
		t.Errorf("found %q of incarnation %d, %v", p.Place, p.Incarnation, err)
	}
	if p, found, err := waiter.FindNow(ctx, 2); err != nil || !found || string(p.Place) != "here" || p.Incarnation != late.Incarnation {
		t.Errorf("looked, and found %q of incarnation %d, %v", p.Place, p.Incarnation, err)
	}
	check := func(when string, err error, rank int) {
		t.Helper()
		if e, ok := errors.AsType[*EndedError](err); !ok || e.Rank != rank || e.Reason != "its process has ended: it was killed" {
			t.Errorf("%s: %v", when, err)
		}
	}
	s.Ended(1, "it was killed")
	check("who waited", <-found, 1)
	check("the first end", <-ends, 1)
	s.Ended(2, "it was killed")
	s.Ended(2, "again") // changes nothing
	check("the second end", <-ends, 2)
	if late.Publish(ctx, []byte("what was still on its way")) == nil {
		t.Error("a rank that has ended published its place")
	}
	for _, m := range []*Member{waiter, late} {
		for rank := 1; rank <= 2; rank++ {
			_, err := m.Find(ctx, rank)
			check("who comes later", err, rank)
			_, _, err = m.FindNow(ctx, rank)
			check("who looks later", err, rank)
		}
	}
	if _, err := join(t, s, 1, 3); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("a second process of a rank that has ended: %v", err)
	}
	if who, err := waiter.Attendance(ctx); err != nil || !strings.Contains(who, "ended: 1, 2") {
		t.Errorf("%q, %v", who, err)
	}
}

// TestWhoIsMissingIsListedBriefly joins the last of many ranks.
func TestWhoIsMissingIsListedBriefly(t *testing.T) {
	s := serveAt(t, "127.0.0.1:0")
	m, err := join(t, s, 999, 1000)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := join(t, s, 500, 1000)
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	testenv.Await(t, "the end of its connection", func() bool {
		s.members.mu.Lock()
		defer s.members.mu.Unlock()
		return s.members.ranks[500].visit == nil
	})
	who, err := m.Attendance(testContext(t))
	const want = "1 of 1000 ranks are connected; never seen: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 982 more; not connected any more: 500; the rendezvous is served at 127.0.0.1, which processes of this host alone reach"
	if err != nil || who != want {
		t.Errorf("got %q, %v\nwant %q", who, err, want)
	}
}

// TestPatienceEndsJoining dials where nobody listens, with a limit of its own.
func TestPatienceEndsJoining(t *testing.T) {
	const refused = "nobody listens there yet"
	c := rankAt("127.0.0.1:1", 1, 2)
	var causes []error
	found := func(err error) bool { return strings.Contains(err.Error(), refused) }
	// On a busy machine the limit may pass before an attempt has ended, and in the middle of
	// the last one, of which the error then says that the host does not answer.
	for c.Patience = time.Second; !slices.ContainsFunc(causes, found); c.Patience *= 4 {
		if c.Patience > testenv.Limit {
			t.Fatalf("no attempt found that nobody listens: %v", causes)
		}
		_, err := Open(context.Background(), *c, nil, func(err error) { causes = append(causes, err) })
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), EnvPatience) {
			t.Errorf("got %v, want a time-out that names %s", err, EnvPatience)
		}
		if _, last, ok := strings.Cut(err.Error(), "the last attempt: "); !ok || !strings.Contains(last, refused) && !strings.Contains(last, "does not answer") {
			t.Errorf("the cause is not told: %v", err)
		}
	}
}

// TestLeftRankIsNotLookedFor has a rank leave, and another process take it.
func TestLeftRankIsNotLookedFor(t *testing.T) {
	s := serveAt(t, "127.0.0.1:0")
	ctx := testContext(t)
	other, err := join(t, s, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		m, err := join(t, s, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(m.Publish(ctx, []byte("here")), m.Leave(ctx)); err != nil {
			t.Fatal(err)
		}
		if p, err := other.Find(ctx, 1); !errors.Is(err, ErrLeft) || p.Incarnation != m.Incarnation {
			t.Errorf("found incarnation %d, %v", p.Incarnation, err)
		}
		if p, found, err := other.FindNow(ctx, 1); !errors.Is(err, ErrLeft) || !found || p.Incarnation != m.Incarnation {
			t.Errorf("looked, and found %t, incarnation %d, %v", found, p.Incarnation, err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	again, err := join(t, s, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Publish(ctx, []byte("there")); err != nil {
		t.Fatal(err)
	}
	if p, err := other.Find(ctx, 1); err != nil || string(p.Place) != "there" || p.Incarnation != again.Incarnation {
		t.Errorf("found %q of incarnation %d, %v", p.Place, p.Incarnation, err)
	}
}

// TestTurnedAwayProcessesAreLogged has processes of another job come, many at once.
func TestTurnedAwayProcessesAreLogged(t *testing.T) {
	var log bytes.Buffer
	place := Config{Size: 2, Job: testJob, Rendezvous: "127.0.0.1:0", Serve: true}
	m, err := Open(testContext(t), place, slog.New(slog.NewTextHandler(&log, nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s := m.rendezvous.(*serving).server
	now := time.Now()
	s.members.mu.Lock()
	s.members.now = func() time.Time { return now }
	s.members.mu.Unlock()
	for range 100 {
		_, err := Dial(testContext(t), &Config{Rank: 1, Size: 2, Job: testJob + 1, Rendezvous: s.Addr()}, nil)
		if !errors.Is(err, ErrRefused) {
			t.Fatal(err)
		}
	}
	who, err := m.Attendance(testContext(t))
	for _, want := range []string{"never seen: 1", "served at 127.0.0.1, which processes of this host alone reach",
		"refused 100 times, the last time: a process at 127.0.0.1:", "its job id is another one"} {
		if err != nil || !strings.Contains(who, want) {
			t.Errorf("attendance %q, %v: no %q", who, err, want)
		}
	}
	s.members.mu.Lock()
	now = now.Add(refusalPause)
	s.members.mu.Unlock()
	_, err = Dial(testContext(t), &Config{Rank: 2, Size: 2, Job: testJob, Rendezvous: s.Addr()}, nil)
	if !errors.Is(err, ErrRefused) {
		t.Fatal(err)
	}
	m.Close()
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "turned away") || !strings.Contains(lines[0], "process=127.0.0.1:") || !strings.Contains(lines[0], "its job id is another one") ||
		!strings.Contains(lines[1], "as rank 2") || !strings.Contains(lines[1], "turned_away=101") {
		t.Errorf("the log has %q", lines)
	}
}
