package bootstrap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// A message, in either direction, is a little-endian u32 with the length of the
// rest, then u8 kind, u32 call, body. The client's first message is a hello;
// its other messages ask, and the server's answers carry the call of what they
// answer. Bodies:
//
//	hello    u32 rank, u32 size, magic, version, u8 level that is asked for, address, 16 bytes, and port, u16, of
//	         its end of the connection, as it sees it, or zeros, u64 incarnation of a
//	         process that was admitted before, or 0, the public key that it is known by, 32 bytes,
//	         its signature, 64 (see identity), token; the
//	         answer is the rank's incarnation, u64, the rank that serves the rendezvous, u32,
//	         or 2^32-1 if that is something else, u8 whether both ends are on one host, and where the job has a key the
//	         run, 32 bytes, the public key that signs tickets, 32, the level, u8, for
//	         ranks that have met over PMI without a key the key, 32, and to a process that was
//	         admitted before the rendezvous's signature, 64
//	publish  the rank's place; the server knows the rank and its incarnation
//	part     why the rank begins to leave, in words, or nothing
//	leave    nothing
//	find     u32 rank; answered once something is known of it
//	look     u32 rank; likewise, at once
//	end      u32 number; answered once there are news with a larger one
//	asked    u32 rank, u64 incarnation that was under suspicion, u32 question, u8 whether it has answered
//	cancel   nothing; not answered
//	waits    what the rank has waited for for long: for each u32 rank that waits, u32 rank that
//	         it waits for, u64 nanoseconds, i8 level of the log, u8 length of the words, and these
//	who      nothing; the answer says in words which ranks are there
//	fail     why the rank does not join, in words
//	sign     static key, 32 bytes, address, 16, and port, u16; the answer is the ticket of
//	         this rank and incarnation
//	answers  what was asked for, the words of an error, or nothing
const (
	kindHello   = 1
	kindPublish = 2
	kindLeave   = 3
	kindFind    = 4
	kindLook    = 5
	kindEnd     = 6
	kindCancel  = 7
	kindWho     = 8
	kindSign    = 9
	kindFail    = 10
	kindPart    = 11
	kindWaits   = 12
	kindAsked   = 13

	kindOK      = 128 // to find and look: the incarnation, u64, ticket or zeros, and place
	kindFailed  = 129 // the call failed, for the reason in the body
	kindAborted = 130 // it failed with AbortError
	kindAbsent  = 131 // there is no place yet
	kindRefused = 132 // after a hello: the connection ends; the number is the same in all versions
	kindLeft    = 133 // the rank has left; as kindOK to find, with no place
	kindClosing = 135 // the rendezvous ends in good order, for the reason in the body
	kindEnded   = 134 // EndedError: u32 rank, u64 incarnation, reason
	kindNews    = 136 // u32 number, u8 whether it is a suspicion, u32 rank that asks in any case, u32 question, and as kindEnded
	kindBusy    = 137 // after a hello: not yet, for the reason in the body; the connection ends, and the process comes again
)

const (
	protocol         = "XRBS"
	protocolVersion  = "\x08"
	helloMagic       = protocol + protocolVersion
	maxMessageBytes  = 5 + placeHead + MaxPlaceBytes // without the length field
	helloHead        = 4 + 4                         // rank and size
	maxHelloBytes    = 5 + helloHead + introductionBytes + maxTokenBytes
	maxTokenBytes    = 256
	minMessageBytes  = 5
	placeHead        = 8 + secure.TicketLen // incarnation and ticket, before a place
	signBytes        = 32 + 16 + 2          // what is to be signed
	askedBytes       = 4 + 8 + 4 + 1
	newsHead         = 4 + 1 + 4 + 4 // before an end
	endedHead        = 4 + 8         // before a reason
	lengthFieldBytes = 4
)

var errMalformed = errors.New("malformed message")

// message is one decoded message. body points into the buffer it was read from; number is
// set for find, look and end only, rank and size for hello.
type message struct {
	kind       byte
	call       uint32
	rank, size int
	number     int // of a rank or an end
	body       []byte
}

// appendMessage appends m, encoded, to b.
func appendMessage(b []byte, m message) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0, m.kind)
	b = binary.LittleEndian.AppendUint32(b, m.call)
	switch m.kind {
	case kindHello:
		b = binary.LittleEndian.AppendUint32(b, uint32(m.rank))
		b = binary.LittleEndian.AppendUint32(b, uint32(m.size))
	case kindFind, kindLook, kindEnd:
		b = binary.LittleEndian.AppendUint32(b, uint32(m.number))
	}
	b = append(b, m.body...)
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-lengthFieldBytes))
	return b
}

