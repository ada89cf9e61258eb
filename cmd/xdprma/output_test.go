package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

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
		"line too long":     {[]string{long + "yz\n"}, "> " + long + "yz\n"},
		"too long, pieces":  {[]string{"ab", long, "c", long + long, "d\ne"}, "> ab" + long + "c" + long + long + "d\n> e\n"},
		"too long, no end":  {[]string{long, long}, "> " + long + long + "\n"},
		"carriage returns":  {[]string{"a\rb\r\n"}, "> a\rb\r\n"},
		"newline by itself": {[]string{"a", "\n", "b"}, "> a\n> b\n"},
	} {
		t.Run(name, func(t *testing.T) {
			for prefix, want := range map[string]string{"> ": test.want, "": strings.Join(test.writes, "")} {
				var out bytes.Buffer
				c := newConsole(&out, nil)
				w := &lineWriter{console: c, dst: c.out, prefix: prefix}
				for _, s := range test.writes {
					if n, err := w.Write([]byte(s)); n != len(s) || err != nil {
						t.Fatalf("wrote %d of %d, %v", n, len(s), err)
					}
				}
				w.Flush()
				if out.String() != want {
					t.Errorf("prefix %q: got %.80q (%d bytes), want %.80q (%d)", prefix, out.String(), out.Len(), want, len(want))
				}
			}
		})
	}
}

// However the input is cut into writes, the lines are the same.
func TestLineWriterKeepsLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		writes := rapid.SliceOf(rapid.StringMatching(`[ab\n]{0,20}`)).Draw(t, "writes")
		var out bytes.Buffer
		c := newConsole(&out, nil)
		w := &lineWriter{console: c, dst: c.out, prefix: "> "}
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
	case err := <-c.broken:
		if err.Error() != "closed" {
			t.Error(err)
		}
	default:
		t.Error("not noticed")
	}
}

// TestUnfinishedLines goes through what two ranks and xdprma write while lines have no ends. A writer named late has its
// time come.
func TestUnfinishedLines(t *testing.T) {
	type step struct {
		rank int // -1: xdprma itself
		text string
	}
	const late, end = "late", "end"
	long := strings.Repeat("x", maxLine+1)
	for name, test := range map[string]struct {
		steps      []step
		want, bare string
	}{
		"a question":          {[]step{{0, "name? "}, {0, late}, {0, "hello\n"}}, "[0] name? hello\n", "name? hello\n"},
		"others go first":     {[]step{{0, "a"}, {1, "b\n"}, {0, late}, {0, "c\n"}}, "[1] b\n[0] ac\n", "b\nac\n"},
		"others in between":   {[]step{{0, "a"}, {0, late}, {1, "b\n"}, {0, "c\n"}}, "[0] a\n[1] b\n[0] c\n", "ab\nc\n"},
		"xdprma in between":   {[]step{{0, "a"}, {0, late}, {-1, "b"}, {0, "c\n"}}, "[0] a\nxdprma: b\n[0] c\n", "axdprma: b\nc\n"},
		"one question a time": {[]step{{0, "a"}, {1, "b"}, {0, late}, {1, late}, {0, "c\n"}, {1, late}, {1, "d\n"}}, "[0] ac\n[1] bd\n", "ac\nbd\n"},
		"in pieces":           {[]step{{0, "a"}, {0, late}, {0, "b"}, {0, late}, {0, end}}, "[0] ab\n", "ab"},
		"end within a line":   {[]step{{0, "a"}, {0, late}, {0, end}, {1, "b\n"}}, "[0] a\n[1] b\n", "ab\n"},
		"end after others":    {[]step{{0, "a"}, {0, late}, {1, "b\n"}, {0, end}}, "[0] a\n[1] b\n", "ab\n"},
		"a pause":             {[]step{{0, long}, {0, late}, {1, "b\n"}, {0, "y\n"}}, "[0] " + long + "\n[1] b\n[0] y\n", long + "b\ny\n"},
		"no end of a line":    {[]step{{0, strings.Repeat("x", maxKept+1)}, {1, "b\n"}, {0, "y\n"}}, "[0] " + strings.Repeat("x", maxKept+1) + "\n[1] b\n[0] y\n", strings.Repeat("x", maxKept+1) + "b\ny\n"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, bare := range []bool{false, true} {
				var out bytes.Buffer
				c := newConsole(&out, &out)
				var ranks [2]lineWriter
				for rank := range ranks {
					w := &ranks[rank]
					w.console, w.dst = c, c.out
					w.timer = time.AfterFunc(time.Hour, func() {})
					if !bare {
						w.prefix = fmt.Sprintf("[%d] ", rank)
					}
				}
				for _, s := range test.steps {
					switch {
					case s.rank < 0:
						c.logf("%s", s.text)
					case s.text == late:
						ranks[s.rank].due = time.Now()
						ranks[s.rank].late()
					case s.text == end:
						ranks[s.rank].Flush()
					default:
						ranks[s.rank].Write([]byte(s.text))
					}
				}
				want := test.want
				if bare {
					want = test.bare
				}
				if out.String() != want {
					t.Errorf("bare %v: got %.80q (%d bytes), want %.80q (%d)", bare, out.String(), out.Len(), want, len(want))
				}
			}
		})
	}
}

// TestOthersWaitForALongLine has a second rank ask for the console in the midst of a line.
func TestOthersWaitForALongLine(t *testing.T) {
	var out bytes.Buffer
	c := newConsole(&out, &out)
	long, other := &lineWriter{console: c, dst: c.out, prefix: "[0] "}, &lineWriter{console: c, dst: c.err, prefix: "[1] "}
	long.timer = time.AfterFunc(time.Hour, func() {})
	text := strings.Repeat("x", maxLine)
	fmt.Fprint(long, text, "x")
	var waits sync.WaitGroup
	waits.Go(func() { fmt.Fprintln(other, "y") })
	for range 3 {
		fmt.Fprint(long, text)
	}
	fmt.Fprint(long, "z\na")
	waits.Wait()
	long.Flush()
	if want := "[0] " + text + "x" + text + text + text + "z\n[1] y\n[0] a\n"; out.String() != want {
		t.Errorf("%d bytes, want %d; the end is %q", out.Len(), len(want), out.String()[max(0, out.Len()-40):])
	}
}

// Both outputs show at one place where they are one file, and at two where they are not.
func TestOutputsOfOneFile(t *testing.T) {
	dir := t.TempDir()
	open := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	for second, want := range map[string]bool{"a": true, "b": false} {
		if c := newConsole(open("a"), open(second)); (c.out.at == c.err.at) != want {
			t.Errorf("a and %s: one place is %v", second, !want)
		}
	}
}
