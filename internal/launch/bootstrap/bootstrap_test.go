package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// TestMain fails when a test leaves a goroutine of this package behind.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if left := leftGoroutines(); left != "" {
			fmt.Fprintln(os.Stderr, "goroutines left behind:\n"+left)
			code = 1
		}
	}
	os.Exit(code)
}

func leftGoroutines() string {
	var left []string
	for end := time.Now().Add(testenv.Limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		buf := make([]byte, 1<<20)
		left = left[:0]
		for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, "internal/launch/bootstrap.") && !strings.Contains(g, "TestMain") {
				left = append(left, g)
			}
		}
		if len(left) == 0 {
			return ""
		}
	}
	return strings.Join(left, "\n\n")
}

const (
	testJob = 0xaa
	token   = "00000000000000aa"
)

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Limit)
	t.Cleanup(cancel)
	return ctx
}

func serveAt(t testing.TB, addr string) *Server {
	t.Helper()
	l, err := Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	s := Serve(l, token)
	t.Cleanup(func() { s.Close() })
	return s
}

// rankAt returns the place of a rank of the tests' job.
func rankAt(addr string, rank, size int) *Config {
	return &Config{Rank: rank, Size: size, Job: testJob, Rendezvous: addr}
}

// manyRanks is the size of the job where it does not matter.
const manyRanks = MaxClients

var lastRank atomic.Int32

// dial connects as a rank of its own.
func dial(t testing.TB, addr string) *Client {
	c, _ := dialNext(t, addr)
	return c
}