// readMessage reads one message of at most limit bytes, length field excluded.
// A longer one is an error before anything of its size is allocated.
func readMessage(r io.Reader, limit int) (message, error) {
	var head [lengthFieldBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return message{}, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n < minMessageBytes || n > uint32(limit) {
		return message{}, fmt.Errorf("%w: %d bytes long", errMalformed, n)
	}
	buf := make([]byte, n)
	if _, err := io.ReadFull(r, buf); err != nil {
		return message{}, err
	}
	return parseMessage(buf)
}

// parseMessage decodes what follows the length field.
func parseMessage(buf []byte) (message, error) {
	if len(buf) < minMessageBytes {
		return message{}, fmt.Errorf("%w: %d bytes long", errMalformed, len(buf))
	}
	m := message{kind: buf[0], call: binary.LittleEndian.Uint32(buf[1:]), body: buf[5:]}
	switch m.kind {
	case kindFind, kindLook, kindEnd:
		if len(m.body) != 4 {
			return message{}, fmt.Errorf("%w: kind %d with a body of %d bytes", errMalformed, m.kind, len(m.body))
		}
		m.number, m.body = int(binary.LittleEndian.Uint32(m.body)), nil
	case kindHello:
		if len(m.body) < helloHead {
			return message{}, fmt.Errorf("%w: hello without a rank", errMalformed)
		}
		m.rank, m.size = int(binary.LittleEndian.Uint32(m.body)), int(binary.LittleEndian.Uint32(m.body[4:]))
		m.body = m.body[helloHead:]
	case kindSign:
		if len(m.body) != signBytes {
			return message{}, fmt.Errorf("%w: %d bytes to be signed", errMalformed, len(m.body))
		}
	case kindAsked:
		if len(m.body) != askedBytes {
			return message{}, fmt.Errorf("%w: %d bytes on whether a rank has answered", errMalformed, len(m.body))
		}
	case kindPublish, kindLeave, kindFail, kindPart, kindWaits, kindCancel, kindWho, kindOK, kindFailed, kindAborted, kindRefused, kindAbsent, kindLeft, kindEnded, kindNews, kindBusy, kindClosing:
	default:
		return message{}, fmt.Errorf("%w: kind %d", errMalformed, m.kind)
	}
	return m, nil
}

// appendEnded appends that a process takes no part any more to b.
func appendEnded(b []byte, e *EndedError) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(e.Rank))
	b = binary.LittleEndian.AppendUint64(b, e.Incarnation)
	return append(b, e.Reason...)
}

// appendNews appends an end or a suspicion of one to b.
func appendNews(b []byte, e *End) []byte {
	b = binary.LittleEndian.AppendUint32(b, e.number)
	b = append(b, flag(e.Suspected))
	b = binary.LittleEndian.AppendUint32(b, uint32(e.Asker))
	b = binary.LittleEndian.AppendUint32(b, e.Question)
	return appendEnded(b, &e.EndedError)
}

func flag(is bool) byte {
	if is {
		return 1
	}
	return 0
}

// parseNews reads an end or a suspicion of one.
func parseNews(b []byte) (*End, error) {
	if len(b) < newsHead+endedHead {
		return nil, fmt.Errorf("%w: news of %d bytes", errMalformed, len(b))
	}
	e := &End{Suspected: b[4] != 0, Asker: int(int32(binary.LittleEndian.Uint32(b[5:]))), Question: binary.LittleEndian.Uint32(b[9:]), number: binary.LittleEndian.Uint32(b)}
	var err error
	e.EndedError, err = parseEnded(b[newsHead:])
	return e, err
}

// parseEnded reads that a process takes no part any more.
func parseEnded(b []byte) (EndedError, error) {
	if len(b) < endedHead {
		return EndedError{}, fmt.Errorf("%w: an end of %d bytes", errMalformed, len(b))
	}
	return EndedError{Rank: int(binary.LittleEndian.Uint32(b)), Incarnation: binary.LittleEndian.Uint64(b[4:]), Reason: string(b[endedHead:])}, nil
}

// appendAsked appends to b whether a rank has answered that was under suspicion.
func appendAsked(b []byte, e *End, lives bool) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(e.Rank))
	b = binary.LittleEndian.AppendUint64(b, e.Incarnation)
	b = binary.LittleEndian.AppendUint32(b, e.Question)
	return append(b, flag(lives))
}

// parseAsked reads whether a rank has answered, of askedBytes bytes.
func parseAsked(b []byte) (e *End, lives bool) {
	e = &End{EndedError: EndedError{Rank: int(binary.LittleEndian.Uint32(b)), Incarnation: binary.LittleEndian.Uint64(b[4:])}, Question: binary.LittleEndian.Uint32(b[12:])}
	return e, b[16] == 1
}

// appendSign appends what a rank wants to have signed to b.
func appendSign(b []byte, static [32]byte, at netip.AddrPort) []byte {
	address := at.Addr().As16()
	b = append(append(b, static[:]...), address[:]...)
	return binary.LittleEndian.AppendUint16(b, at.Port())
}

// parseSign reads what a rank wants to have signed, of signBytes bytes.
func parseSign(b []byte) (static [32]byte, at netip.AddrPort) {
	address := netip.AddrFrom16([16]byte(b[32:])).Unmap()
	return [32]byte(b), netip.AddrPortFrom(address, binary.LittleEndian.Uint16(b[48:]))
}

// appendPublished appends what a rank has published to b.
func appendPublished(b []byte, p Published) []byte {
	b = binary.LittleEndian.AppendUint64(b, p.Incarnation)
	ticket := [secure.TicketLen]byte{}
	copy(ticket[:], p.Ticket)
	return append(append(b, ticket[:]...), p.Place...)
}

// parsePublished reads what a rank has published.
func parsePublished(b []byte) (p Published, err error) {
	if len(b) < placeHead {
		return p, fmt.Errorf("%w: a place of %d bytes", errMalformed, len(b))
	}
	p = Published{Incarnation: binary.LittleEndian.Uint64(b), Place: b[placeHead:]}
	if ticket := [secure.TicketLen]byte(b[8:]); ticket != ([secure.TicketLen]byte{}) {
		p.Ticket = ticket[:]
	}
	return p, nil
}
