// Package credentials makes the credentials of ranks of a job with a key, for tests. They follow from
// the rank and its incarnation.
package credentials

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// Secrets are those of the job that all members are of.
var Secrets = secure.Key{1}.Secrets(secure.Run{2})

var signer = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

// Of returns what a rank has in one of its lives.
func Of(rank int, life uint64, level secure.Level) *link.Credentials {
	made := uint64(0)
	ticket := signed(rank, life, level)
	return &link.Credentials{
		Level: level, Secrets: Secrets, Static: private("static", rank, life, 0), Ticket: ticket[:],
		Signer: signer.Public().(ed25519.PublicKey), AES: true,
		Fresh: func() *ecdh.PrivateKey {
			made++
			return private("fresh", rank, life, made)
		},
	}
}

// Ticket returns the ticket of a rank in one of its lives.
func Ticket(rank int, life uint64, level secure.Level) *secure.Ticket {
	b := signed(rank, life, level)
	t, _ := secure.ParseTicket(b[:])
	return &t
}

// Answerer returns the chains of a rank in one of its lives that has answered that hello, its first
// one. It is for tests of a member that does not follow the protocol.
func Answerer(rank int, life uint64, level secure.Level, hello []byte) (secure.Chains, error) {
	own := Of(rank, life, level)
	var g wire.Greeting
	if f := g.Get(hello, (*siphash.Key)(&Secrets.Hello)); f != wire.OK {
		return secure.Chains{}, fmt.Errorf("the hello has the fault %q", f)
	}
	from, _ := secure.ParseTicket(g.Ticket)
	peer, err := ecdh.X25519().NewPublicKey(from.Static[:])
	if err != nil {
		return secure.Chains{}, err
	}
	r, _, err := secure.Respond(secure.Ends{Prologue: wire.Prologue(hello), PSK: &Secrets.PSK, Static: own.Static, Peer: peer}, g.Noise)
	if err != nil {
		return secure.Chains{}, err
	}
	_, chains, err := r.Answer(nil, own.Fresh(), nil) // which do not depend on the payload
	return chains, err
}

func signed(rank int, life uint64, level secure.Level) [secure.TicketLen]byte {
	t := secure.Ticket{
		Job: Secrets.Job, Incarnation: life, Rank: uint32(rank), Level: level,
		Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(rank >> 8), byte(rank)}), 7770),
		Static:  [32]byte(private("static", rank, life, 0).PublicKey().Bytes()),
	}
	return t.Sign(signer)
}

func private(what string, rank int, life, n uint64) *ecdh.PrivateKey {
	seed := []byte(what)
	for _, v := range []uint64{uint64(rank), life, n} {
		seed = binary.LittleEndian.AppendUint64(seed, v)
	}
	sum := sha256.Sum256(seed)
	key, err := ecdh.X25519().NewPrivateKey(sum[:])
	if err != nil {
		panic(err)
	}
	return key
}
