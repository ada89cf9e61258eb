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

	"github.com/xdprma/xdprma/userspace"
)

// mpiexec serves PMI 1.1 to the ranks of a job, each at a descriptor of its own.
type mpiexec struct {
	size int

	mu      sync.Mutex
	value   string // of the one key
	waiting int
	all     chan struct{} // closed when all ranks are at the barrier
}

// launch starts a server and returns the ranks' places.
func launch(t *testing.T, size int) []Config {
	l := &mpiexec{size: size, all: make(chan struct{})}
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
	return places
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
			l.value = strings.TrimPrefix(words[3], "value=")
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
			answer = "cmd=get_result rc=0 value=" + l.value
			l.mu.Unlock()
		case "cmd=finalize":
			answer = "cmd=finalize_ack"
		}
		fmt.Fprintln(conn, answer)
	}
}

// join is what Open does, for one of several ranks in a process.
func (l *learned) join(ctx context.Context, c Config, failed func(error)) (*Member, Config, error) {
	listener, err := l.complete(ctx, &c, failed)
	if err != nil {
		return nil, c, err
	}
	m, err := open(ctx, c, listener, failed)
	return m, c, err
}

// TestRanksMeetOverPMI has all ranks of a job learn rank 0's job and rendezvous, exchange
// their addresses there, leave, and join once more with what they know.
func TestRanksMeetOverPMI(t *testing.T) {
	const size = 4
	places := launch(t, size)
	known := make([]learned, size)
	results := make(chan error, size)
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
			_, err := Open(testContext(t), place, nil)
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
		if a := (&Config{PMI: PMI{Toward: toward}}).servingAddress(ctx); a != outwardAddress(ctx) {
			t.Errorf("toward %q: %v, want %v", toward, a, outwardAddress(ctx))
		}
	}
}
