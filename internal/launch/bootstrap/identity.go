package bootstrap

import (
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
)

// A process is known at the rendezvous by a key pair of its own, whose public key it tells in each hello, which it
// signs. If it comes again, since its connection was lost, that shows that it is the same process: a member of the job
// with the same job key cannot. And the rendezvous signs that it is the same one, with the key of the tickets.
// Each signs what binds its words to this connection, so that nobody in between passes them on to another. Without a
// job key nothing binds them, and whoever reads them can say them again, as all else that is said then.

// identity is the public key that a process is known by.
type identity [ed25519.PublicKeySize]byte

// signature is one of Ed25519.
type signature [ed25519.SignatureSize]byte

// introduction is what a process says of itself in its hello.
type introduction struct {
	level       byte
	from        netip.AddrPort // where its end of the connection is, as it sees it; not over a unix socket
	incarnation uint64         // under which it was admitted before; 0: it was not
	identity    identity
	proof       signature // that it is this process, over this connection
}

const introductionBytes = len(helloMagic) + 1 + 16 + 2 + 8 + ed25519.PublicKeySize + ed25519.SignatureSize

// helloBody returns the body of a hello of this version.
func helloBody(i *introduction, token string) []byte {
	b := append([]byte(helloMagic), i.level)
	var address [16]byte
	if i.from.IsValid() {
		address = i.from.Addr().As16()
	}
	b = binary.LittleEndian.AppendUint16(append(b, address[:]...), i.from.Port())
	b = binary.LittleEndian.AppendUint64(b, i.incarnation)
	return append(append(append(b, i.identity[:]...), i.proof[:]...), token...)
}

// parseHello reads the body of a hello of this version.
func parseHello(b []byte) (i introduction, token []byte, ok bool) {
	if len(b) < introductionBytes || string(b[:len(helloMagic)]) != helloMagic {
		return i, nil, false
	}
	b = b[len(helloMagic):]
	i.level, b = b[0], b[1:]
	if port := binary.LittleEndian.Uint16(b[16:]); port != 0 {
		i.from = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b)).Unmap(), port)
	}
	b = b[18:]
	i.incarnation, b = binary.LittleEndian.Uint64(b), b[8:]
	copy(i.identity[:], b)
	copy(i.proof[:], b[len(i.identity):])
	return i, b[len(i.identity)+len(i.proof):], true
}

// words returns what a process signs in its hello over a connection.
func (i *introduction) words(conn net.Conn, rank int) ([]byte, error) {
	b, err := bound(conn, "xdprma rendezvous: this process")
	b = binary.LittleEndian.AppendUint32(b, uint32(rank))
	return binary.LittleEndian.AppendUint64(b, i.incarnation), err
}

// prove signs the hello of a process of a rank over a connection.
func (i *introduction) prove(conn net.Conn, rank int, key ed25519.PrivateKey) error {
	words, err := i.words(conn, rank)
	if err == nil {
		copy(i.proof[:], ed25519.Sign(key, words))
	}
	return err
}

// proven reports whether the process that is known by the identity has signed that.
func (i *introduction) proven(conn net.Conn, rank int) bool {
	words, err := i.words(conn, rank)
	return err == nil && i.identity != (identity{}) && ed25519.Verify(i.identity[:], words, i.proof[:])
}

// sameAgain returns what the rendezvous signs for a process that comes again over a connection.
func sameAgain(conn net.Conn) ([]byte, error) {
	return bound(conn, "xdprma rendezvous: the same again")
}

// refusedAgain returns what the rendezvous signs when it refuses a process that comes again, and why.
func refusedAgain(conn net.Conn, why string) ([]byte, error) {
	b, err := bound(conn, "xdprma rendezvous: refused: ")
	return append(b, why...), err
}

// endOf returns the address of an end of a connection, if it is one of TCP.
func endOf(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}

// bound returns words, with what only the two ends of this connection know.
func bound(conn net.Conn, words string) ([]byte, error) {
	c, ok := conn.(secured)
	if !ok {
		return []byte(words), nil
	}
	state := c.ConnectionState()
	secret, err := state.ExportKeyingMaterial("EXPORTER-xdprma-again", nil, 32)
	if err != nil {
		return nil, fmt.Errorf("bind words to a TLS connection: %w", err)
	}
	return append([]byte(words), secret...), nil
}
