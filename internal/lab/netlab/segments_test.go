package netlab

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// A forged segment has the effect that it would have from the other end, at the end that it is sent to
// and at no other.
func TestForgedSegmentsAreTaken(t *testing.T) {
	effects := map[string]func(err error, read string) bool{
		"FIN":                   func(err error, read string) bool { return err == io.EOF },
		"RST":                   func(err error, read string) bool { return errors.Is(err, unix.ECONNRESET) },
		"RST within the window": func(err error, read string) bool { return read == "genuine" },
		"noise":                 func(err error, read string) bool { return read == "\xfe\xfd" },
		"alert in clear":        func(err error, read string) bool { return read == "\x15\x03\x03\x00\x02\x01\x00" },
		"earlier segment":       func(err error, read string) bool { return read == "genuine" },
	}
	l := newLab(t, Config{Ranks: 3})
	for _, a := range Forgeries {
		for _, toPort := range []bool{true, false} {
			server, client, f := connection(t, l)
			victim, other := server, client
			if !toPort {
				victim, other = client, server
			}
			sent := 0
			testenv.Await(t, "the first segments", func() bool {
				var err error
				if sent, err = f.Send(a, 1, toPort); err != nil {
					t.Fatal(err)
				}
				return sent > 0
			})
			b := make([]byte, 100)
			if effects[a.Name](nil, "genuine") { // there is nothing else to be read
				say(t, other, "genuine")
			}
			n, err := victim.Read(b)
			if sent != 1 || !effects[a.Name](err, string(b[:n])) {
				t.Errorf("%s, to the port %v, sent %d times: the end read %q, %v", a.Name, toPort, sent, b[:n], err)
			}
			if err := errors.Join(server.Close(), client.Close(), f.Close()); err != nil {
				t.Error(err)
			}
		}
	}
}

// connection returns both ends of a connection in which each has said something, and a Forger beside it.
func connection(t *testing.T, l *Lab) (server, client net.Conn, f *Forger) {
	t.Helper()
	var listener net.Listener
	err := l.Do(0, func() (err error) {
		listener, err = net.Listen("tcp4", netip.AddrPortFrom(l.Addr(0), 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if f, err = l.Forge(0, listener.Addr().(*net.TCPAddr).AddrPort().Port()); err != nil {
		t.Fatal(err)
	}
	err = l.Do(1, func() (err error) {
		client, err = (&net.Dialer{Timeout: testenv.Limit, FallbackDelay: -1}).Dial("tcp4", listener.Addr().String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if server, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	for _, ends := range [][2]net.Conn{{server, client}, {client, server}} {
		if err := ends[1].SetDeadline(time.Now().Add(testenv.Limit)); err != nil {
			t.Fatal(err)
		}
		say(t, ends[0], "hello")
		if _, err := io.ReadFull(ends[1], make([]byte, len("hello"))); err != nil {
			t.Fatal(err)
		}
	}
	return server, client, f
}

func say(t *testing.T, c net.Conn, what string) {
	t.Helper()
	if _, err := c.Write([]byte(what)); err != nil {
		t.Fatal(err)
	}
}

func TestForgerNeedsBridge(t *testing.T) {
	if _, err := newLab(t, Config{Ranks: 2}).Forge(0, 1); err == nil {
		t.Error("no error without a bridge")
	}
}
