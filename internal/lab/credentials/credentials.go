// Package credentials makes the credentials of ranks of a job with a key, for tests. They follow from
// the rank and its incarnation.
package credentials

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/secure"
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
		Signer: signer.Public().(ed25519.PublicKey),
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
