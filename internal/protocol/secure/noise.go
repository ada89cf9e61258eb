// Package secure is what makes a frame believed: the keys of a job and of a run, tickets that
// say who a rank is, the handshake of two ranks that hold them, and the tags of their frames.
// It is pure, and knows frames as bytes. docs/wire.md says where in a frame these stand, and
// docs/decisions/0029-frames-are-authenticated.md why they are as they are.
package secure

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

// The handshake is that of the Noise protocol framework, revision 34, with the name
// Noise_KKpsk0_25519_AESGCM_SHA256. Both ends know each other's static key, and a key that
// they share is mixed in first:
//
//	-> s
//	<- s
//	...
//	-> psk, e, es, ss
//	<- e, ee, se
const noiseName = "Noise_KKpsk0_25519_AESGCM_SHA256"

const (
	// PointLen is the length of a public key of X25519.
	PointLen = 32
	// TagLen is the length of a tag of AES-GCM.
	TagLen = 16
)

// ErrForged is that a message of the handshake is not from whom it claims, or was altered.
var ErrForged = errors.New("the handshake's message is not from the owner of the key, or not for this rank")

// Chains are the first keys of both directions of a session, as one of its ends calls them.
type Chains struct{ Send, Receive [32]byte }

// Ends are what both ends of a handshake agree on before it, and one's own static key.
type Ends struct {
	Prologue []byte // bytes that both must have alike
	PSK      *[32]byte
	Static   *ecdh.PrivateKey
	Peer     *ecdh.PublicKey // the other's static key
}

// Initiator is the end that has sent the first message, and awaits the second. Finish, or Wipe if there is no
// answer, overwrites its secrets. Private keys of crypto/ecdh are let go of, and cannot be wiped.
type Initiator struct {
	ends      Ends
	ephemeral *ecdh.PrivateKey
	state     symmetric
}

// Initiate returns the first message, appended to dst, with a payload that the peer alone can
// read, and what awaits the answer. The ephemeral key must be fresh. It fails if the peer's
// key is one with which no secret is possible.
func Initiate(dst []byte, ends Ends, ephemeral *ecdh.PrivateKey, payload []byte) (*Initiator, []byte, error) {
	i := &Initiator{ends: ends, ephemeral: ephemeral}
	i.state.begin(ends.Prologue, ends.Static.PublicKey(), ends.Peer)
	i.state.mixKeyAndHash(ends.PSK[:])
	i.state.mixPoint(ephemeral.PublicKey())
	if err := i.state.mixSecret(ephemeral, ends.Peer); err != nil { // es
		return nil, nil, err
	}
	if err := i.state.mixSecret(ends.Static, ends.Peer); err != nil { // ss
		return nil, nil, err
	}
	dst = append(dst, ephemeral.PublicKey().Bytes()...)
	return i, i.state.encrypt(dst, payload), nil
}

// Finish reads the second message, and returns its payload and the keys of the session. A
// message that is not the peer's answer gives ErrForged and leaves i as it was.
func (i *Initiator) Finish(message []byte) (payload []byte, chains Chains, err error) {
	point, rest, err := cutPoint(message)
	if err != nil {
		return nil, Chains{}, err
	}
	if i.ephemeral == nil {
		return nil, Chains{}, ErrForged // one answer has been taken
	}
	state := i.state
	defer state.wipe()
	state.mixPoint(point)
	if err := state.mixSecret(i.ephemeral, point); err != nil { // ee
		return nil, Chains{}, err
	}
	if err := state.mixSecret(i.ends.Static, point); err != nil { // se
		return nil, Chains{}, err
	}
	if payload, err = state.decrypt(rest); err != nil {
		return nil, Chains{}, err
	}
	chains.Send, chains.Receive = state.split()
	i.Wipe()
	return payload, chains, nil
}

// Wipe ends the handshake.
func (i *Initiator) Wipe() {
	i.state.wipe()
	i.ephemeral = nil
}

// Responder is the end that has read the first message.
type Responder struct {
	initiator *ecdh.PublicKey // its ephemeral key
	ends      Ends
	state     symmetric
}

// Respond reads the first message, and returns its payload. A message that is not from the
// owner of ends.Peer, or not for this end, gives ErrForged.
func Respond(ends Ends, message []byte) (r *Responder, payload []byte, err error) {
	point, rest, err := cutPoint(message)
	if err != nil {
		return nil, nil, err
	}
	r = &Responder{initiator: point, ends: ends}
	defer func(state *symmetric) {
		if err != nil {
			state.wipe()
		}
	}(&r.state)
	r.state.begin(ends.Prologue, ends.Peer, ends.Static.PublicKey())
	r.state.mixKeyAndHash(ends.PSK[:])
	r.state.mixPoint(point)
	if err := r.state.mixSecret(ends.Static, point); err != nil { // es
		return nil, nil, err
	}
	if err := r.state.mixSecret(ends.Static, ends.Peer); err != nil { // ss
		return nil, nil, err
	}
	if payload, err = r.state.decrypt(rest); err != nil {
		return nil, nil, err
	}
	return r, payload, nil
}

