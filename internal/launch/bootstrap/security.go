package bootstrap

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// Security is the level of security that a process asks for: a name of secure.LevelNames, or
// Auto, which is the same as the empty string. Then a process takes the rendezvous's, and the
// rendezvous takes sign for a job with a key that others than processes of this host may reach.
type Security string

// Auto leaves the level of security to the rendezvous.
const Auto Security = "auto"

// SecurityNames lists what a process may ask for.
const SecurityNames = "auto, " + secure.LevelNames

// valid reports whether a process may ask for s.
func (s Security) valid() bool {
	_, _, err := s.level()
	return err == nil
}

// level returns the level that s asks for, if it asks for one.
func (s Security) level() (level secure.Level, asks bool, err error) {
	if s == "" || s == Auto {
		return secure.None, false, nil
	}
	if level, err = secure.ParseLevel(string(s)); err != nil {
		err = fmt.Errorf("the level of security %q is not %s", string(s), SecurityNames)
	}
	return level, true, err
}

// howToGetAKey ends the words for a process that has no job key.
const howToGetAKey = "make one with `xdprma key job.key`, and name it to all ranks by " + EnvKeyFile

// checkSecurity returns why c cannot have the security that it asks for, or nil.
func (c *Config) checkSecurity() error {
	level, _, err := c.Security.level()
	if err != nil {
		return err
	}
	if level > secure.None && c.Key == nil && c.meeting == nil {
		return fmt.Errorf("the level of security %v takes a job key, and this process has none: "+howToGetAKey, level)
	}
	return nil
}

