package job

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// speak is what is wrong with rank 1 of another version, as rank 0 says it.
func speak(theirs string) string {
	return fmt.Sprintf("rank 1 speaks %s of the frames and rank 0 version %d: start all ranks of a job from one build", theirs, wire.Version)
}

// TestPlacesOfAllVersions reads what ranks of this and other builds publish.
func TestPlacesOfAllVersions(t *testing.T) {
	own := fmt.Sprintf("version %d", wire.Version)
	const older, noPlace = "an older version", "which is no place of a rank: start all ranks of a job from one build"
	for _, test := range []struct{ place, at, theirs, fault string }{
		{place: own + " of the frames at 127.0.0.1:7770", at: "127.0.0.1:7770"},
		{place: own + " of the frames at [fe80::1]:7770", at: "[fe80::1]:7770"},
		{place: "127.0.0.1:7770", theirs: older},
		{place: "[fe80::1]:7770", theirs: older},
		{place: "version 3 of the frames at 127.0.0.1:7770", theirs: "version 3"},
		{place: "version 255 in words that are not known yet", theirs: "version 255"},
		{place: "version 255", theirs: "version 255"},
		{place: "", fault: noPlace},
		{place: "127.0.0.1", fault: noPlace},
		{place: "version", fault: noPlace},
		{place: own, fault: noPlace},
		{place: "version -3 of the frames at 127.0.0.1:7770", fault: noPlace},
		{place: "version 256 of the frames at 127.0.0.1:7770", fault: noPlace},
		{place: own + " of the frames at 127.0.0.1", fault: noPlace},
		{place: own + " of the frames at 127.0.0.1:7770, or elsewhere", fault: noPlace},
		{place: strings.TrimPrefix(own, "version ") + " of the frames at 127.0.0.1:7770", fault: noPlace},
	} {
		p, err := parsePeer(1, 0, 0, []byte(test.place))
		at := p.addr
		if test.at != "" {
			if err != nil || at.String() != test.at {
				t.Errorf("%q: got %v, %v, want %s", test.place, at, err, test.at)
			}
			continue
		}
		want := test.fault
		if test.theirs != "" {
			want = speak(test.theirs)
		}
		if err == nil || !strings.Contains(err.Error(), want) || at.IsValid() {
			t.Errorf("%q: got %v, %v, want %q", test.place, at, err, want)
		}
		if !errors.Is(err, mpierr.Unsupported) {
			t.Errorf("%q: %v is not of class unsupported", test.place, err)
		}
	}
}

// TestPlaceIsNoAddressToOlderBuilds reads what a rank publishes as builds before version 4
// did: they refuse it, with an error that has the version.
func TestPlaceIsNoAddressToOlderBuilds(t *testing.T) {
	for _, at := range []string{"127.0.0.1:7770", "[2001:db8::1]:7770"} {
		place := string(PlaceOf(netip.MustParseAddrPort(at)))
		if _, err := netip.ParseAddrPort(place); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("version %d of the frames", wire.Version)) {
			t.Errorf("%q: an older build reads it with %v", place, err)
		}
		if back, err := parsePeer(1, 0, 0, []byte(place)); err != nil || back.addr.String() != at {
			t.Errorf("%q: read as %v, %v", place, back.addr, err)
		}
	}
}
