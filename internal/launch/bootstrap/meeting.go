package bootstrap

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/xdprma/xdprma/internal/launch/pmi"
)

// meeting is how the ranks of a job that a launcher with PMI has started know each other where
// nobody has given them a key. Others may read what PMI carries, so it carries no key: each rank
// makes a certificate and tells its fingerprint. Rank 0 hands the job's key to those ranks.
type meeting struct {
	own   ed25519.PrivateKey
	ranks []fingerprint // at rank 0 of all ranks; elsewhere of rank 0
}

// fingerprint is SHA-256 of a rank's public key.
type fingerprint [sha256.Size]byte

const (
	pmiFingerprint = "xdprma-fingerprint-" // the key under which a rank tells its own; plus the rank
	pmiHasKey      = "key"                 // what it tells in place of that
)

func newMeeting() (*meeting, error) {
	_, own, err := ed25519.GenerateKey(nil)
	return &meeting{own: own}, err
}

// fingerprint returns the rank's own.
func (m *meeting) fingerprint() fingerprint {
	return sha256.Sum256(m.own.Public().(ed25519.PublicKey))
}

// tell tells over PMI how the others know this rank; m is nil if it has the job's key.
func (m *meeting) tell(client *pmi.Client, rank int) error {
	said := pmiHasKey
	if m != nil {
		own := m.fingerprint()
		said = hex.EncodeToString(own[:])
	}
	return client.Put(pmiFingerprint+strconv.Itoa(rank), said)
}

// hear learns over PMI what the others have told: rank 0 of all, and the others of rank 0.
func (m *meeting) hear(client *pmi.Client, rank, size int) error {
	if m == nil && rank == 0 {
		return nil // the others see whether they have the key too
	}
	heard := 1
	if rank == 0 {
		heard = size
	}
	for other := range heard {
		told, err := client.Get(pmiFingerprint + strconv.Itoa(other))
		if err != nil {
			return fmt.Errorf("rank %d has told no fingerprint over PMI; is it another program, or of another version? %w", other, err)
		}
		if (told == pmiHasKey) != (m == nil) {
			return fmt.Errorf("of rank %d and rank %d one has a job key, and the other none: name the same key to all ranks by %s, or to none", other, rank, EnvKeyFile)
		}
		if m == nil {
			continue
		}
		b, err := hex.DecodeString(told)
		if err != nil || len(b) != sha256.Size {
			return fmt.Errorf("rank %d told %q over PMI, which is no fingerprint: is it of another version?", other, told)
		}
		m.ranks = append(m.ranks, fingerprint(b))
	}
	return nil
}

// tls returns what a rank speaks TLS by: it takes those of whom it has heard.
func (m *meeting) tls() (*tls.Config, error) {
	return mutual(m.own, func(theirs ed25519.PublicKey) bool {
		return slices.Contains(m.ranks, sha256.Sum256(theirs)) // which PMI has told in public
	})
}

// checkRank returns an error unless the other end of a connection may speak as a rank: where the
// ranks have met over PMI, each has a certificate of its own.
func (m *meeting) checkRank(conn net.Conn, rank int) error {
	if m == nil {
		return nil
	}
	if c, ok := conn.(secured); ok && rank >= 0 && rank < len(m.ranks) {
		theirs, _ := c.ConnectionState().PeerCertificates[0].PublicKey.(ed25519.PublicKey) // it has been verified
		if sha256.Sum256(theirs) == m.ranks[rank] {
			return nil
		}
	}
	return errors.New("its certificate is that of another rank")
}
