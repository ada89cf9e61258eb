package bootstrap

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// TestAutoMeansSignBetweenHosts resolves the level of a rendezvous at addresses of all kinds.
func TestAutoMeansSignBetweenHosts(t *testing.T) {
	key := secure.NewKey()
	at := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip)} }
	for _, test := range []struct {
		key  *secure.Key
		asks Security
		at   net.Addr
		want secure.Level
	}{
		{&key, "", at("10.9.7.1"), secure.Sign},
		{&key, Auto, at("10.9.7.1"), secure.Sign},
		{&key, "", at("::"), secure.Sign},
		{&key, "", at("127.0.0.1"), secure.None},
		{&key, "", at("::1"), secure.None},
		{&key, "", &net.UnixAddr{Name: "/x"}, secure.None},
		{&key, "", nil, secure.None},
		{&key, "sign", &net.UnixAddr{Name: "/x"}, secure.Sign},
		{&key, "sign", nil, secure.Sign},
		{&key, "none", at("10.9.7.1"), secure.None},
	} {
		a, err := (&Config{Key: test.key, Security: test.asks}).newAuthority(test.at)
		if err != nil || a.level != test.want {
			t.Errorf("%q at %v: %v, %v", test.asks, test.at, a, err)
		}
	}
	for _, asks := range []Security{"", Auto, "none"} {
		if a, err := (&Config{Security: asks}).newAuthority(at("10.9.7.1")); err != nil || a != nil {
			t.Errorf("%q without a key: %v, %v", asks, a, err)
		}
	}
}