// dialNext is dial, and returns the rank too.
func dialNext(t testing.TB, addr string) (c *Client, rank int) {
	t.Helper()
	rank = int(lastRank.Add(1))
	c, err := Dial(testContext(t), rankAt(addr, rank, manyRanks), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, rank
}

// stores runs f over every implementation, with two views of one exchange. Keys that begin
// with own are those of a.
func stores(t *testing.T, f func(t *testing.T, a, b Store, own string)) {
	for _, addr := range []string{"tcp:127.0.0.1:0", "127.0.0.1:0", "unix:"} {
		name, _, _ := strings.Cut(addr, ":")
		t.Run(name, func(t *testing.T) {
			if addr == "unix:" {
				addr += filepath.Join(t.TempDir(), "s")
			}
			s := serveAt(t, addr)
			a, rank := dialNext(t, s.Addr())
			f(t, a, dial(t, s.Addr()), keysOf(rank))
		})
	}
	t.Run("server", func(t *testing.T) {
		s := serveAt(t, "127.0.0.1:0")
		f(t, s.Store(), dial(t, s.Addr()), "")
	})
	t.Run("memory", func(t *testing.T) {
		m := NewMemory()
		f(t, m, m, "")
	})
}

func TestValueIsSeenByAll(t *testing.T) {
	stores(t, func(t *testing.T, a, b Store, own string) {
		ctx := testContext(t)
		got := make(chan string, 1)
		go func() {
			v, err := b.Get(ctx, own+"k")
			got <- fmt.Sprint(string(v), err)
		}()
		big := bytes.Repeat([]byte("x"), MaxValueBytes)
		for _, v := range [][]byte{big, {}, []byte("1")} {
			if err := a.Put(ctx, own+"other", v); err != nil {
				t.Fatal(err)
			}
			if w, err := b.Get(ctx, own+"other"); err != nil || !bytes.Equal(v, w) {
				t.Fatalf("put %d bytes, got %d, %v", len(v), len(w), err)
			}
		}
		if v, found, err := b.Look(ctx, own+"k"); err != nil || found {
			t.Fatalf("looked, and found %q, %v, before anything was put", v, err)
		}
		if err := a.Put(ctx, own+"k", []byte("value")); err != nil {
			t.Fatal(err)
		}
		if v, found, err := b.Look(ctx, own+"k"); err != nil || !found || string(v) != "value" {
			t.Fatalf("looked, and found %q: %t, %v", v, found, err)
		}
		if g := <-got; g != "value<nil>" {
			t.Fatalf("blocked get returned %s", g)
		}
	})
}

func TestKeysAndValuesBeyondTheLimitsAreRefused(t *testing.T) {
	stores(t, func(t *testing.T, a, _ Store, own string) {
		ctx := testContext(t)
		for _, err := range []error{
			a.Put(ctx, "", nil),
			a.Put(ctx, own+strings.Repeat("k", MaxKeyBytes+1), nil),
			a.Put(ctx, own+"k", make([]byte, MaxValueBytes+1)),
		} {
			if !errors.Is(err, ErrLimit) {
				t.Errorf("got %v, want ErrLimit", err)
			}
		}
		if err := a.Put(ctx, own+strings.Repeat("k", MaxKeyBytes-len(own)), nil); err != nil {
			t.Error(err)
		}
	})
}

func TestStoreIsBoundedAsAWhole(t *testing.T) {
	ctx := testContext(t)
	m := NewMemory()
	for i := range MaxKeys {
		if err := m.Put(ctx, fmt.Sprint(i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Put(ctx, "more", nil); !errors.Is(err, ErrLimit) {
		t.Errorf("key %d: %v", MaxKeys+1, err)
	}
	value := make([]byte, MaxValueBytes)
	var err error
	for i := 0; err == nil && i < MaxKeys; i++ {
		err = m.Put(ctx, fmt.Sprint(i), value)
	}
	if !errors.Is(err, ErrLimit) {
		t.Errorf("total: %v", err)
	}
	// A limit reached over the wire keeps its name.
	s := serveAt(t, "127.0.0.1:0")
	s.store.bytes = MaxTotalBytes
	c, rank := dialNext(t, s.Addr())
	if err := c.Put(ctx, Key(rank, "k"), nil); !errors.Is(err, ErrLimit) {
		t.Errorf("over the wire: %v", err)
	}
}

func TestEndedContextEndsGet(t *testing.T) {
	stores(t, func(t *testing.T, a, b Store, own string) {
		for range 2 * MaxPending { // more than may be outstanding: a cancelled call counts no longer
			ctx, cancel := context.WithCancel(context.Background())
			go cancel()
			_, err := a.Get(ctx, own+"never")
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("got %v", err)
			}
		}
		ctx := testContext(t)
		if err := a.Put(ctx, own+"k", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Get(ctx, own+"k"); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAbortReachesEveryCall(t *testing.T) {
	s := serveAt(t, "127.0.0.1:0")
	a, rank := dialNext(t, s.Addr())
	own := s.Store()
	ctx := testContext(t)
	blocked := make(chan error, 2)
	for _, store := range []Store{a, own} {
		go func() {
			_, err := store.Get(ctx, "never")
			blocked <- err
		}()
	}
	s.Abort("rank 3 is on fire")
	s.Abort("a later reason")
	for _, err := range []error{<-blocked, <-blocked, a.Put(ctx, Key(rank, "k"), nil), own.Put(ctx, "k", nil)} {
		if e, ok := errors.AsType[*AbortError](err); !ok || e.Reason != "rank 3 is on fire" {
			t.Errorf("got %v", err)
		}
	}
}

func TestCloseUnblocksCalls(t *testing.T) {
	stores(t, func(t *testing.T, a, _ Store, own string) {
		ctx := testContext(t)
		blocked := make(chan error, 1)
		go func() {
			_, err := a.Get(ctx, own+"never")
			blocked <- err
		}()
		a.Close()
		a.Close()
		for _, err := range []error{<-blocked, a.Put(ctx, own+"k", nil)} {
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("got %v", err)
			}
		}
	})
}

func TestCallsEndWithTheServer(t *testing.T) {
	s := serveAt(t, "127.0.0.1:0")
	c := dial(t, s.Addr())
	blocked := make(chan error, 1)
	go func() {
		_, err := c.Get(testContext(t), "never")
		blocked <- err
	}()
	s.Close()
	s.Close()
	if err := <-blocked; err == nil || !strings.Contains(err.Error(), "rendezvous") {
		t.Errorf("got %v", err)
	}
}

func TestNobodyLeavesAFenceBeforeAllAreThere(t *testing.T) {
	s := serveAt(t, "127.0.0.1:0")
	const size = 16
	ctx := testContext(t)
	var mu sync.Mutex
	entered := 0
	var ranks sync.WaitGroup
	for rank := range size {
		c, err := Dial(ctx, rankAt(s.Addr(), rank, size), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ranks.Go(func() {
			mu.Lock()
			entered++
			mu.Unlock()
			if err := Fence(ctx, c, "start", rank, size); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if entered != size {
				t.Errorf("rank %d left after %d entered", rank, entered)
			}
		})
	}
	ranks.Wait()
}

func TestStrangersAreRefused(t *testing.T) {
	s := serveAt(t, "127.0.0.1:0")
	good, rank := dialNext(t, s.Addr())
	_, err := Dial(testContext(t), &Config{Size: manyRanks, Job: testJob + 1, Rendezvous: s.Addr()}, nil)
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "its job id is another one") {
		t.Errorf("wrong token: %v", err)
	}
	hello := appendMessage(nil, message{kind: kindHello, rank: 7, size: manyRanks, body: []byte(helloMagic + token)})
	put := appendMessage(nil, message{kind: kindPut, call: 1, key: Key(7, "stolen"), body: []byte("x")})
	for name, sent := range map[string][]byte{
		"not the protocol":   []byte("GET / HTTP/1.1\r\n\r\n"),
		"no hello":           put,
		"huge":               {0xff, 0xff, 0xff, 0xff, 1},
		"unknown kind":       append(bytes.Clone(hello), 5, 0, 0, 0, 77, 0, 0, 0, 0),
		"second hello":       append(bytes.Clone(hello), hello...),
		"answer as question": append(bytes.Clone(hello), 5, 0, 0, 0, kindOK, 0, 0, 0, 0),
		"short put":          append(bytes.Clone(hello), 6, 0, 0, 0, kindPut, 0, 0, 0, 0, 1),
		"same get twice": append(bytes.Clone(hello), bytes.Repeat(
			appendMessage(nil, message{kind: kindGet, call: 9, key: "never"}), 2)...),
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", s.listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.Write(sent)
			c.SetReadDeadline(time.Now().Add(testenv.Limit))
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection was left open")
			}
		})
	}
	if value, waits, _ := s.store.lookup(Key(7, "stolen")); waits == nil { // the stranger's connection has ended
		t.Errorf("a stranger put %q", value)
	}
	if err := good.Put(testContext(t), Key(rank, "k"), nil); err != nil {
		t.Errorf("the good client suffered: %v", err)
	}
}

// TestHelloOfAnotherVersionIsTold says hello as a rank of another build does, with the right
// job id and with another.
func TestHelloOfAnotherVersionIsTold(t *testing.T) {
	s := serveAt(t, "127.0.0.1:0")
	older, newer := string(protocolVersion[0]-1), string(protocolVersion[0]+1)
	for _, hello := range []string{protocol + older + token, protocol + newer + "another form", protocol + newer} {
		c, err := net.Dial("tcp", s.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(testenv.Limit))
		if _, err := c.Write(appendMessage(nil, message{kind: kindHello, rank: 7, size: manyRanks, body: []byte(hello)})); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("it speaks version %d of the rendezvous, which speaks version %d", hello[4], protocolVersion[0])
		m, err := readMessage(c, maxMessageBytes)
		if err != nil || m.kind != kindRefused || !strings.Contains(string(m.body), want) {
			t.Errorf("%q: answered by kind %d, %q, %v, want %q", hello, m.kind, m.body, err, want)
		}
	}
}

func TestDialWaitsForServer(t *testing.T) {
	addr := "unix:" + filepath.Join(t.TempDir(), "late")
	got := make(chan error, 1)
	go func() {
		c, err := Dial(testContext(t), rankAt(addr, 1, 2), nil)
		if err == nil {
			err = c.Put(testContext(t), Key(1, "k"), nil)
			c.Close()
		}
		got <- err
	}()
	runtime.Gosched()
	serveAt(t, addr)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	_, err := Dial(ctx, rankAt("unix:"+filepath.Join(t.TempDir(), "nobody"), 1, 2), nil)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("nobody there: %v", err)
	}
}

func TestListenReplacesDeadSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen("unix:" + path); err == nil {
		t.Fatal("took over a live socket")
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	serveAt(t, "unix:"+path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket %v, %v", info, err)
	}
}

func TestServingRankStaysForTheOthers(t *testing.T) {
	alone, err := Open(testContext(t), Config{Size: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	alone.Close()

	addr := "unix:" + filepath.Join(t.TempDir(), "s")
	var ranks sync.WaitGroup
	for rank := range 3 {
		ranks.Go(func() {
			s, err := Open(testContext(t), Config{Rank: rank, Size: 3, Job: 5, Rendezvous: addr, Serve: rank == 0}, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if err := Fence(testContext(t), s, "end", rank, 3); err != nil {
				t.Error(err)
			}
			s.Close() // of rank 0: must not cut the others off before their fence returns
		})
	}
	ranks.Wait()
}

// TestLocalAddressReachesTheRendezvous takes each of this machine's addresses for a rendezvous.
func TestLocalAddressReachesTheRendezvous(t *testing.T) {
	const loopback = "127.0.0.1"
	want := map[string]string{"": loopback, "unix:/x": loopback, "127.0.0.1:1": loopback, "tcp:127.0.0.1:1": loopback}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if ip := a.(*net.IPNet).IP; !ip.IsLinkLocalUnicast() {
			want[net.JoinHostPort(ip.String(), "1")] = ip.String()
		}
	}
	for rendezvous, addr := range want {
		got, err := (&Config{Rendezvous: rendezvous}).LocalAddress(testContext(t))
		if err != nil || got.String() != addr {
			t.Errorf("rendezvous %q: got %v, %v, want %s", rendezvous, got, err, addr)
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	c := Config{Rendezvous: "host.invalid:1"}
	if _, err := c.LocalAddress(ended); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), EnvAddress) {
		t.Errorf("got %v, want it to be cancelled and to name %s", err, EnvAddress)
	}
}

//fuzz:inputs 45000
func FuzzParseMessage(f *testing.F) {
	for _, m := range []message{
		{kind: kindHello, rank: 1, size: 2, body: []byte(helloMagic + token)},
		{kind: kindPut, call: 7, key: "key", body: []byte("value")},
		{kind: kindGet, call: 1 << 31, key: "key"},
		{kind: kindLook, call: 3, key: "key"},
		{kind: kindAbsent, call: 3},
		{kind: kindFailed, body: []byte("why")},
	} {
		f.Add(appendMessage(nil, m)[lengthFieldBytes:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMessage(b)
		if err != nil {
			return
		}
		if len(m.key) > MaxKeyBytes {
			t.Fatalf("key of %d bytes", len(m.key))
		}
		if again := appendMessage(nil, m)[lengthFieldBytes:]; !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
	})
}
