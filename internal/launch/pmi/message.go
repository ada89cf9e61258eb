package pmi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Version is one of the two forms that a message has on the wire.
type Version int

// The versions. A message of V1 (1.1) is a line "cmd=NAME key=value …\n". A message of V2
// (2.0) is six characters with the length of the rest, then "cmd=NAME;key=value;…", in
// which two semicolons stand for one of the value's own.
const (
	V1 Version = 1
	V2 Version = 2
)

// maxMessage bounds the length of a message, so that a broken server costs no memory.
const maxMessage = 1 << 16

// lengthDigits is how many characters a message of V2 begins with.
const lengthDigits = 6

var errMalformed = errors.New("malformed message")

// field is a key with its value.
type field struct{ key, value string }

// message is a command with its fields.
type message struct {
	command string
	fields  []field
}

// get returns the value of key, and whether there is one.
func (m *message) get(key string) (string, bool) {
	for _, f := range m.fields {
		if f.key == key {
			return f.value, true
		}
	}
	return "", false
}

// appendMessage appends m, encoded, to b. It refuses what the version cannot carry, and a
// semicolon in V2: servers differ in how they read two of them.
func appendMessage(b []byte, v Version, m message) ([]byte, error) {
	reserved, end := " \n\x00", " "
	if v == V2 {
		reserved, end = ";\x00", ";"
	}
	var text strings.Builder
	for _, f := range append([]field{{"cmd", m.command}}, m.fields...) {
		if f.key == "" || strings.ContainsAny(f.key, reserved+"=") || strings.ContainsAny(f.value, reserved) {
			return nil, fmt.Errorf("PMI cannot carry %s=%q", f.key, f.value)
		}
		text.WriteString(f.key + "=" + f.value + end)
	}
	encoded := text.String()
	if v == V1 {
		encoded = strings.TrimSuffix(encoded, end) + "\n"
	}
	if len(encoded) > maxMessage {
		return nil, fmt.Errorf("a PMI message of %d bytes, the longest is %d", len(encoded), maxMessage)
	}
	if v == V2 {
		b = fmt.Appendf(b, "%*d", lengthDigits, len(encoded))
	}
	return append(b, encoded...), nil
}

// readMessage reads one message.
func readMessage(r *bufio.Reader, v Version) (message, error) {
	if v == V1 {
		line, err := readLine(r)
		if err != nil {
			return message{}, err
		}
		return parse(v, line)
	}
	var length [lengthDigits]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return message{}, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(length[:])))
	if err != nil || n < 1 || n > maxMessage {
		return message{}, fmt.Errorf("%w: %q is not a length from 1 to %d", errMalformed, length[:], maxMessage)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return message{}, err
	}
	return parse(v, string(text))
}

// readLine reads up to the end of a line, and leaves the end out.
func readLine(r *bufio.Reader) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxMessage:
			return "", fmt.Errorf("%w: a line of more than %d bytes", errMalformed, maxMessage)
		case err == nil:
			return string(line[:len(line)-1]), nil
		case errors.Is(err, io.EOF) && len(line) > 0:
			return "", io.ErrUnexpectedEOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return "", err
		}
	}
}

// parse decodes a line without its end, or what follows a length.
func parse(v Version, text string) (message, error) {
	var tokens []string
	if v == V1 {
		tokens = strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\r' })
	} else {
		tokens = splitEscaped(text)
	}
	var m message
	for i, token := range tokens {
		key, value, ok := strings.Cut(token, "=")
		switch {
		case !ok || key == "":
			return message{}, fmt.Errorf("%w %q: %q is not key=value", errMalformed, short(text), short(token))
		case i == 0 && key != "cmd":
			return message{}, fmt.Errorf("%w %q: it does not begin with cmd=", errMalformed, short(text))
		case i == 0:
			m.command = value
		default:
			m.fields = append(m.fields, field{key, value})
		}
	}
	if m.command == "" {
		return message{}, fmt.Errorf("%w %q: it has no command", errMalformed, short(text))
	}
	return m, nil
}

// splitEscaped splits text at single semicolons, and makes one of each two.
func splitEscaped(text string) (tokens []string) {
	var token []byte
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] != ';':
			token = append(token, text[i])
		case i+1 < len(text) && text[i+1] == ';':
			token = append(token, ';')
			i++
		default:
			tokens, token = append(tokens, string(token)), nil
		}
	}
	if len(token) > 0 {
		tokens = append(tokens, string(token))
	}
	return tokens
}

// short returns the beginning of text, for an error.
func short(text string) string {
	const most = 200
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}
