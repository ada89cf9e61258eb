package main

import (
	"strings"
	"testing"
)

// TestUnknownCommandsAreNamed has names that are no command, with and without flags behind them.
func TestUnknownCommandsAreNamed(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"runn", "-n", "2", "--", "true"}, `there is no command "runn": is run meant?`},
		{[]string{"runn"}, `there is no command "runn": is run meant?`},
		{[]string{"--", "runn"}, `there is no command "runn": is run meant?`},
		{[]string{"something", "--else"}, `there is no command "something"; see`},
		{[]string{"run", "-q", "true"}, "not defined: -q"},
		{[]string{"-q"}, "not defined: -q"},
	} {
		c := command(t, test.args...)
		if s := c.run(t); s != statusUsage || !strings.Contains(c.stderr.String(), test.want) {
			t.Errorf("%q: status %d: %s, want %q", test.args, s, &c.stderr, test.want)
		}
	}
}
