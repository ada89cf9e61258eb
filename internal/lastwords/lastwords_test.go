package lastwords

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestOf(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		"open /nothere":            "open /nothere",
		"one\ntwo\r\n\nthree\n":    "one; two; three",
		"\x1b[31mred\x07\x00\xff.": " [31mred  ?.",
		"größer als 5 µs":          "größer als 5 µs",
	} {
		if got := Of(text); got != want {
			t.Errorf("of %q: %q, want %q", text, got, want)
		}
	}
}

//fuzz:inputs 20000
func FuzzOf(f *testing.F) {
	f.Add(strings.Repeat("ä", Max))
	f.Add(strings.Repeat("a\n", Max))
	f.Fuzz(func(t *testing.T, text string) {
		got := Of(text)
		if len(got) > Max || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x1b") || Of(got) != got {
			t.Errorf("of %q: %q", text, got)
		}
	})
}

func TestReasons(t *testing.T) {
	why := errors.New("open /nothere")
	for got, want := range map[string]string{
		Failed(nil):  "",
		Failed(why):  "its program has failed: open /nothere",
		Aborted(why): "it has aborted the job: open /nothere",
		Aborted(nil): "it has aborted the job",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
