package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/secure"
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
	return serveAs(t, addr, &Config{Job: testJob})
}

// serveAs serves the job of c.
func serveAs(t testing.TB, addr string, c *Config) *Server {
	t.Helper()
	l, err := Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Serve(l, c)
	if err != nil {
		t.Fatal(err)
	}
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
	return dialWith(t, addr, nil)
}

// dialWith is dialNext with a job key.
func dialWith(t testing.TB, addr string, key *secure.Key) (c *Client, rank int) {
	t.Helper()
	rank = int(lastRank.Add(1))
	place := rankAt(addr, rank, manyRanks)
	place.Key = key
	c, err := Dial(testContext(t), place, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, rank
}

// everyRendezvous runs f over every implementation, with the parts of two ranks; the first is own.
func everyRendezvous(t *testing.T, f func(t *testing.T, a, b rendezvous, own int)) {
	for _, addr := range []string{"tcp:127.0.0.1:0", "127.0.0.1:0", "unix:"} {
		name, _, _ := strings.Cut(addr, ":")
		t.Run(name, func(t *testing.T) {
			if addr == "unix:" {
				addr += filepath.Join(t.TempDir(), "s")
			}
			s := serveAt(t, addr)
			a, rank := dialNext(t, s.Addr())
			f(t, a, dial(t, s.Addr()), rank)
		})
	}
	for name, addr := range map[string]string{"tcp with a key": "127.0.0.1:0", "unix with a key": "unix:"} {
		t.Run(name, func(t *testing.T) {
			if addr == "unix:" {
				addr += filepath.Join(t.TempDir(), "s")
			}
			key := secure.NewKey()
			s := serveAs(t, addr, &Config{Job: testJob, Key: &key})
			a, rank := dialWith(t, s.Addr(), &key)
			b, _ := dialWith(t, s.Addr(), &key)
			f(t, a, b, rank)
		})
	}
	t.Run("server", func(t *testing.T) {
		s := serveAt(t, "127.0.0.1:0")
		f(t, &local{board: s.board, members: s.members, waits: s.waits, authority: s.authority, size: manyRanks, incarnation: 1}, dial(t, s.Addr()), 0)
	})
	t.Run("local", func(t *testing.T) {
		b, m := newBoard(), newMembers(slog.New(slog.DiscardHandler), time.Second, 0)
		f(t, &local{board: b, members: m, size: 2, incarnation: 1}, &local{board: b, members: m, rank: 1, size: 2, incarnation: 2}, 0)
	})
}

func TestPlaceIsSeenByAll(t *testing.T) {
	everyRendezvous(t, func(t *testing.T, a, b rendezvous, own int) {
		ctx := testContext(t)
		if p, found, err := b.find(ctx, own, false); err != nil || found {
			t.Fatalf("looked, and found %q, %v, before anything was published", p.Place, err)
		}
		got := make(chan string, 1)
		go func() {
			p, found, err := b.find(ctx, own, true)
			got <- fmt.Sprint(len(p.Place), found, err)
		}()
		for i, place := range [][]byte{bytes.Repeat([]byte("x"), MaxPlaceBytes), {}, []byte("1")} {
			if err := a.Publish(ctx, place); err != nil {
				t.Fatal(err)
			}
			if g := fmt.Sprint(MaxPlaceBytes, true, nil); i == 0 {
				if w := <-got; w != g {
					t.Fatalf("who waited got %s, want %s", w, g)
				}
			}
			for _, wait := range []bool{false, true} {
				if p, found, err := b.find(ctx, own, wait); err != nil || !found || !bytes.Equal(place, p.Place) {
					t.Fatalf("published %d bytes, found %d, %t, %v", len(place), len(p.Place), found, err)
				}
			}
		}
	})
}

func TestPlacesAndRanksBeyondTheLimitsAreRefused(t *testing.T) {
	everyRendezvous(t, func(t *testing.T, a, b rendezvous, own int) {
		ctx := testContext(t)
		if err := a.Publish(ctx, make([]byte, MaxPlaceBytes+1)); !errors.Is(err, ErrLimit) {
			t.Errorf("got %v, want ErrLimit", err)
		}
		for _, rank := range []int{-1, manyRanks, 1 << 31} {
			if _, found, err := b.find(ctx, rank, true); err == nil || found {
				t.Errorf("rank %d: found %t, %v", rank, found, err)
			}
		}
		if err := a.Publish(ctx, nil); err != nil {
			t.Error(err)
		}
	})
	s := serveAt(t, "127.0.0.1:0")
	if _, err := join(t, s, 1, MaxRanks+1); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a job of %d ranks: %v", MaxRanks+1, err)
	}
}

