package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// The agent refuses what it does not understand, and says what to write.
func TestAgentUsage(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"eth0"}, "takes no arguments"},
		{[]string{"--socket", "here"}, "begins with a slash"},
		{[]string{"--socket", socket, "--mode", "rw"}, "octal number"},
		{[]string{"--socket", socket, "--mode", "01777"}, "octal number"},
		{[]string{"--socket", socket, "--group", "no such group"}, "there is no group"},
		{[]string{"--socket", socket, "--ports", "7000:8000"}, "such as 7000-7999"},
		{[]string{"--socket", socket, "--ports", "0-10"}, "such as 7000-7999"},
		{[]string{"--socket", socket, "--ports", "70000"}, "such as 7000-7999"},
		{[]string{"--socket", socket, "--ports", "20-10"}, "begins behind its end"},
		{[]string{"--socket", socket, "--ranks", "0"}, "at least 1"},
		{[]string{"--socket", socket, "--memory", "-1"}, "at least 1"},
	} {
		c := command(t, append([]string{"agent"}, test.args...)...)
		if status := c.run(t); status != statusUsage || !strings.Contains(c.stderr.String(), test.want) {
			t.Errorf("%q: status %d, %s", test.args, status, &c.stderr)
		}
	}
	for text, want := range map[string][2]uint16{"7000-7999": {7000, 7999}, "9": {9, 9}, "1-65535": {1, 65535}} {
		if got, err := parsePorts(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}
