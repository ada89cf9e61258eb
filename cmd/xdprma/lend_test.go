package main

import (
	"context"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/userspace"
)

// parseLend has `xdprma lend` read its command line and environment, and nothing else.
func parseLend(t *testing.T, args ...string) (network userspace.Config, err error) {
	c := lendCommand()
	c.Writer, c.ErrWriter = io.Discard, io.Discard
	c.Action = func(_ context.Context, c *cli.Command) error {
		l := &lender{args: c.Args().Slice(), who: "nobody"}
		err := l.parse(c)
		network = l.network
		return err
	}
	err = c.Run(t.Context(), append(append([]string{"lend"}, args...), "--", "true"))
	return network, err
}

// A rank and lend refuse the same values of a variable in the same words, and so does lend those of
// the option.
func TestLendReadsVariablesAsARankDoes(t *testing.T) {
	t.Setenv(bootstrap.EnvInterface, "eth0")
	for _, o := range lendOptions {
		bad := map[string][]string{
			"interface": {"a/b", "0123456789abcdef"},
			"address":   {"10.0.0", "0.0.0.0", "ff02::1"},
			"port":      {"70000", "-1", "http", "7770.0", "tcp://10.0.0.1:7000"},
			"transport": {"xdp-fast", "XDP"},
			"queues":    {"0", "65", "two"},
		}[o.name]
		if len(bad) == 0 {
			t.Errorf("--%s has no bad value in this test", o.name)
		}
		for _, value := range bad {
			t.Run(o.variable+"="+value, func(t *testing.T) {
				t.Setenv(o.variable, value)
				_, rank := bootstrap.FromEnvironment()
				_, lend := parseLend(t)
				if rank == nil || lend == nil || rank.Error() != lend.Error() || !strings.Contains(rank.Error(), o.variable+"=") {
					t.Errorf("a rank says %v, and lend %v", rank, lend)
				}
			})
			t.Run("--"+o.name+"="+value, func(t *testing.T) {
				t.Setenv(o.variable, "")
				if _, err := parseLend(t, "--"+o.name+"="+value); err == nil || !strings.Contains(err.Error(), o.name) {
					t.Errorf("lend says %v", err)
				}
			})
		}
	}
}

func TestLendPrefersOptions(t *testing.T) {
	for name, value := range map[string]string{bootstrap.EnvInterface: "eth1", bootstrap.EnvAddress: "10.0.0.1", bootstrap.EnvPort: "70000", bootstrap.EnvQueues: "3"} {
		t.Setenv(name, value)
	}
	got, err := parseLend(t, "--interface=eth0", "--port=7771", "--address=")
	if err != nil || got.Interface != "eth0" || got.Port != 7771 || got.Queues != 3 || got.Transport != userspace.XDP || got.Address != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := parseLend(t, "--port=0"); err != nil || got.Port != bootstrap.DefaultPort {
		t.Errorf("port %d, %v, want %d", got.Port, err, bootstrap.DefaultPort)
	}
}