func TestSignWithoutAKeySaysHowToGetOne(t *testing.T) {
	for _, c := range []Config{
		{Size: 1, Security: "sign"},
		{Size: 2, Security: "sign", Rendezvous: "127.0.0.1:0", Serve: true},
		{Size: 2, Rank: 1, Security: "sign", Rendezvous: "127.0.0.1:1"},
	} {
		_, err := Open(testContext(t), c, nil, nil)
		if err == nil || !strings.Contains(err.Error(), "xdprma key job.key") || !strings.Contains(err.Error(), EnvKeyFile) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := Open(testContext(t), Config{Size: 1, Security: "hide"}, nil, nil); err == nil || !strings.Contains(err.Error(), `"hide" is not auto, none, sign or seal`) {
		t.Errorf("an unknown level: %v", err)
	}
}

// TestRankLearnsWhatItsKeyIsFor has the rank that serves the rendezvous and another learn the
// secrets of the run, and find each other's tickets.
func TestRankLearnsWhatItsKeyIsFor(t *testing.T) {
	key := secure.NewKey()
	ctx := testContext(t)
	var before secure.Secrets
	for _, level := range []secure.Level{secure.None, secure.Sign} {
		place := Config{Size: 2, Job: testJob, Rendezvous: "unix:" + filepath.Join(t.TempDir(), "s"), Serve: true, Key: &key, Security: Security(level.String())}
		first, err := Open(ctx, place, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close()
		place.Rank, place.Serve, place.Security = 1, false, Auto
		second, err := Open(ctx, place, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		secrets, ok := first.Secrets()
		theirs, too := second.Secrets()
		if !ok || !too || secrets != theirs || secrets == (secure.Secrets{}) {
			t.Errorf("secrets %+v, %t and %+v, %t", secrets, ok, theirs, too)
		}
		if secrets.Job == before.Job || secrets.PSK == before.PSK {
			t.Error("two runs with one key have the same secrets")
		}
		before = secrets
		if first.Level() != level || second.Level() != level {
			t.Errorf("levels %v and %v, want %v", first.Level(), second.Level(), level)
		}
		if len(first.SigningKey()) == 0 || !bytes.Equal(first.SigningKey(), second.SigningKey()) {
			t.Errorf("keys %x and %x", first.SigningKey(), second.SigningKey())
		}
		for rank, m := range []*Member{first, second} {
			if err := m.Publish(ctx, []byte("here")); err != nil {
				t.Fatal(err)
			}
			if p, err := m.Find(ctx, rank); err != nil || p.Ticket != nil {
				t.Errorf("rank %d has the ticket %x before it was signed, %v", rank, p.Ticket, err)
			}
			want := secure.Ticket{Job: secrets.Job, Incarnation: m.Incarnation, Rank: uint32(rank), Level: level,
				Address: netip.MustParseAddrPort([]string{"10.9.7.1:7770", "[fd77::2]:1"}[rank]), Static: [32]byte{byte(rank), 7}}
			ticket, err := m.Sign(ctx, want.Static, want.Address)
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := secure.ParseTicket(ticket); !ok || got != want || !secure.VerifyTicket(ticket, second.SigningKey()) {
				t.Errorf("ticket %+v, want %+v, verified %t", got, want, secure.VerifyTicket(ticket, second.SigningKey()))
			}
			for _, other := range []*Member{first, second} {
				p, err := other.Find(ctx, rank)
				if err != nil || !bytes.Equal(p.Ticket, ticket) || string(p.Place) != "here" || p.Incarnation != m.Incarnation {
					t.Errorf("found ticket %x, place %q, %v", p.Ticket, p.Place, err)
				}
				if p, found, err := other.FindNow(ctx, rank); err != nil || !found || !bytes.Equal(p.Ticket, ticket) {
					t.Errorf("looked, and found ticket %x, %t, %v", p.Ticket, found, err)
				}
			}
		}
		if _, err := second.Sign(ctx, [32]byte{}, netip.AddrPort{}); err == nil {
			t.Error("a ticket without an address was signed")
		}
	}
}

// TestTicketGoesWithItsProcess starts a rank anew: the ticket of its last process is of no use
// with the place of this one.
func TestTicketGoesWithItsProcess(t *testing.T) {
	key := secure.NewKey()
	ctx := testContext(t)
	s := serveAs(t, "127.0.0.1:0", &Config{Job: testJob, Key: &key})
	s.members.limit = time.Hour
	at := netip.MustParseAddrPort("10.9.7.1:7770")
	other, err := joinWith(t, s, 0, 2, &key)
	if err != nil {
		t.Fatal(err)
	}
	var last []byte
	for life := range 2 {
		m, err := joinWith(t, s, 1, 2, &key)
		if err != nil {
			t.Fatal(err)
		}
		ticket, err := m.Sign(ctx, [32]byte{byte(life)}, at)
		if err != nil {
			t.Fatal(err)
		}
		if p, _, err := other.FindNow(ctx, 1); life == 1 && p.Ticket != nil {
			t.Errorf("the place of the last process comes with the ticket %x, %v", p.Ticket, err)
		}
		if err := m.Publish(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if p, err := other.Find(ctx, 1); err != nil || !bytes.Equal(p.Ticket, ticket) || bytes.Equal(p.Ticket, last) {
			t.Errorf("life %d: ticket %x, %v", life, p.Ticket, err)
		}
		last = ticket
		m.Close()
	}
	again, err := joinWith(t, s, 1, 2, &key)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Publish(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if p, err := other.Find(ctx, 1); err != nil || p.Ticket != nil {
		t.Errorf("a process that has none comes with the ticket %x, %v", p.Ticket, err)
	}
}

func TestJobWithoutAKeySignsNothing(t *testing.T) {
	s := serveAt(t, "127.0.0.1:0")
	client, err := join(t, s, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := Open(testContext(t), Config{Size: 1}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort("10.9.7.1:7770")
	for _, m := range []*Member{client, alone} {
		if b, err := m.Sign(testContext(t), [32]byte{}, at); !errors.Is(err, errUnsigned) {
			t.Errorf("%x, %v", b, err)
		}
		if _, ok := m.Secrets(); ok || m.SigningKey() != nil || m.Level() != secure.None {
			t.Errorf("secrets %t, key %x, level %v", ok, m.SigningKey(), m.Level())
		}
	}
	_, err = client.rendezvous.(*Client).call(testContext(t), message{kind: kindSign, body: appendSign(nil, [32]byte{}, at)})
	if err == nil || !strings.Contains(err.Error(), errUnsigned.Error()) {
		t.Errorf("asked all the same: %v", err)
	}
}

// awaitRefusal waits until s has counted a refusal, and returns its words.
func awaitRefusal(t *testing.T, s *Server) string {
	t.Helper()
	for ctx := testContext(t); ctx.Err() == nil; time.Sleep(time.Millisecond) {
		s.members.mu.Lock()
		n, text := s.members.refused, s.members.refusal
		s.members.mu.Unlock()
		if n > 0 {
			return text
		}
	}
	t.Fatal("no refusal was counted")
	return ""
}

// TestProcessesThatDisagreeOnSecurityAreTold joins with another key than the rendezvous's, with
// one where it has none, without one, and with another level.
func TestProcessesThatDisagreeOnSecurityAreTold(t *testing.T) {
	key, other := secure.NewKey(), secure.NewKey()
	for _, test := range []struct {
		name         string
		server, rank Config
		want         string // in the rank's error
		counted      string // by the server
	}{
		{"another key", Config{Key: &key}, Config{Key: &other}, "the job keys differ", "the job keys differ"},
		{"no key", Config{Key: &key}, Config{}, "the job has a key, and this process has none", "this process has none"},
		{"a key too many", Config{}, Config{Key: &key}, "this process has a job key, and the rendezvous has none", "it has a job key"},
		{"too low a level", Config{Key: &key, Security: "sign"}, Config{Key: &key, Security: "none"}, "asks for the level of security none, and the job has sign", ""},
		{"too high a level", Config{Key: &key, Security: "none"}, Config{Key: &key, Security: "sign"}, "asks for the level of security sign, and the job has none", ""},
	} {
		for _, network := range []string{"tcp", "unix"} {
			t.Run(test.name+" over "+network, func(t *testing.T) {
				addr := "127.0.0.1:0"
				if network == "unix" {
					addr = "unix:" + filepath.Join(t.TempDir(), "s")
				}
				test.server.Job = testJob
				s := serveAs(t, addr, &test.server)
				place := *rankAt(s.Addr(), 1, 2)
				place.Key, place.Security = test.rank.Key, test.rank.Security
				attempts := 0
				_, err := Open(testContext(t), place, nil, func(error) { attempts++ })
				if !errors.Is(err, ErrRefused) || strings.Count(err.Error(), test.want) != 1 || attempts > 0 {
					t.Errorf("after %d attempts: %v, want %q", attempts, err, test.want)
				}
				if test.counted != "" {
					if got := awaitRefusal(t, s); !strings.Contains(got, test.counted) {
						t.Errorf("counted %q, want %q", got, test.counted)
					}
				}
				if m, err := joinWith(t, s, 1, 2, test.server.Key); err != nil {
					t.Errorf("a rank that agrees: %v", err)
				} else if m.Level() != s.level() {
					t.Errorf("level %v, want %v", m.Level(), s.level())
				}
			})
		}
	}
}

func (s *Server) level() secure.Level {
	if s.authority == nil {
		return secure.None
	}
	return s.authority.level
}

// TestOnlyTheKeyOpensTheConnection speaks TLS with the rendezvous in ways that a rank does not.
func TestOnlyTheKeyOpensTheConnection(t *testing.T) {
	key, other := secure.NewKey(), secure.NewKey()
	s := serveAs(t, "127.0.0.1:0", &Config{Job: testJob, Key: &key})
	change := func(k *secure.Key, f func(*tls.Config)) *tls.Config {
		c, err := pinned(k)
		if err != nil {
			t.Fatal(err)
		}
		f(c)
		return c
	}
	trusting := func(c *tls.Config) { c.VerifyConnection = nil }
	for name, config := range map[string]*tls.Config{
		"no certificate": change(&key, func(c *tls.Config) { c.Certificates = nil }),
		"another key":    change(&other, trusting),
		"TLS 1.2":        change(&key, func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 }),
		"another protocol": change(&key, func(c *tls.Config) {
			trusting(c)
			c.NextProtos = []string{"h2"}
		}),
		"no protocol": change(&key, func(c *tls.Config) {
			trusting(c)
			c.NextProtos = nil
		}),
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := net.Dial("tcp", s.listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close()
			if err := raw.SetDeadline(time.Now().Add(testenv.Limit)); err != nil {
				t.Fatal(err)
			}
			c := tls.Client(raw, config)
			_, err = c.Write(appendMessage(nil, message{kind: kindHello, rank: 7, size: manyRanks, body: helloBody(&introduction{level: askAuto}, token)}))
			n, readErr := io.Copy(io.Discard, c)
			if n > 0 || err == nil && readErr == nil {
				t.Errorf("it was answered with %d bytes, %v, %v", n, err, readErr)
			}
		})
	}
	if _, err := joinWith(t, s, 7, manyRanks, &key); err != nil {
		t.Errorf("a rank: %v", err)
	}
}

// TestImpostorDoesNotGetTheToken has somebody without the key wait where the rendezvous is
// looked for: it learns nothing.
func TestImpostorDoesNotGetTheToken(t *testing.T) {
	key, other := secure.NewKey(), secure.NewKey()
	config, err := pinned(&other)
	if err != nil {
		t.Fatal(err)
	}
	config.VerifyConnection = nil
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan []byte, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- nil
			return
		}
		defer c.Close()
		b, _ := io.ReadAll(tls.Server(c, config))
		got <- b
	}()
	place := rankAt("tcp:"+l.Addr().String(), 1, 2)
	place.Key = &key
	if _, err := Dial(testContext(t), place, nil); !errors.Is(err, ErrRefused) || !errors.Is(err, errOtherKey) {
		t.Errorf("%v", err)
	}
	if b := <-got; len(b) > 0 {
		t.Errorf("the impostor was told %q", b)
	}
}

func TestMalformedWelcomesAreRefused(t *testing.T) {
	c := &credentials{secure.Key{2}, secure.Run{1}, make([]byte, 32), secure.Sign}
	keyed, met := &Config{Key: &c.key}, &Config{meeting: &meeting{}}
	good, handed := appendWelcome(nil, 9, noRank, false, c, false), appendWelcome(nil, 9, 3, true, c, true)
	for place, b := range map[*Config][]byte{keyed: good, met: handed} {
		by := noRank
		if place == met {
			by = 3
		}
		if w, err := parseWelcome(b, place, false); err != nil || w.incarnation != 9 || w.server != by || w.near != (place == met) || w.credentials.run != c.run || w.credentials.level != c.level || w.credentials.key != c.key {
			t.Errorf("%+v, %v", w, err)
		}
	}
	plain := appendWelcome(nil, 9, noRank, false, nil, false)
	if w, err := parseWelcome(plain, &Config{}, false); err != nil || w.incarnation != 9 || w.credentials != nil {
		t.Errorf("without a key: %+v, %v", w, err)
	}
	odd := bytes.Clone(good)
	odd[len(odd)-1] = 7
	for _, b := range [][]byte{nil, plain, good[:len(good)-1], append(bytes.Clone(good), 0), odd} {
		if _, err := parseWelcome(b, keyed, false); !errors.Is(err, errMalformed) {
			t.Errorf("%x: %v", b, err)
		}
	}
	if _, err := parseWelcome(good, met, false); !errors.Is(err, errMalformed) {
		t.Errorf("without the key: %v", err)
	}
	if _, err := parseWelcome(handed, keyed, false); !errors.Is(err, errMalformed) {
		t.Errorf("with a key too many: %v", err)
	}
	if _, err := parseWelcome(good, keyed, true); !errors.Is(err, errMalformed) {
		t.Errorf("to a process that comes again, without proof: %v", err)
	}
	if _, err := parseWelcome(good, &Config{}, false); !errors.Is(err, errMalformed) {
		t.Errorf("with credentials that nobody has asked for: %v", err)
	}
}

// asNobody runs f in a thread that is of another user.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	const nobody = 65534
	set := func(user uintptr) {
		keep := ^uintptr(0)
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, user, keep); e != 0 { // of this thread alone
			t.Fatal(e)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	set(nobody)
	defer set(0)
	f()
}

// TestUnixSocketIsForOneUser has a process of another user connect to the rendezvous, and
// another listen in its place. That each could open the socket does not help.
func TestUnixSocketIsForOneUser(t *testing.T) {
	testenv.NeedsRoot(t)
	name := "@xdprma-test-" + filepath.Base(t.TempDir()) + t.Name() // in no folder, so that all may open it
	s := serveListening(t, name)
	greeting := appendMessage(nil, message{kind: kindHello, rank: 1, size: 2, body: helloBody(&introduction{level: askAuto}, token)})
	var answer message
	var err error
	asNobody(t, func() {
		var c net.Conn
		if c, err = net.Dial("unix", name); err != nil {
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(testenv.Limit))
		if _, err = c.Write(greeting); err == nil {
			answer, err = readMessage(c, maxMessageBytes)
		}
	})
	if err != nil || answer.kind != kindRefused || !strings.Contains(string(answer.body), "is user 65534's") {
		t.Errorf("kind %d, %q, %v", answer.kind, answer.body, err)
	}
	if _, err := join(t, s, 1, 2); err != nil {
		t.Errorf("a process of the user: %v", err)
	}
	s.Close()

	var l net.Listener
	asNobody(t, func() { l, err = net.Listen("unix", name) })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Dial(testContext(t), rankAt("unix:"+name, 1, 2), nil); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "is user 65534's") {
		t.Errorf("joined at another user's: %v", err)
	}
}

// serveListening serves at a unix socket of a name that Listen does not take.
func serveListening(t *testing.T, name string) *Server {
	t.Helper()
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Serve(l, &Config{Job: testJob})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