func TestEndedContextEndsWaiting(t *testing.T) {
	everyRendezvous(t, func(t *testing.T, a, b rendezvous, own int) {
		for i := range 2 * MaxPending { // more than may be outstanding: a cancelled call counts no longer
			ctx, cancel := context.WithCancel(context.Background())
			go cancel()
			var err error
			if i%2 == 0 {
				_, _, err = a.find(ctx, own, true)
			} else {
				_, err = a.End(ctx)
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("got %v", err)
			}
		}
		ctx := testContext(t)
		if err := a.Publish(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.find(ctx, own, true); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAbortReachesEveryCall(t *testing.T) {
	s := serveAt(t, "127.0.0.1:0")
	a, rank := dialNext(t, s.Addr())
	own := &local{board: s.board, members: s.members, waits: s.waits, authority: s.authority, size: manyRanks, incarnation: 1}
	ctx := testContext(t)
	blocked := make(chan error, 4)
	for _, x := range []rendezvous{a, own} {
		go func() {
			_, _, err := x.find(ctx, rank, true)
			blocked <- err
		}()
		go func() {
			_, err := x.End(ctx)
			blocked <- err
		}()
	}
	s.Abort("rank 3 is on fire")
	s.Abort("a later reason")
	for _, err := range []error{<-blocked, <-blocked, <-blocked, <-blocked, a.Publish(ctx, nil), own.Publish(ctx, nil), own.Leave(ctx)} {
		if e, ok := errors.AsType[*AbortError](err); !ok || e.Reason != "rank 3 is on fire" {
			t.Errorf("got %v", err)
		}
	}
}

func TestCloseUnblocksCalls(t *testing.T) {
	everyRendezvous(t, func(t *testing.T, a, _ rendezvous, own int) {
		ctx := testContext(t)
		blocked := make(chan error, 1)
		go func() {
			_, _, err := a.find(ctx, own, true)
			blocked <- err
		}()
		a.Close()
		a.Close()
		for _, err := range []error{<-blocked, a.Publish(ctx, nil)} {
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("got %v", err)
			}
		}
	})
}

func TestCallsEndWithTheServer(t *testing.T) {
	s := serveAt(t, "127.0.0.1:0")
	c, rank := dialNext(t, s.Addr())
	blocked := make(chan error, 1)
	go func() {
		_, _, err := c.find(testContext(t), rank, true)
		blocked <- err
	}()
	s.Close()
	s.Close()
	if err := <-blocked; err == nil || !strings.Contains(err.Error(), "rendezvous") {
		t.Errorf("got %v", err)
	}
}

// meet publishes a rank's place, waits until all ranks of a job have, and leaves.
func meet(ctx context.Context, m *Member, size int) error {
	if err := m.Publish(ctx, nil); err != nil {
		return err
	}
	for rank := range size {
		if _, err := m.Find(ctx, rank); err != nil && !errors.Is(err, ErrLeft) {
			return err
		}
	}
	return m.Leave(ctx)
}

func TestStrangersAreRefused(t *testing.T) {
	s := serveAt(t, "127.0.0.1:0")
	s.members.silence = time.Millisecond // each stranger takes the place of the one before
	good := dial(t, s.Addr())
	_, err := Dial(testContext(t), &Config{Size: manyRanks, Job: testJob + 1, Rendezvous: s.Addr()}, nil)
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "its job id is another one") {
		t.Errorf("wrong token: %v", err)
	}
	hello := appendMessage(nil, message{kind: kindHello, rank: 7, size: manyRanks, body: helloBody(&introduction{level: askAuto}, token)})
	publish := appendMessage(nil, message{kind: kindPublish, call: 1, body: []byte("stolen")})
	for name, sent := range map[string][]byte{
		"not the protocol":   []byte("GET / HTTP/1.1\r\n\r\n"),
		"no hello":           publish,
		"huge":               {0xff, 0xff, 0xff, 0xff, 1},
		"unknown kind":       append(bytes.Clone(hello), 5, 0, 0, 0, 77, 0, 0, 0, 0),
		"second hello":       append(bytes.Clone(hello), hello...),
		"answer as question": append(bytes.Clone(hello), 5, 0, 0, 0, kindOK, 0, 0, 0, 0),
		"short find":         append(bytes.Clone(hello), 6, 0, 0, 0, kindFind, 0, 0, 0, 0, 1),
		"long find":          append(bytes.Clone(hello), 10, 0, 0, 0, kindFind, 0, 0, 0, 0, 1, 0, 0, 0, 0),
		"short sign": append(bytes.Clone(hello), appendMessage(nil,
			message{kind: kindSign, call: 1, body: make([]byte, signBytes-1)})...),
		"long sign": append(bytes.Clone(hello), appendMessage(nil,
			message{kind: kindSign, call: 1, body: make([]byte, signBytes+1)})...),
		"TLS":             []byte(tlsHandshake + "\x00\x10 and more of that"),
		"no level":        appendMessage(nil, message{kind: kindHello, rank: 7, size: manyRanks, body: []byte(helloMagic)}),
		"the token alone": appendMessage(nil, message{kind: kindHello, rank: 7, size: manyRanks, body: []byte(helloMagic + token)}),
		"level unknown":   appendMessage(nil, message{kind: kindHello, rank: 7, size: manyRanks, body: helloBody(&introduction{level: 0xff}, token)}),
		"long place": append(bytes.Clone(hello), appendMessage(nil,
			message{kind: kindPublish, call: 1, body: make([]byte, MaxPlaceBytes+placeHead+1)})...),
		"same find twice": append(bytes.Clone(hello), bytes.Repeat(
			appendMessage(nil, message{kind: kindFind, call: 9, number: 7}), 2)...),
		"another job's hello, then a place": append(appendMessage(nil,
			message{kind: kindHello, rank: 7, size: manyRanks, body: helloBody(&introduction{level: askAuto}, "00000000000000ab")}), publish...),
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
	if p, found, _ := good.find(testContext(t), 7, false); found { // the strangers' connections have ended
		t.Errorf("a stranger published %q", p.Place)
	}
	if err := good.Publish(testContext(t), nil); err != nil {
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

// TestRefusalIsReadByAllVersions answers a hello as servers of all versions refuse it: with
// the same kind, whose number must not change.
func TestRefusalIsReadByAllVersions(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		m, _ := readMessage(c, maxMessageBytes)
		refusal := append([]byte{132, byte(m.call), 0, 0, 0}, "it is of another version"...)
		_, _ = c.Write(append([]byte{byte(len(refusal)), 0, 0, 0}, refusal...))
	}()
	_, err = Dial(testContext(t), rankAt("tcp:"+l.Addr().String(), 1, 2), nil)
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "it is of another version") {
		t.Errorf("got %v, want it refused", err)
	}
}

func TestDialWaitsForServer(t *testing.T) {
	addr := "unix:" + filepath.Join(t.TempDir(), "late")
	got := make(chan error, 1)
	go func() {
		c, err := Dial(testContext(t), rankAt(addr, 1, 2), nil)
		if err == nil {
			err = c.Publish(testContext(t), nil)
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
	alone, err := Open(testContext(t), Config{Size: 1}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	alone.Close()

	addr := "unix:" + filepath.Join(t.TempDir(), "s")
	var ranks sync.WaitGroup
	for rank := range 3 {
		ranks.Go(func() {
			s, err := Open(testContext(t), Config{Rank: rank, Size: 3, Job: 5, Rendezvous: addr, Serve: rank == 0}, nil, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if err := meet(testContext(t), s, 3); err != nil {
				t.Error(err)
			}
			s.Close() // of rank 0: must not cut the others off before they have met
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
		got, err := (&Config{Rendezvous: rendezvous}).LocalAddress(testContext(t), netip.Addr{})
		if err != nil || got.String() != addr {
			t.Errorf("rendezvous %q: got %v, %v, want %s", rendezvous, got, err, addr)
		}
	}
	for _, reached := range []netip.Addr{netip.IPv6Loopback(), netip.MustParseAddr(loopback)} { // by a name that leads to both
		got, err := (&Config{Rendezvous: "localhost:1"}).LocalAddress(testContext(t), reached)
		if err != nil || got != reached {
			t.Errorf("from localhost, at %v: got %v, %v", reached, got, err)
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	c := Config{Rendezvous: "no..name:1"} // refused without a question
	for _, ctx := range []context.Context{ended, endedUnseen{context.Background()}} {
		if _, err := c.LocalAddress(ctx, netip.Addr{}); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), EnvAddress) {
			t.Errorf("got %v, want it to be cancelled and to name %s", err, EnvAddress)
		}
	}
}

// endedUnseen is a context that ends while a lookup fails, which reports the failure alone.
type endedUnseen struct{ context.Context }

func (endedUnseen) Err() error { return context.Canceled }

//fuzz:inputs 45000
func FuzzParseMessage(f *testing.F) {
	suspicion := &End{EndedError: EndedError{Rank: 3, Incarnation: 9, Reason: "why"}, Suspected: true, Asker: noRank, Question: 7}
	for _, m := range []message{
		{kind: kindHello, rank: 1, size: 2, body: helloBody(&introduction{level: askAuto}, token)},
		{kind: kindPublish, call: 7, body: []byte("place")},
		{kind: kindFind, call: 1 << 31, number: 1 << 31},
		{kind: kindLook, call: 3, number: 7},
		{kind: kindEnd, call: 4},
		{kind: kindAbsent, call: 3},
		{kind: kindSign, call: 5, body: make([]byte, signBytes)},
		{kind: kindFailed, body: []byte("why")},
		{kind: kindAsked, body: appendAsked(nil, suspicion, true)},
		{kind: kindNews, body: appendNews(nil, suspicion)},
		{kind: kindEnded, body: appendEnded(nil, &suspicion.EndedError)},
		{kind: kindPart, body: []byte("why")},
		{kind: kindWaits, body: appendWaits(nil, []Wait{{Rank: 1, For: 2, What: "a lock"}})},
		{kind: kindBusy, body: []byte("why")},
		{kind: kindClosing, body: []byte("why")},
	} {
		f.Add(appendMessage(nil, m)[lengthFieldBytes:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMessage(b)
		if err != nil {
			return
		}
		if again := appendMessage(nil, m)[lengthFieldBytes:]; !bytes.Equal(again, b) {
			t.Fatalf("%x became %x", b, again)
		}
		switch m.kind { // what the ends make of it
		case kindHello:
			if said, theirs, ok := parseHello(m.body); ok && !bytes.Equal(helloBody(&said, string(theirs)), m.body) && said.from.IsValid() {
				t.Fatalf("the hello %x became %+v", m.body, said)
			}
		case kindNews:
			if e, err := parseNews(m.body); err == nil && e.Suspected == (m.body[4] == 0) {
				t.Fatalf("%x became %+v", m.body, e)
			}
		case kindEnded:
			_, _ = parseEnded(m.body)
		case kindAsked:
			if e, lives := parseAsked(m.body); m.body[16] < 2 && !bytes.Equal(appendAsked(nil, e, lives), m.body) {
				t.Fatalf("%x became %+v, %t", m.body, e, lives)
			}
		case kindOK:
			_, _ = parsePublished(m.body)
			_, _ = parseWelcome(m.body, &Config{}, false)
			_, _ = parseWelcome(m.body, &Config{Key: &secure.Key{}}, true)
		}
	})
}
