package netlab

import (
	"net"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// Each of many ranks reaches each other one with its first packet. If they had to ask
// for each other's link addresses, there would be more neighbours than the kernel keeps.
func TestManyRanksTalkToAll(t *testing.T) {
	const ranks = 48
	l := newLab(t, Config{Ranks: ranks})
	var sockets []*net.UDPConn
	for rank := range ranks {
		sockets = append(sockets, listen(t, l, rank, l.Addr(rank)))
	}
	for from, c := range sockets {
		for _, to := range sockets {
			if _, err := c.WriteToUDPAddrPort([]byte{byte(from)}, to.LocalAddr().(*net.UDPAddr).AddrPort()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for to, c := range sockets {
		heard := map[byte]bool{}
		c.SetReadDeadline(time.Now().Add(testenv.Limit))
		for len(heard) < ranks {
			var b [1]byte
			if _, err := c.Read(b[:]); err != nil {
				t.Fatalf("rank %d heard of %d ranks of %d: %v", to, len(heard), ranks, err)
			}
			heard[b[0]] = true
		}
	}
}
