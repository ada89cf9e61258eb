package device

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/userspace"
)

// Generic mode comes first on veth, native mode elsewhere, and a mode that is named is the
// only one.
func TestLadder(t *testing.T) {
	for _, c := range []struct {
		transport userspace.Transport
		kind      string
		want      []userspace.Transport
	}{
		{userspace.Auto, "veth", []userspace.Transport{userspace.XDPGeneric, userspace.XDPNative, userspace.UDP}},
		{userspace.XDP, "veth", []userspace.Transport{userspace.XDPGeneric, userspace.XDPNative}},
		{userspace.XDPNative, "veth", []userspace.Transport{userspace.XDPNative}},
		{userspace.XDPGeneric, "veth", []userspace.Transport{userspace.XDPGeneric}},
		{userspace.UDP, "veth", []userspace.Transport{userspace.UDP}},
		{userspace.Auto, "device", []userspace.Transport{userspace.XDPNative, userspace.XDPGeneric, userspace.UDP}},
		{userspace.XDP, "macvlan", []userspace.Transport{userspace.XDPNative, userspace.XDPGeneric}},
		{userspace.XDPGeneric, "device", []userspace.Transport{userspace.XDPGeneric}},
	} {
		if got := Ladder(c.transport, loader.Features{Kind: c.kind}); !slices.Equal(got, c.want) {
			t.Errorf("%s on %s: %q, want %q", c.transport, c.kind, got, c.want)
		}
	}
}

// The first choice is taken without a word, whichever it is. Another one is taken with a
// warning that says which were better and why they failed.
func TestClimbWarnsOfWhatFailed(t *testing.T) {
	for _, c := range []struct {
		fails []userspace.Transport
		want  userspace.Transport
		says  []string
	}{
		{nil, userspace.XDPGeneric, nil},
		{[]userspace.Transport{userspace.XDPGeneric}, userspace.XDPNative, []string{"using=xdp-native tried=xdp-generic ", "no xdp-generic here"}},
		{[]userspace.Transport{userspace.XDPGeneric, userspace.XDPNative}, userspace.UDP,
			[]string{`using=udp tried="xdp-generic, xdp-native"`, "no xdp-generic here; no xdp-native here"}},
	} {
		var log bytes.Buffer
		config := &Config{Config: userspace.Config{Interface: "veth", Address: netip.MustParseAddr("127.0.0.1")}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		var opened userspace.Transport
		_, err := config.climb(t.Context(), Ladder(userspace.Auto, loader.Features{Kind: "veth"}), func(_ context.Context, transport userspace.Transport, _ bool) (Device, error) {
			if slices.Contains(c.fails, transport) {
				return nil, fmt.Errorf("no %s here", transport)
			}
			opened = transport
			return nil, nil
		})
		if err != nil || opened != c.want {
			t.Errorf("%q fail: opened %q, want %q: %v", c.fails, opened, c.want, err)
		}
		if (log.Len() > 0) != (c.says != nil) || strings.Contains(log.String(), "slower") {
			t.Errorf("%q fail: log %s", c.fails, &log)
		}
		for _, want := range c.says {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%q fail: no %q in %s", c.fails, want, &log)
			}
		}
	}
}
