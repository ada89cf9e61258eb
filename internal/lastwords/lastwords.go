// Package lastwords is how a rank says in words, at its end, what has gone wrong: to the other ranks
// and to its launcher, which print them.
package lastwords

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Max is how many bytes last words have at most, so that they fit into any frame.
const Max = 512

// cut ends last words that have been cut short.
const cut = "..."

// Of returns text as one line of at most Max bytes, of characters that may be printed: it may come from
// a stranger, or from a program.
func Of(text string) string {
	lines := strings.FieldsFunc(strings.ToValidUTF8(text, "?"), func(r rune) bool { return r == '\n' || r == '\r' })
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.Join(lines, "; "))
	if len(text) <= Max {
		return text
	}
	end := Max - len(cut)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + cut
}

// Failed returns what a rank says that leaves because its program has failed, or nothing if err is nil.
func Failed(err error) string {
	if err == nil {
		return ""
	}
	return Of("its program has failed: " + err.Error())
}

// Aborted returns what a rank says that aborts the job.
func Aborted(err error) string {
	if err == nil {
		return "it has aborted the job"
	}
	return Of("it has aborted the job: " + err.Error())
}
