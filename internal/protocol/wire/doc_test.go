package wire

import (
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

const reference = "../../../docs/wire.md"

func readReference(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The example in docs/wire.md: rank 0 puts 13 bytes into window 2 of rank 1, at
// byte 64, and waits for it.
func exampleBundle() []byte {
	data := []byte("hello, window")
	frame := make([]byte, HeaderLen+RecordSize(len(data)))
	r := Record{Code: CodePut, Window: 2, Disp: 64}
	copy(PutRecord(frame[HeaderLen:], &r, len(data)), data)
	h := Header{
		Kind: KindData, Flags: FlagAckNow, Session: 0x1122334455667788, Credits: 512,
		Packet: 7, Sequence: 5, AckLargest: 9, AckBits: 0xff, AckRequests: 6, AckResponses: 3,
	}
	h.Encode(frame)
	return frame
}

// The bytes in docs/wire.md are those that the code encodes.
func TestReferenceExample(t *testing.T) {
	var shown strings.Builder
	example := regexp.MustCompile("(?m)^### Without a key\n(?s:.*?)^##").FindString(readReference(t))
	for _, line := range regexp.MustCompile(`(?m)^[0-9a-f]{4}  ((?:[0-9a-f]{2} ?)+)`).FindAllStringSubmatch(example, -1) {
		shown.WriteString(line[1])
	}
	got := strings.ReplaceAll(shown.String(), " ", "")
	if want := hex.EncodeToString(exampleBundle()); got != want {
		t.Errorf("%s shows\n%s\nthe code encodes\n%s", reference, got, want)
	}
}

// The table of the header in docs/wire.md is the header's.
func TestReferenceHeader(t *testing.T) {
	rows := regexp.MustCompile(`(?m)^\| (\d+) \| u(\d+) \| \x60(\w+)\x60 \|`).FindAllStringSubmatch(readReference(t), -1)
	if len(rows) != len(HeaderFields) {
		t.Fatalf("%s lists %d fields, the header has %d", reference, len(rows), len(HeaderFields))
	}
	for i, f := range HeaderFields {
		want := []string{fmt.Sprint(f.Offset), fmt.Sprint(8 * f.Size), f.Name}
		if got := rows[i][1:]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: field %d is %v, the header's is %v", reference, i, got, want)
		}
	}
}

// The table of the records in docs/wire.md has every code, its name, and what it is answered by.
func TestReferenceRecords(t *testing.T) {
	rows := map[string][]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \| ([a-z_]+) \| .*?(?: \| (.*))? \|$`).FindAllStringSubmatch(readReference(t), -1) {
		rows[row[1]] = row[2:]
	}
	for code := range 256 {
		c := Code(code)
		got := rows[fmt.Sprint(code)]
		if c.Row().Name == "" {
			if got != nil {
				t.Errorf("%s: record %d is %q, and there is no such code", reference, code, got[0])
			}
			continue
		}
		answer := "none"
		if a := c.Row().Answer; a != 0 {
			answer = a.String()
		}
		if got == nil || got[0] != c.String() || got[1] != "" && !regexp.MustCompile(`^(one )?`+answer).MatchString(got[1]) {
			t.Errorf("%s: record %d is %q, the code's name is %q and its answer %q", reference, code, got, c, answer)
		}
	}
}
