package bootstrap

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/userspace"
)

// mpiexec serves PMI 1.1 to the ranks of a job, each at a descriptor of its own.
type mpiexec struct {
	size int

	mu      sync.Mutex
	values  map[string]string
	waiting int
	ends    []string      // how ranks have ended their part
	all     chan struct{} // closed when all ranks are at the barrier
}

// launch starts a server and returns the ranks' places.
func launch(t *testing.T, size int) []Config {
	_, places := launchBy(t, size)
	return places
}

func launchBy(t *testing.T, size int) (*mpiexec, []Config) {
	l := &mpiexec{size: size, values: map[string]string{}, all: make(chan struct{})}
	places := make([]Config, size)
	for rank := range places {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(pair[1]), "server")
		conn, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.serve(conn)
		}()
		t.Cleanup(func() {
			conn.Close()
			<-done
		})
		places[rank] = Config{Config: userspace.Config{Transport: userspace.UDP, Address: loopback}, Rank: rank, Size: size, Job: NewJob(), Serve: rank == 0, PMI: PMI{FD: pair[0]}}
	}
	t.Cleanup(func() { // ranks that still wait
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.waiting < size {
			close(l.all)
		}
	})
	return l, places
}

func (l *mpiexec) serve(conn net.Conn) {
	defer conn.Close()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		words := strings.Fields(lines.Text())
		answer := ""
		switch words[0] {
		case "cmd=init":
			answer = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
		case "cmd=get_maxes":
			answer = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024"
		case "cmd=get_my_kvsname":
			answer = "cmd=my_kvsname kvsname=kvs"
		case "cmd=put":
			l.mu.Lock()
			l.values[words[2]] = strings.TrimPrefix(words[3], "value=")
			l.mu.Unlock()
			answer = "cmd=put_result rc=0"
		case "cmd=barrier_in":
			l.mu.Lock()
			if l.waiting++; l.waiting == l.size {
				close(l.all)
			}
			l.mu.Unlock()
			<-l.all
			answer = "cmd=barrier_out"
		case "cmd=get":
			l.mu.Lock()
			answer = "cmd=get_result rc=0 value=" + l.values[words[2]]
			l.mu.Unlock()
		case "cmd=finalize":
			l.end("finalize")
			answer = "cmd=finalize_ack"
		case "cmd=abort":
			l.end(strings.Join(words[1:], " "))
			return
		}
		fmt.Fprintln(conn, answer)
	}
}

func (l *mpiexec) end(how string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = append(l.ends, how)
}

// TestLauncherIsToldHowJoiningEnds has a rank join, and one fail to. Before, the launcher takes
// an end of the process for a failure.
func TestLauncherIsToldHowJoiningEnds(t *testing.T) {
	for why, want := range map[error]string{nil: "finalize", errors.New("no such interface"): "exitcode=1"} {
		l, places := launchBy(t, 2)
		known := make([]learned, 2)
		var all sync.WaitGroup
		for rank := range places {
			all.Go(func() {
				listener, err := known[rank].complete(testContext(t), &places[rank], nil)
				if err != nil {
					t.Error(err)
				}
				if listener != nil {
					listener.Close()
				}
			})
		}
		all.Wait()
		if len(l.ends) > 0 {
			t.Errorf("before a rank has joined, the launcher was told %q", l.ends)
		}
		for range 2 { // once counts
			if err := known[1].end(why); err != nil {
				t.Error(err)
			}
		}
		testenv.Await(t, "the launcher to be told", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.ends) > 0
		})
		if len(l.ends) != 1 || l.ends[0] != want {
			t.Errorf("the launcher was told %q, want %q", l.ends, want)
		}
		if err := known[0].end(nil); err != nil {
			t.Error(err)
		}
	}
}

// join is what Open does, for one of several ranks in a process.
func (l *learned) join(ctx context.Context, c Config, failed func(error)) (*Member, Config, error) {
	listener, err := l.complete(ctx, &c, failed)
	if err != nil {
		return nil, c, err
	}
	m, err := open(ctx, c, listener, c.Logger(), failed)
	return m, c, err
}

