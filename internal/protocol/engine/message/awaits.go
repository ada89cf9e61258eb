package message

import "fmt"

// Awaits says in words what the receive waits for. The tag of a collective's message says nothing to a
// program.
func (r *Receive) Awaits() string {
	text := "a message from any rank"
	if r.Source != AnySource {
		text = fmt.Sprintf("a message from rank %d", r.Source)
	}
	return text + withTag(r.Tag)
}

// Idles reports whether the message need not ever come: it is one of whoever sends one, as to a server.
func (r *Receive) Idles() bool { return r.Source == AnySource }

// Awaits says in words what the message waits for.
func (s *Sending) Awaits() string {
	return fmt.Sprintf("rank %d to take a message", s.To.Rank()) + withTag(s.Tag)
}

// withTag names the tag of a program's messages.
func withTag(tag int) string {
	if tag < 0 || tag > MaxTag {
		return ""
	}
	return fmt.Sprintf(" with tag %d", tag)
}
