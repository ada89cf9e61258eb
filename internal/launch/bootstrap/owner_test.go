package bootstrap

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// TestRanksPutOnlyWhatIsTheirs has a rank, and the server itself, put keys of all kinds.
func TestRanksPutOnlyWhatIsTheirs(t *testing.T) {
	s := serveAt(t, "127.0.0.1:0")
	ctx := testContext(t)
	m, err := join(t, s, 1, 12)
	if err != nil {
		t.Fatal(err)
	}
	placeOf := func(incarnation uint64) []byte {
		return append(binary.LittleEndian.AppendUint64([]byte{valuePlace}, incarnation), "here"...)
	}
	refused := 0
	for _, test := range []struct {
		name, key string
		value     []byte
		why       string // empty: it may be put
	}{
		{"own key", Key(1, "x"), nil, ""},
		{"own fence", Key(1, "fence/start"), nil, ""},
		{"own place", placeKey(1), placeOf(m.Incarnation), ""},
		{"own place in a later life", placeKey(1), placeOf(m.Incarnation + 1), "another incarnation"},
		{"own place in an earlier life", placeKey(1), placeOf(m.Incarnation - 1), "another incarnation"},
		{"own leave in a later life", placeKey(1), append([]byte{valueLeft}, placeOf(m.Incarnation + 1)[1:placeHead]...), "another incarnation"},
		{"own end", placeKey(1), []byte{valueEnded}, "another incarnation"},
		{"own place, cut off", placeKey(1), placeOf(m.Incarnation)[:placeHead-1], "another incarnation"},
		{"another's place", placeKey(0), placeOf(m.Incarnation), `begin with "1/"`},
		{"another's end", placeKey(0), []byte{valueEnded}, `begin with "1/"`},
		{"key of a rank with a longer number", Key(11, "x"), nil, `begin with "1/"`},
		{"what the launcher says", endKey(0), []byte{2, 0, 0, 0}, `begin with "1/"`},
		{"what it will say", endKey(7), []byte{2, 0, 0, 0}, `begin with "1/"`},
		{"another's fence", Key(0, "fence/start/done"), nil, `begin with "1/"`},
		{"nobody's key", "x", nil, `begin with "1/"`},
		{"its number alone", "1", nil, `begin with "1/"`},
		{"its number written otherwise", "01/x", nil, `begin with "1/"`},
	} {
		err := m.Put(ctx, test.key, test.value)
		if test.why == "" {
			if err != nil {
				t.Errorf("%s: %v", test.name, err)
			}
			continue
		}
		refused++
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), test.why) || !strings.Contains(err.Error(), test.key) {
			t.Errorf("%s: got %v, want it refused, with %q and %q", test.name, err, test.key, test.why)
		}
	}
	if life, place, err := m.Find(ctx, 1); err != nil || life != m.Incarnation || string(place) != "here" {
		t.Errorf("the rank is %q in life %d, %v", place, life, err)
	}
	if s.members.refused != refused {
		t.Errorf("%d counted of %d refused", s.members.refused, refused)
	}
	if who, err := m.Attendance(ctx); err != nil || !strings.Contains(who, `the last time: a process at 127.0.0.1`) || !strings.Contains(who, `"01/x"`) {
		t.Errorf("those who wait see %q, %v", who, err)
	}
	if err := s.Store().Put(ctx, endKey(0), nil); err != nil {
		t.Errorf("the server itself: %v", err)
	}
}