// Answer returns the second message, appended to dst, and the keys of the session. It is
// called once, with a fresh ephemeral key, and overwrites the secrets of r.
func (r *Responder) Answer(dst []byte, ephemeral *ecdh.PrivateKey, payload []byte) (message []byte, chains Chains, err error) {
	defer r.state.wipe()
	r.state.mixPoint(ephemeral.PublicKey())
	if err := r.state.mixSecret(ephemeral, r.initiator); err != nil { // ee
		return nil, Chains{}, err
	}
	if err := r.state.mixSecret(ephemeral, r.ends.Peer); err != nil { // se
		return nil, Chains{}, err
	}
	dst = append(dst, ephemeral.PublicKey().Bytes()...)
	dst = r.state.encrypt(dst, payload)
	chains.Receive, chains.Send = r.state.split()
	return dst, chains, nil
}

// cutPoint returns the public key that a message begins with, and what follows.
func cutPoint(message []byte) (*ecdh.PublicKey, []byte, error) {
	if len(message) < PointLen+TagLen {
		return nil, nil, ErrForged
	}
	point, err := ecdh.X25519().NewPublicKey(message[:PointLen])
	return point, message[PointLen:], err
}

// symmetric is Noise's SymmetricState, with its CipherState. In handshakes with a shared key
// there is a key before anything is encrypted.
type symmetric struct {
	chain, hash, key [32]byte
	nonce            uint64
}

func (s *symmetric) begin(prologue []byte, initiator, responder *ecdh.PublicKey) {
	copy(s.hash[:], noiseName) // as long as a hash
	s.chain = s.hash
	s.mixHash(prologue)
	s.mixHash(initiator.Bytes())
	s.mixHash(responder.Bytes())
}

func (s *symmetric) mixHash(data []byte) {
	h := sha256.New()
	h.Write(s.hash[:])
	h.Write(data)
	h.Sum(s.hash[:0])
}

func (s *symmetric) mixKey(secret []byte) {
	s.chain, s.key, _ = s.expand(secret)
	s.nonce = 0
}

func (s *symmetric) mixKeyAndHash(secret []byte) {
	var hash [32]byte
	s.chain, hash, s.key = s.expand(secret)
	s.nonce = 0
	s.mixHash(hash[:])
}

// mixPoint mixes in an ephemeral key. Where there is a shared key, it is a key as well.
func (s *symmetric) mixPoint(p *ecdh.PublicKey) {
	s.mixHash(p.Bytes())
	s.mixKey(p.Bytes())
}

func (s *symmetric) mixSecret(own *ecdh.PrivateKey, other *ecdh.PublicKey) error {
	secret, err := own.ECDH(other)
	if err == nil {
		s.mixKey(secret)
		clear(secret)
	}
	return err
}

func (s *symmetric) wipe() { *s = symmetric{} }

// expand is Noise's HKDF with the chaining key.
func (s *symmetric) expand(secret []byte) (a, b, c [32]byte) {
	temp := mac(s.chain[:], secret)
	a = mac(temp[:], []byte{1})
	b = mac(temp[:], a[:], []byte{2})
	c = mac(temp[:], b[:], []byte{3})
	clear(temp[:])
	return a, b, c
}

func mac(key []byte, parts ...[]byte) (sum [32]byte) {
	m := hmac.New(sha256.New, key)
	for _, p := range parts {
		m.Write(p)
	}
	m.Sum(sum[:0])
	return sum
}

func (s *symmetric) split() (initiator, responder [32]byte) {
	initiator, responder, _ = s.expand(nil)
	return initiator, responder
}

// aead returns the cipher and the nonce for the next call of it.
func (s *symmetric) aead() (cipher.AEAD, []byte) {
	nonce := make([]byte, 12)
	binary.BigEndian.PutUint64(nonce[4:], s.nonce)
	s.nonce++
	return newGCM(s.key[:]), nonce
}

func (s *symmetric) encrypt(dst, plain []byte) []byte {
	aead, nonce := s.aead()
	at := len(dst)
	dst = aead.Seal(dst, nonce, plain, s.hash[:])
	s.mixHash(dst[at:])
	return dst
}

func (s *symmetric) decrypt(sealed []byte) ([]byte, error) {
	aead, nonce := s.aead()
	plain, err := aead.Open(nil, nonce, sealed, s.hash[:])
	if err != nil {
		return nil, ErrForged
	}
	s.mixHash(sealed)
	return plain, nil
}

// newGCM returns AES-GCM with a key of a length that AES has.
func newGCM(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return aead
}
