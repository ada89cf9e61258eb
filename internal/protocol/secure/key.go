package secure

import (
	"cmp"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// Key is the secret that the members of a job share, and nobody else has.
type Key [32]byte

// NewKey returns a random key.
func NewKey() (k Key) {
	_, _ = rand.Read(k[:]) // never fails
	return k
}

// ParseKey reads a key as Text writes it, with any white space around it. Its error does not
// quote the text, which may be a key with a slip of the pen.
func ParseKey(text string) (k Key, err error) {
	text = strings.TrimSpace(text)
	if len(text) != hex.EncodedLen(len(k)) {
		return Key{}, fmt.Errorf("a job key has %d hexadecimal digits, and this text has %d bytes: `xdprma key` makes one", hex.EncodedLen(len(k)), len(text))
	}
	if _, err := hex.Decode(k[:], []byte(text)); err != nil {
		return Key{}, fmt.Errorf("a job key has %d hexadecimal digits, and this text has something else among them: `xdprma key` makes one", hex.EncodedLen(len(k)))
	}
	return k, nil
}

// Text returns the key as 64 hexadecimal digits, for the few places that keep keys.
func (k Key) Text() string { return hex.EncodeToString(k[:]) }

// Format writes that this is a key, whatever the verb: keys must not get into logs.
func (k Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("a job key")) }

// Level is how far the frames of a job are protected.
type Level uint8

// The levels, each of which includes those before it.
const (
	None Level = iota // the beginning of a session is authenticated, if the job has a key
	Sign              // each frame is authenticated
	Seal              // what a frame says of windows and messages is encrypted, too
)

var nameOfLevel = [...]string{None: "none", Sign: "sign", Seal: "seal"}

// LevelNames lists the levels in words.
const LevelNames = "none, sign or seal"

// String returns the level's name.
func (l Level) String() string {
	if !l.Valid() {
		return fmt.Sprintf("level %d", uint8(l))
	}
	return nameOfLevel[l]
}

// Valid reports whether the level is one of the above.
func (l Level) Valid() bool { return int(l) < len(nameOfLevel) }

// ParseLevel returns the level of a name.
func ParseLevel(name string) (Level, error) {
	for l, known := range nameOfLevel {
		if name == known {
			return Level(l), nil
		}
	}
	return None, fmt.Errorf("the level of security %q is not %s", name, LevelNames)
}

// Run is a random number that the rendezvous draws for each run of a job: a key may serve
// several runs, and what is derived from it serves one.
type Run [32]byte

// Secrets are what the members of one run of a job derive from its key.
type Secrets struct {
	Job   uint64   // what frames name the job by; never 0
	Hello [16]byte // the key of the codes of hellos
	PSK   [32]byte // what handshakes mix in
}

// Secrets derives the secrets of a run.
func (k Key) Secrets(run Run) (s Secrets) {
	root, err := hkdf.Extract(sha256.New, k[:], run[:])
	expand := func(label string, to []byte) {
		var b []byte
		if err == nil {
			b, err = hkdf.Expand(sha256.New, root, label, len(to))
		}
		copy(to, b)
	}
	var job [8]byte
	expand("xdprma 5 job", job[:])
	expand("xdprma 5 hello code", s.Hello[:])
	expand("xdprma 5 psk", s.PSK[:])
	if err != nil {
		panic(fmt.Sprintf("secure: HKDF of fixed lengths failed: %v", err))
	}
	s.Job = cmp.Or(binary.LittleEndian.Uint64(job[:]), 1)
	return s
}
