package userspace

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/loader"
)

// Generic mode comes first on veth, native mode elsewhere, and a mode that is named is the
// only one.
func TestLadder(t *testing.T) {
	for _, c := range []struct {
		transport, kind string
		want            []string
	}{
		{TransportAuto, "veth", []string{TransportXDPGeneric, TransportXDPNative, TransportUDP}},
		{TransportXDP, "veth", []string{TransportXDPGeneric, TransportXDPNative}},
		{TransportXDPNative, "veth", []string{TransportXDPNative}},
		{TransportXDPGeneric, "veth", []string{TransportXDPGeneric}},
		{TransportUDP, "veth", []string{TransportUDP}},
		{TransportAuto, "device", []string{TransportXDPNative, TransportXDPGeneric, TransportUDP}},
		{TransportXDP, "macvlan", []string{TransportXDPNative, TransportXDPGeneric}},
		{TransportXDPGeneric, "device", []string{TransportXDPGeneric}},
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
		fails []string
		want  string
		says  []string
	}{
		{nil, TransportXDPGeneric, nil},
		{[]string{TransportXDPGeneric}, TransportXDPNative, []string{"using=xdp-native tried=xdp-generic ", "no xdp-generic here"}},
		{[]string{TransportXDPGeneric, TransportXDPNative}, TransportUDP,
			[]string{`using=udp tried="xdp-generic, xdp-native"`, "no xdp-generic here; no xdp-native here"}},
	} {
		var log bytes.Buffer
		config := &Config{Interface: "veth", Address: netip.MustParseAddr("127.0.0.1"), Logger: slog.New(slog.NewTextHandler(&log, nil))}
		var opened string
		_, err := config.climb(t.Context(), Ladder(TransportAuto, loader.Features{Kind: "veth"}), func(_ context.Context, transport string, _ bool) (Device, error) {
			if slices.Contains(c.fails, transport) {
				return nil, errors.New("no " + transport + " here")
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