// withinHost reports whether only processes of this host reach an address; without one,
// this process alone does.
func withinHost(at net.Addr) bool {
	tcp, ok := at.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// authority is what the rendezvous of a job with a key has to admit its ranks and to tell
// them apart.
type authority struct {
	tls    *tls.Config
	run    secure.Run
	job    uint64 // as tickets name it
	signer ed25519.PrivateKey
	level  secure.Level

	key     secure.Key
	meeting *meeting // nil: all ranks have the key
}

// newAuthority returns the authority of a job that is served at an address, nil where the job
// has no key.
func (c *Config) newAuthority(at net.Addr) (*authority, error) {
	if err := c.checkSecurity(); err != nil || c.Key == nil {
		return nil, err
	}
	a := &authority{key: *c.Key, meeting: c.meeting}
	var asks bool
	var err error
	if a.level, asks, err = c.Security.level(); err != nil {
		return nil, err
	}
	if !asks && !withinHost(at) {
		a.level = secure.Sign
	}
	_, _ = rand.Read(a.run[:]) // never fails
	a.job = a.key.Secrets(a.run).Job
	if _, a.signer, err = ed25519.GenerateKey(nil); err != nil {
		return nil, err
	}
	a.tls, err = c.tls()
	return a, err
}

// tls returns what the rendezvous is spoken with over; nil for a job without a key.
func (c *Config) tls() (*tls.Config, error) {
	switch {
	case c.meeting != nil:
		return c.meeting.tls()
	case c.Key != nil:
		return pinned(c.Key)
	}
	return nil, nil
}

// credentials returns what the authority tells the ranks; nil without one.
func (a *authority) credentials() *credentials {
	if a == nil {
		return nil
	}
	return &credentials{a.key, a.run, a.signer.Public().(ed25519.PublicKey), a.level}
}

// welcome returns the answer to the hello over a connection at a rendezvous that the rank by serves. To a process that was
// admitted before, the rendezvous proves that it is the same one, too.
func (a *authority) welcome(conn net.Conn, incarnation uint64, by int, near, again bool) ([]byte, error) {
	b := appendWelcome(nil, incarnation, by, near, a.credentials(), a != nil && a.meeting != nil)
	if a == nil || !again {
		return b, nil
	}
	words, err := sameAgain(conn)
	if err != nil {
		return nil, err
	}
	return append(b, ed25519.Sign(a.signer, words)...), nil
}

// checkRank returns an error unless the other end of a connection may speak as a rank.
func (a *authority) checkRank(conn net.Conn, rank int) error {
	if a == nil {
		return nil
	}
	return a.meeting.checkRank(conn, rank)
}

var (
	errUnsigned      = errors.New("the job has no key, and so its rendezvous signs nothing")
	errTicketAddress = errors.New("a ticket without an address was asked for")
)

// ticket returns the signed ticket of a process.
func (a *authority) ticket(rank int, incarnation uint64, static [32]byte, at netip.AddrPort) ([]byte, error) {
	if a == nil {
		return nil, errUnsigned
	}
	if !at.IsValid() {
		return nil, errTicketAddress
	}
	t := secure.Ticket{Job: a.job, Incarnation: incarnation, Rank: uint32(rank), Level: a.level, Address: at, Static: static}
	b := t.Sign(a.signer)
	return b[:], nil
}

// agrees returns an error unless the job has the level that a process asks for in its hello.
func (a *authority) agrees(asked byte) error {
	level := secure.None
	if a != nil {
		level = a.level
	}
	if asked != askAuto && asked != askLevel+byte(level) {
		return fmt.Errorf("it asks for the level of security %v, and the job has %v: set %s to the same for all ranks and for what serves the rendezvous",
			secure.Level(asked-askLevel), level, EnvSecurity)
	}
	return nil
}

// Words of a hello about the level.
const (
	askAuto  = 0
	askLevel = 1 // plus the level
)

// askedLevel returns what c's hello says of the level.
func (c *Config) askedLevel() byte {
	level, asks, _ := c.Security.level() // it has been checked
	if !asks {
		return askAuto
	}
	return askLevel + byte(level)
}

// credentials are what the rendezvous of a job with a key tells each rank.
type credentials struct {
	key     secure.Key
	run     secure.Run
	signing ed25519.PublicKey // of tickets
	level   secure.Level
}

const credentialsLen = len(secure.Run{}) + ed25519.PublicKeySize + 1

// appendWelcome appends the answer to a hello to b. It hands over the key, too, to a rank that
// has none.
func appendWelcome(b []byte, incarnation uint64, by int, near bool, c *credentials, handKey bool) []byte {
	b = binary.LittleEndian.AppendUint64(b, incarnation)
	b = append(binary.LittleEndian.AppendUint32(b, uint32(by)), flag(near))
	if c == nil {
		return b
	}
	b = append(append(b, c.run[:]...), c.signing...)
	b = append(b, byte(c.level))
	if handKey {
		b = append(b, c.key[:]...)
	}
	return b
}

// refusal returns the body of a refusal over a connection. To a process that comes again it is signed: no member in
// between ends it.
func (a *authority) refusal(conn net.Conn, again bool, why string) []byte {
	if a == nil || !again {
		return []byte(why)
	}
	words, err := refusedAgain(conn, why)
	if err != nil {
		return []byte(why) // which it does not believe
	}
	return append(ed25519.Sign(a.signer, words), why...)
}

// welcome is the answer to a hello.
type welcome struct {
	incarnation uint64       // of this process
	server      int          // the rank that serves the rendezvous, or noRank
	near        bool         // both ends are on one host
	credentials *credentials // nil: the job has no key
	proof       []byte       // that the rendezvous is the one that has admitted this process before; nil: none is due
}

// parseWelcome reads the answer to the hello of a process with a place, which was admitted before, or not.
func parseWelcome(b []byte, place *Config, again bool) (w welcome, err error) {
	const head = 8 + 4 + 1
	want, keyed := head, place.Key != nil || place.meeting != nil
	if keyed {
		want += credentialsLen
	}
	if place.meeting != nil {
		want += len(secure.Key{})
	}
	if keyed && again {
		want += ed25519.SignatureSize
	}
	if len(b) != want {
		return w, fmt.Errorf("%w: an answer of %d bytes to a hello", errMalformed, len(b))
	}
	w.incarnation, w.server, w.near = binary.LittleEndian.Uint64(b), int(int32(binary.LittleEndian.Uint32(b[8:]))), b[12] != 0
	if !keyed {
		return w, nil
	}
	if again {
		b, w.proof = b[:len(b)-ed25519.SignatureSize], b[len(b)-ed25519.SignatureSize:]
	}
	b = b[head:]
	c := &credentials{run: secure.Run(b), signing: b[len(secure.Run{}) : credentialsLen-1], level: secure.Level(b[credentialsLen-1])}
	if place.meeting != nil {
		c.key = secure.Key(b[credentialsLen:])
	} else {
		c.key = *place.Key
	}
	if !c.level.Valid() {
		return w, fmt.Errorf("%w: %v in the answer to a hello", errMalformed, c.level)
	}
	w.credentials = c
	return w, nil
}
