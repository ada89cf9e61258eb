package secure

import (
	"bytes"
	"crypto/ed25519"
	"net/netip"
	"testing"
)

func signer(first byte) ed25519.PrivateKey {
	seed := counting(first)
	return ed25519.NewKeyFromSeed(seed[:])
}

func public(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

var tickets = map[string]Ticket{
	"IPv4": {Job: 0x0102030405060708, Incarnation: 0x1112131415161718, Rank: 0x21222324, Level: Sign,
		Address: netip.MustParseAddrPort("10.9.7.1:7770"), Static: counting(0xa0)},
	"IPv6":    {Job: 1, Incarnation: 1<<64 - 1, Level: None, Address: netip.MustParseAddrPort("[fd77::1]:65535")},
	"nothing": {Address: netip.AddrPortFrom(netip.IPv6Unspecified(), 0)},
}

func TestTicketsAreReadAsTheyAreSigned(t *testing.T) {
	key := signer(1)
	for name, ticket := range tickets {
		b := ticket.Sign(key)
		if got, ok := ParseTicket(b[:]); !ok || got != ticket {
			t.Errorf("%s: %+v, %t", name, got, ok)
		}
		if !VerifyTicket(b[:], public(key)) {
			t.Errorf("%s: its signature is refused", name)
		}
	}
	mapped := tickets["IPv4"]
	mapped.Address = netip.MustParseAddrPort("[::ffff:10.9.7.1]:7770")
	zoned := tickets["IPv6"]
	zoned.Address = netip.MustParseAddrPort("[fd77::1%eth0]:65535")
	for name, ticket := range map[string]Ticket{"IPv4": mapped, "IPv6": zoned} {
		b := ticket.Sign(key)
		if got, ok := ParseTicket(b[:]); !ok || got != tickets[name] {
			t.Errorf("%v: %+v, %t", ticket.Address, got, ok)
		}
	}
}

// TestTicketIsLaidOut pins the places of the fields, which other programs read.
func TestTicketIsLaidOut(t *testing.T) {
	ticket := tickets["IPv4"]
	b := ticket.Sign(signer(1))
	want := []byte{
		8, 7, 6, 5, 4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21, 0x5a, 0x1e, 1, 0,
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 7, 1,
	}
	want = append(want, ticket.Static[:]...)
	if len(want) != 72 || !bytes.Equal(b[:72], want) {
		t.Errorf("got  %x\nwant %x", b[:72], want)
	}
	if !ed25519.Verify(public(signer(1)), append([]byte("xdprma 5 ticket\x00"), want...), b[72:]) {
		t.Error("the signature is over something else")
	}
}

func TestEachFlippedBitOfATicketIsRefused(t *testing.T) {
	key := signer(1)
	for name, ticket := range tickets {
		b := ticket.Sign(key)
		for bit := range 8 * TicketLen {
			b[bit/8] ^= 1 << (bit % 8)
			if VerifyTicket(b[:], public(key)) {
				t.Errorf("%s: taken with bit %d flipped", name, bit)
			}
			if got, ok := ParseTicket(b[:]); ok && bit < 8*72 && got == ticket {
				t.Errorf("%s: bit %d means nothing", name, bit)
			}
			b[bit/8] ^= 1 << (bit % 8)
		}
	}
}

func TestWhatIsNoTicketIsRefused(t *testing.T) {
	key := signer(1)
	ticket := tickets["IPv4"]
	b := ticket.Sign(key)
	for _, part := range [][]byte{nil, b[:TicketLen-1], append(b[:], 0)} {
		if _, ok := ParseTicket(part); ok || VerifyTicket(part, public(key)) {
			t.Errorf("taken with %d bytes", len(part))
		}
	}
	for _, by := range []ed25519.PublicKey{public(signer(2)), nil, public(key)[:31], append(public(key), 0)} {
		if VerifyTicket(b[:], by) {
			t.Errorf("taken with the public key %x", []byte(by))
		}
	}
	for _, at := range []int{22, 23} {
		odd := b
		odd[at] = 3
		if _, ok := ParseTicket(odd[:]); ok {
			t.Errorf("taken with a 3 at %d", at)
		}
	}
}

//fuzz:inputs 100000
func FuzzParseTicket(f *testing.F) {
	key := signer(1)
	for _, ticket := range tickets {
		b := ticket.Sign(key)
		f.Add(b[:])
	}
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ticket, ok := ParseTicket(b)
		if !ok {
			if VerifyTicket(b, public(key)) {
				t.Fatalf("%x is signed and no ticket", b)
			}
			return
		}
		if again := ticket.Sign(key); !bytes.Equal(again[:72], b[:72]) {
			t.Fatalf("%x became %x", b[:72], again[:72])
		}
	})
}
