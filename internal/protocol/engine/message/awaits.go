package message

import (
	"fmt"

	"github.com/xdprma/xdprma/mpierr"
)

// Awaits says in words what the receive waits for, and which rank of the job, or NoRank. The tag of a
// collective's message says nothing to a program.
func (r *Receive) Awaits() (what string, rank int) {
	if r.Source == AnySource {
		return "a message from any rank" + withTag(r.Tag), mpierr.NoRank
	}
	return fmt.Sprintf("a message from rank %d", r.Source) + withTag(r.Tag), r.Source
}

// Idles reports whether the message need not ever come: it is one of whoever sends one, as to a server.
func (r *Receive) Idles() bool { return r.Source == AnySource }

// Awaits says in words what the message waits for, and which rank of the job.
func (s *Sending) Awaits() (what string, rank int) {
	rank = s.To.Rank()
	return fmt.Sprintf("rank %d to take a message", rank) + withTag(s.Tag), rank
}

// withTag names the tag of a program's messages.
func withTag(tag int) string {
	if tag < 0 || tag > MaxTag {
		return ""
	}
	return fmt.Sprintf(" with tag %d", tag)
}
