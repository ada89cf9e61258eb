package main

import (
	"unicode"
	"unicode/utf8"
)

// maxWord is the longest word in bytes that the table holds. Of a longer one
// only the beginning counts.
const maxWord = 40

// eachWord calls f with every word of text, in order. A word is a longest run of
// letters (in Unicode's sense), in lower case and cut to maxWord bytes; everything
// else separates words. f must not keep the slice.
func eachWord(text []byte, f func(word []byte)) {
	var buf [maxWord]byte
	n, full := 0, false
	for i := 0; i < len(text); {
		r, size := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRune(text[i:])
		}
		i += size
		switch {
		case 'a' <= r && r <= 'z':
		case 'A' <= r && r <= 'Z':
			r += 'a' - 'A'
		case r >= utf8.RuneSelf && r != utf8.RuneError && unicode.IsLetter(r):
			r = unicode.ToLower(r)
		default:
			if n > 0 {
				f(buf[:n])
			}
			n, full = 0, false
			continue
		}
		if full = full || n+utf8.RuneLen(r) > maxWord; !full {
			n += utf8.EncodeRune(buf[n:], r)
		}
	}
	if n > 0 {
		f(buf[:n])
	}
}
