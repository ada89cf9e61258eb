package bootstrap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A message, in either direction, is a little-endian u32 with the length of the
// rest, then u8 kind, u32 call, body. The client's first message is a hello;
// its other messages ask, and the server's answers carry the call of what they
// answer. Bodies:
//
//	hello    u32 rank, u32 size, magic, version, token; the answer is the rank's
//	         incarnation, u64
//	put      u16 key length, key, value
//	get      key; answered once there is a value
//	look     key; answered at once
//	cancel   nothing; not answered
//	who      nothing; the answer says in words which ranks are there
//	answers  the value of a get, the words of an error, or nothing
const (
	kindHello  = 1
	kindPut    = 2
	kindGet    = 3
	kindCancel = 4
	kindWho    = 5
	kindLook   = 6

	kindOK      = 128
	kindFailed  = 129 // the call failed, for the reason in the body
	kindLimit   = 130 // it failed with ErrLimit
	kindAborted = 131 // it failed with AbortError
	kindRefused = 132 // it was not for this rank; after a hello the connection ends
	kindAbsent  = 133 // there is no value yet
)

const (
	protocol         = "XRBS"
	protocolVersion  = "\x04"
	helloMagic       = protocol + protocolVersion
	messageHead      = 4 + 1 + 4
	maxMessageBytes  = 5 + 2 + MaxKeyBytes + MaxValueBytes // without the length field
	helloHead        = 4 + 4                               // rank and size
	maxHelloBytes    = 5 + helloHead + len(helloMagic) + maxTokenBytes
	maxTokenBytes    = 256
	minMessageBytes  = 5
	lengthFieldBytes = 4
)

var errMalformed = errors.New("malformed message")

// message is one decoded message. key and body point into the buffer it was
// read from; key is set for put, get and look only, rank and size for hello.
type message struct {
	kind       byte
	call       uint32
	rank, size int
	key        string
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
	case kindPut:
		b = binary.LittleEndian.AppendUint16(b, uint16(len(m.key)))
		b = append(b, m.key...)
	case kindGet, kindLook:
		b = append(b, m.key...)
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
	case kindPut:
		if len(m.body) < 2 {
			return message{}, fmt.Errorf("%w: put without a key", errMalformed)
		}
		n := int(binary.LittleEndian.Uint16(m.body))
		if n == 0 || n > MaxKeyBytes || 2+n > len(m.body) {
			return message{}, fmt.Errorf("%w: put with a key of %d bytes", errMalformed, n)
		}
		m.key, m.body = string(m.body[2:2+n]), m.body[2+n:]
	case kindGet, kindLook:
		if len(m.body) == 0 || len(m.body) > MaxKeyBytes {
			return message{}, fmt.Errorf("%w: kind %d with a key of %d bytes", errMalformed, m.kind, len(m.body))
		}
		m.key, m.body = string(m.body), nil
	case kindHello:
		if len(m.body) < helloHead {
			return message{}, fmt.Errorf("%w: hello without a rank", errMalformed)
		}
		m.rank, m.size = int(binary.LittleEndian.Uint32(m.body)), int(binary.LittleEndian.Uint32(m.body[4:]))
		m.body = m.body[helloHead:]
	case kindCancel, kindWho, kindOK, kindFailed, kindLimit, kindAborted, kindRefused, kindAbsent:
	default:
		return message{}, fmt.Errorf("%w: kind %d", errMalformed, m.kind)
	}
	return m, nil
}