// TestRanksMeetOverPMI has all ranks of a job learn rank 0's job and rendezvous, exchange
// their addresses there, leave, and join once more with what they know.
func TestRanksMeetOverPMI(t *testing.T) {
	const size = 4
	places := launch(t, size)
	known := make([]learned, size)
	results := make(chan error, size)
	met := make(chan secure.Secrets, 2*size)
	ended := make(chan struct{}) // the rendezvous of the first life, with rank 0
	for rank, place := range places {
		go func() {
			results <- func() error {
				for life := range 2 {
					ctx := testContext(t)
					m, c, err := known[rank].join(ctx, place, nil)
					if err != nil {
						return err
					}
					if c.Job != places[0].Job || !strings.HasPrefix(c.Rendezvous, "tcp:127.0.0.1:") {
						return fmt.Errorf("rank %d is in job %x at %s", rank, c.Job, c.Rendezvous)
					}
					if err := meet(ctx, m, size); err != nil {
						return err
					}
					secrets, ok := m.Secrets()
					met <- secrets
					if !ok || len(m.Notices) > 0 {
						return fmt.Errorf("rank %d has secrets: %t, and tells %q", rank, ok, m.Notices)
					}
					if err := m.Close(); err != nil {
						return err
					}
					if rank == 0 && life == 0 {
						close(ended)
					}
					select {
					case <-ended:
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				return nil
			}()
		}()
	}
	for range size {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	close(met)
	runs := map[secure.Secrets]int{}
	for secrets := range met {
		runs[secrets]++
	}
	if len(runs) != 2 || len(met) != 0 {
		t.Errorf("the ranks have %d sets of secrets in two runs", len(runs))
	}
	for secrets, ranks := range runs {
		if ranks != size || secrets == (secure.Secrets{}) {
			t.Errorf("%d ranks have the same secrets", ranks)
		}
	}
}

// meetOverPMI has a job's ranks learn all that PMI tells. The first serves.
func meetOverPMI(t *testing.T, places []Config) (errs []error) {
	t.Helper()
	var all sync.WaitGroup
	errs = make([]error, len(places))
	for rank := range places {
		all.Go(func() {
			listener, err := new(learned).complete(testContext(t), &places[rank], nil)
			if errs[rank] = err; listener == nil {
				return
			}
			s, err := Serve(listener, &places[rank])
			if err != nil {
				errs[rank] = err
				return
			}
			t.Cleanup(func() { s.Close() })
		})
	}
	all.Wait()
	return errs
}

// TestOnlyRanksThatMetOverPMIAreLetIn connects with certificates of strangers and of another
// rank, by somebody who has read all that PMI carried.
func TestOnlyRanksThatMetOverPMIAreLetIn(t *testing.T) {
	places := launch(t, 3)
	if err := errors.Join(meetOverPMI(t, places)...); err != nil {
		t.Fatal(err)
	}
	stranger, err := newMeeting()
	if err != nil {
		t.Fatal(err)
	}
	stranger.ranks = places[1].meeting.ranks
	var keys []secure.Key
	for _, test := range []struct {
		name   string
		change func(*Config)
		want   string // in the error; empty: it is let in
	}{
		{"a stranger", func(c *Config) { c.meeting = stranger }, "refused this process"},
		{"another rank", func(c *Config) { c.meeting = places[2].meeting }, "its certificate is that of another rank"},
		{"no certificate", func(c *Config) { c.meeting = nil }, "this process has none"},
		{"a key", func(c *Config) {
			key := secure.NewKey()
			c.Key, c.meeting = &key, nil
		}, "the job keys differ"},
		{"rank 0 is another", func(c *Config) {
			c.meeting = &meeting{own: c.meeting.own, ranks: []fingerprint{stranger.fingerprint()}}
		}, "the job keys differ"},
		{"rank 1", func(*Config) {}, ""},
		{"rank 2", func(c *Config) { *c = places[2] }, ""},
	} {
		c := places[1]
		test.change(&c)
		m, err := open(testContext(t), c, nil, c.Logger(), nil)
		if err == nil {
			keys = append(keys, m.credentials.key)
			m.Close()
		}
		if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
	if len(keys) != 2 || keys[0] != keys[1] || keys[0] != *places[0].Key {
		t.Errorf("%d ranks have keys, which differ", len(keys))
	}
}

// TestKeyOfSomeRanksIsToldOverPMI gives a key to all ranks, and to some.
func TestKeyOfSomeRanksIsToldOverPMI(t *testing.T) {
	key := secure.NewKey()
	for name, has := range map[string][2]bool{"both": {true, true}, "rank 0": {true, false}, "rank 1": {false, true}} {
		places := launch(t, 2)
		for rank := range places {
			if has[rank] {
				places[rank].Key = &key
			}
		}
		err := errors.Join(meetOverPMI(t, places)...)
		if name != "both" {
			if err == nil || !strings.Contains(err.Error(), "one has a job key, and the other none") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || places[0].meeting != nil || *places[0].Key != key {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWaitAtPMIEndsWithItsContext has one of two ranks come.
func TestWaitAtPMIEndsWithItsContext(t *testing.T) {
	for rank := range 2 {
		place := launch(t, 2)[rank]
		ctx, cancel := context.WithCancel(testContext(t))
		var l learned
		told := ""
		_, err := l.complete(ctx, &place, func(err error) {
			told = err.Error()
			cancel()
		})
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "not all ranks came") || !strings.Contains(told, "until each has come") {
			t.Errorf("rank %d: %v, after being told %q", rank, err, told)
		}
		if _, again := l.complete(testContext(t), &place, nil); !errors.Is(again, context.Canceled) {
			t.Errorf("rank %d, once more: %v", rank, again)
		}
	}
}

// TestDescriptorThatIsNotThere joins behind a program that has closed the descriptor, and
// where another file has its number since.
func TestDescriptorThatIsNotThere(t *testing.T) {
	other, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for fd, want := range map[int]string{1 << 20: unix.EBADF.Error(), int(other.Fd()): "neither a socket nor a pipe"} {
		for rank := range 2 {
			place := Config{Rank: rank, Size: 2, Job: 1, Serve: rank == 0, PMI: PMI{FD: fd}}
			_, err := Open(testContext(t), place, nil, nil)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), fmt.Sprintf("PMI_FD=%d", fd)) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
	}
	if _, err := other.Stat(); err != nil {
		t.Errorf("the other file: %v", err)
	}
}

func TestWordsOfRank0AreChecked(t *testing.T) {
	job, at, err := parseTold("00000000000000ab@tcp:[fd77::1]:7000")
	if err != nil || job != 0xab || at != "tcp:[fd77::1]:7000" {
		t.Errorf("got %x, %q, %v", job, at, err)
	}
	for _, told := range []string{"", "ab", "ab@", "ab@host", "@h:1", "0@h:1", "xyz@h:1"} {
		if job, at, err := parseTold(told); err == nil || !strings.Contains(err.Error(), "another version") {
			t.Errorf("%q: %x, %q, %v", told, job, at, err)
		}
	}
}

// TestAddressForOtherHosts looks for the address at which rank 0 serves.
func TestAddressForOtherHosts(t *testing.T) {
	ctx := testContext(t)
	named := netip.MustParseAddr("10.9.0.1")
	if a := (&Config{Config: userspace.Config{Address: named, Interface: "lo"}}).servingAddress(ctx); a != named {
		t.Errorf("with an address: %v", a)
	}
	for _, toward := range []string{"", "127.0.0.1", "no such host"} {
		if a := (&Config{PMI: PMI{Toward: toward}}).servingAddress(ctx); a != outwardAddress(ctx, netip.Addr{}) {
			t.Errorf("toward %q: %v, want %v", toward, a, outwardAddress(ctx, netip.Addr{}))
		}
	}
}
