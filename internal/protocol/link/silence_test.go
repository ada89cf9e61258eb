package link_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/mpierr"
)

// The error about a silent peer says where it was looked for, and whether a frame ever
// came from there.
func TestSilenceNamesThePeer(t *testing.T) {
	for _, c := range []struct {
		heard bool
		want  string
	}{
		{false, "no frame has ever come from the host behind path"},
		{true, "the last frame from the host behind path"},
	} {
		f := newRanks(t, 2, func(c *link.Config) {
			c.Address = func(p link.PathID) string { return fmt.Sprint("the host behind path ", p) }
		})
		s := f.dial(0, 1)
		if c.heard {
			f.Settle()
		}
		f.Cut[1] = true
		f.ask(s, 8)
		s.push()
		f.Until(20000*millisecond, s.over)
		err := s.Err()
		if !errors.Is(err, mpierr.ProcFailed) || !strings.Contains(err.Error(), "not heard of within the limit") ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("heard %v: %v", c.heard, err)
		} else {
			t.Log(err)
		}
	}
}
