package bootstrap

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// errOtherKey is that the process at the other end of a connection has another key.
var errOtherKey = errors.New("the job keys differ")

// applicationProtocol is what the ends of a connection call what they speak over TLS.
const applicationProtocol = "xdprma"

// pinned returns the TLS of both ends of a connection of a job with a key. Both have the same
// Ed25519 key, made from the job's, and each takes nobody who has not.
func pinned(k *secure.Key) (*tls.Config, error) {
	seed, err := hkdf.Key(sha256.New, k[:], nil, "xdprma 5 rendezvous", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	private := ed25519.NewKeyFromSeed(seed)
	public := private.Public().(ed25519.PublicKey)
	return mutual(private, func(theirs ed25519.PublicKey) bool { return subtle.ConstantTimeCompare(theirs, public) == 1 })
}

// mutual returns the TLS of an end that has a private key, and takes the other end if its
// public key is one that it takes.
func mutual(private ed25519.PrivateKey, takes func(theirs ed25519.PublicKey) bool) (*tls.Config, error) {
	certificate, err := selfSigned(private)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{certificate},
		NextProtos:             []string{applicationProtocol},
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // no authority vouches for the certificate: its key is known
		SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 1 && s.NegotiatedProtocol == applicationProtocol {
				theirs, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
				if ok && takes(theirs) {
					return nil
				}
			}
			return errOtherKey
		},
	}, nil
}

// selfSigned returns a certificate for a key, of which nothing but the key counts.
func selfSigned(private ed25519.PrivateKey) (tls.Certificate, error) {
	year := func(n int) time.Time { return time.Date(n, 1, 1, 0, 0, 0, 0, time.UTC) }
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: year(2000), NotAfter: year(9999)}
	der, err := x509.CreateCertificate(nil, form, form, private.Public(), private)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, err
}

// secured is a TLS connection that Close ends at once. Messages say how long they are, so
// nobody has to be told that nothing follows.
type secured struct{ *tls.Conn }

// Close ends the connection.
func (c secured) Close() error { return c.NetConn().Close() }

// shakeHands begins TLS.
func shakeHands(ctx context.Context, c *tls.Conn) (net.Conn, error) {
	return secured{c}, c.HandshakeContext(ctx)
}

// isPlain reports whether err is that the other end speaks no TLS.
func isPlain(err error) bool {
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	return plain
}

// isAlert reports whether err is that the other end has ended TLS for a reason.
func isAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error" // as package tls calls it
}

// explainTLS returns a client's err in words for an operator. It wraps ErrRefused where another
// attempt would end as this one did.
func explainTLS(err error) error {
	switch {
	case isPlain(err):
		return fmt.Errorf("%w: this process has a job key, and the rendezvous has none: name the same key to all ranks by %s, or to none (%w)", ErrRefused, EnvKeyFile, err)
	case isAlert(err):
		return fmt.Errorf("%w (%w)", explainTLS(errOtherKey), err)
	case errors.Is(err, errOtherKey):
		return fmt.Errorf("%w: %w: this process has another one than the rendezvous; name the same to all ranks by %s", ErrRefused, err, EnvKeyFile)
	}
	return err
}

// tlsHandshake is how the first message of TLS begins. Read as the length of a message of the
// rendezvous, it is beyond all limits.
const tlsHandshake = "\x16\x03\x01"

// checkUser returns an error if conn is a unix socket with a process of another user at
// its other end, unless that is root. On others it returns nil.
func checkUser(conn net.Conn) error {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	if e := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil || err != nil {
		return errors.Join(e, err)
	}
	if own := uint32(os.Geteuid()); peer.Uid != own && peer.Uid != 0 {
		return fmt.Errorf("the process at the other end of the unix socket is user %d's, and this one is user %d's: run all ranks of a job as one user", peer.Uid, own)
	}
	return nil
}
