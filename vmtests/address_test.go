package vmtests

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
)

// Ranks that are told their interfaces alone find addresses at which they reach each
// other: those of the family in which they meet, be they link-local.
func TestAddressesFitTheRendezvous(t *testing.T) {
	for _, c := range []struct {
		name       string
		commands   [2]string // for each rank, separated by semicolons
		rendezvous [2]string
	}{
		{"one rank with IPv6 alone", [2]string{"", "ip address del 10.77.0.2/24 dev xr1"}, [2]string{"[fd77::1]:7000", "[fd77::1]:7000"}},
		{"served at all addresses", [2]string{"", ""}, [2]string{"[::]:7000", "[fd77::1]:7000"}},
		{"link-local", [2]string{
			"ip address flush dev xr0; ip address add fe80::1/64 dev xr0 nodad",
			"ip address flush dev xr1; ip address add fe80::2/64 dev xr1 nodad",
		}, [2]string{"[fe80::1%xr0]:7000", "[fe80::1%xr1]:7000"}},
	} {
		for _, transports := range testenv.Cases([][]string{{"xdp-native", "udp"}}, []string{"udp", "udp"}, []string{"xdp-native", "xdp-native"}) {
			t.Run(c.name+"/"+strings.Join(transports, ", "), func(t *testing.T) {
				t.Parallel() // the most of it is waiting
				lab := labtest.New(t, netlab.Config{Ranks: 2})
				for rank, commands := range c.commands {
					if out, err := lab.Command(rank, "sh", "-e", "-c", commands).CombinedOutput(); err != nil {
						t.Fatalf("%s: %v: %s", commands, err, out)
					}
				}
				start(t, lab, spec{program: "exchange", transports: transports, change: func(rank int, p *bootstrap.Config, _ *exec.Cmd) {
					p.Address, p.Rendezvous, p.Serve = netip.Addr{}, c.rendezvous[rank], rank == 0
				}}).finish()
			})
		}
	}
}
