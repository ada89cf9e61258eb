package userspace_test

import (
	"strings"
	"testing"

	"github.com/xdprma/xdprma/userspace"
)

func TestTransportNamesAreAll(t *testing.T) {
	var names []string
	for _, transport := range userspace.Transports() {
		if got, err := userspace.ParseTransport(string(transport)); err != nil || got != transport {
			t.Errorf("%s: %v, %v", transport, got, err)
		}
		names = append(names, string(transport))
	}
	last := len(names) - 1
	if want := strings.Join(names[:last], ", ") + " or " + names[last]; userspace.TransportNames != want {
		t.Errorf("TransportNames is %q, want %q", userspace.TransportNames, want)
	}
	if _, err := userspace.ParseTransport("tcp"); err == nil || !strings.Contains(err.Error(), userspace.TransportNames) {
		t.Errorf("tcp: %v", err)
	}
}
