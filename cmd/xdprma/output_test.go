package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestLineWriter(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for name, test := range map[string]struct {
		writes []string
		want   string
	}{
		"nothing":           {nil, ""},
		"whole lines":       {[]string{"a\nb\n"}, "> a\n> b\n"},
		"line in pieces":    {[]string{"a", "b", "c\nd", "\n"}, "> abc\n> d\n"},
		"no final newline":  {[]string{"a\nb"}, "> a\n> b\n"},
		"empty lines":       {[]string{"\n\n"}, "> \n> \n"},
		"longest line":      {[]string{long + "\n"}, "> " + long + "\n"},
		"line too long":     {[]string{long + "yz\n"}, "> " + long + "\n> yz\n"},
		"too long, pieces":  {[]string{"ab", long, "\n"}, "> ab" + long[2:] + "\n> xx\n"},
		"carriage returns":  {[]string{"a\rb\r\n"}, "> a\rb\r\n"},
		"newline by itself": {[]string{"a", "\n", "b"}, "> a\n> b\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			w := &lineWriter{console: newConsole(&out, nil), dst: &out, prefix: "> "}
			for _, s := range test.writes {
				if n, err := w.Write([]byte(s)); n != len(s) || err != nil {
					t.Fatalf("wrote %d of %d, %v", n, len(s), err)
				}
			}
			w.Flush()
			if out.String() != test.want {
				t.Errorf("got %.80q (%d bytes), want %.80q (%d)", out.String(), out.Len(), test.want, len(test.want))
			}
		})
	}
}

// However the input is cut into writes, the lines are the same.
func TestLineWriterKeepsLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		writes := rapid.SliceOf(rapid.StringMatching(`[ab\n]{0,20}`)).Draw(t, "writes")
		var out bytes.Buffer
		w := &lineWriter{console: newConsole(&out, nil), dst: &out, prefix: "> "}
		for _, s := range writes {
			w.Write([]byte(s))
		}
		w.Flush()
		want := ""
		for line := range strings.Lines(strings.Join(writes, "")) {
			want += "> " + strings.TrimSuffix(line, "\n") + "\n"
		}
		if out.String() != want {
			t.Fatalf("got %q, want %q", out.String(), want)
		}
	})
}

// singleWrites fails when a write is not made of whole lines.
type singleWrites struct {
	bytes.Buffer
	torn bool
}

func (s *singleWrites) Write(p []byte) (int, error) {
	s.torn = s.torn || !bytes.HasSuffix(p, []byte("\n"))
	return s.Buffer.Write(p)
}

func TestConsoleGetsWholeLines(t *testing.T) {
	var out singleWrites
	c := newConsole(&out, &out)
	var ranks sync.WaitGroup
	for rank := range 8 {
		ranks.Go(func() {
			w := &lineWriter{console: c, dst: c.out, prefix: fmt.Sprintf("[%d] ", rank)}
			for range 200 {
				fmt.Fprint(w, "some", "thing")
				fmt.Fprint(w, "\n")
			}
		})
	}
	ranks.Wait()
	for line := range strings.Lines(out.String()) {
		if len(line) != len("[0] something\n") {
			t.Fatalf("line %q", line)
		}
	}
	if out.torn {
		t.Error("a write did not end with a line")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("closed") }

func TestConsoleNoticesBrokenOutput(t *testing.T) {
	c := newConsole(failing{}, failing{})
	c.logf("one")
	c.logf("two")
	select {
	case <-c.broken:
	default:
		t.Error("not noticed")
	}
}
