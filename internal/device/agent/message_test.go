package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/mpierr"
)

// A request is read if it is whole and of this version, and nothing else is.
//
//fuzz:inputs 100000
func FuzzRequest(f *testing.F) {
	f.Add(put(request{ABI: abi, Kind: enter, Interface: 2, Slots: 16}))
	f.Add(put(request{ABI: abi + 1, Kind: memory, Value: 1 << 40}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRequest(b)
		if whole := len(b) == requestLen && binary.LittleEndian.Uint32(b) == abi; (err == nil) != whole {
			t.Errorf("%x: %v", b, err)
		}
		if err == nil && !bytes.Equal(put(r), b) {
			t.Errorf("%x is read as %+v", b, r)
		}
	})
}

// A reply is read if it is one, and what it says in an error can be shown.
//
//fuzz:inputs 100000
func FuzzReply(f *testing.F) {
	f.Add(put(reply{ABI: abi, Mode: 2, Most: 256}))
	f.Add(refusal(mpierr.New("enter", mpierr.NoMem, mpierr.NoRank, "no room")))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseReply(b)
		if err == nil && (!bytes.Equal(put(r.reply), b[:replyLen]) || r.text != string(bytes.ToValidUTF8(b[replyLen:], []byte("?")))) {
			t.Errorf("%x is read as %+v", b, r)
		}
	})
}

// The class of a refusal and its text come through, cut to what a packet holds.
func TestRefusals(t *testing.T) {
	for _, err := range []error{
		mpierr.New("enter", mpierr.NoMem, mpierr.NoRank, "no room"),
		mpierr.New("enter", mpierr.Arg, mpierr.NoRank, "%s", strings.Repeat("long ", 1000)),
		errors.New("of no class"),
	} {
		_, got := parseReply(refusal(err))
		text := strings.TrimPrefix(err.Error(), fmt.Sprintf("enter: %v: ", mpierr.ClassOf(err))) // the rank says the rest
		if mpierr.ClassOf(got) != mpierr.ClassOf(err) || !strings.HasSuffix(got.Error(), ": "+text[:min(len(text), maxText)]) {
			t.Errorf("%v comes as %v", err, got)
		}
	}
}
