package secure

import (
	"crypto/ed25519"
	"encoding/binary"
	"net/netip"
)

// Ticket is what the rendezvous of a job says, by its signature, of one process. All that the
// members of a job share is its key; a ticket tells them apart.
type Ticket struct {
	Job         uint64 // as frames name it
	Incarnation uint64
	Rank        uint32
	Level       Level          // of the job
	Address     netip.AddrPort // where the process is; its zone is not told
	Static      [32]byte       // its X25519 public key
}

// TicketLen is the length of a ticket with its signature.
const TicketLen = ticketSigned + ed25519.SignatureSize

// The places in a ticket, of which the first ticketSigned bytes are signed. Numbers are
// little-endian.
const (
	ticketJob         = 0
	ticketIncarnation = 8
	ticketRank        = 16
	ticketPort        = 20
	ticketLevel       = 22
	ticketZero        = 23
	ticketAddress     = 24 // of 16 bytes; IPv4 as ::ffff:a.b.c.d
	ticketStatic      = 40
	ticketSigned      = 72
)

// ticketContext stands before what is signed, so that the signature is good for a ticket and
// for nothing else.
const ticketContext = "xdprma 5 ticket\x00"

// Sign returns the ticket as it travels, signed by the rendezvous. The ticket must have an
// address.
func (t *Ticket) Sign(key ed25519.PrivateKey) (b [TicketLen]byte) {
	binary.LittleEndian.PutUint64(b[ticketJob:], t.Job)
	binary.LittleEndian.PutUint64(b[ticketIncarnation:], t.Incarnation)
	binary.LittleEndian.PutUint32(b[ticketRank:], t.Rank)
	binary.LittleEndian.PutUint16(b[ticketPort:], t.Address.Port())
	b[ticketLevel] = byte(t.Level)
	address := t.Address.Addr().As16()
	copy(b[ticketAddress:], address[:])
	copy(b[ticketStatic:], t.Static[:])
	copy(b[ticketSigned:], ed25519.Sign(key, signedText(b[:])))
	return b
}

// ParseTicket reads a ticket, and reports whether it has the form of one. It says nothing of
// the signature.
func ParseTicket(b []byte) (t Ticket, ok bool) {
	if len(b) != TicketLen || !Level(b[ticketLevel]).Valid() || b[ticketZero] != 0 {
		return Ticket{}, false
	}
	t = Ticket{
		Job:         binary.LittleEndian.Uint64(b[ticketJob:]),
		Incarnation: binary.LittleEndian.Uint64(b[ticketIncarnation:]),
		Rank:        binary.LittleEndian.Uint32(b[ticketRank:]),
		Level:       Level(b[ticketLevel]),
		Address: netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[ticketAddress:ticketStatic])).Unmap(),
			binary.LittleEndian.Uint16(b[ticketPort:])),
		Static: [32]byte(b[ticketStatic:ticketSigned]),
	}
	return t, true
}

// VerifyTicket reports whether a rendezvous with the public key by has signed the ticket b.
func VerifyTicket(b []byte, by ed25519.PublicKey) bool {
	return len(b) == TicketLen && len(by) == ed25519.PublicKeySize && ed25519.Verify(by, signedText(b), b[ticketSigned:])
}

// signedText returns what the signature of a ticket is over.
func signedText(b []byte) []byte { return append([]byte(ticketContext), b[:ticketSigned]...) }
