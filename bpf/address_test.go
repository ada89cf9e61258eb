package bpf_test

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// Frames to other addresses pass to the kernel, whatever their port and whatever is wrong
// with them: other sockets of the host may use the port at another address, and so may
// hosts to which this one forwards.
func TestFramesToOtherAddressesPass(t *testing.T) {
	c := load(t)
	c.limit(t, 1, 1)
	data := message(wire.KindData, session)
	kinds := map[string]packet{
		"known session":   {payload: data},
		"unknown session": {payload: changed(data, 8, 0)},
		"hello":           {payload: message(wire.KindHello, 0)},
		"hello of others": {payload: helloOf(job + 1)},
		"garbage":         {payload: []byte("not of this library")},
		"nothing":         {},
		"bad length":      {payload: data, udpLen: 1},
		"first fragment":  {payload: data, fragment: 0x2000},
	}
	tags := [][]uint16{nil, {unix.ETH_P_8021Q}, {unix.ETH_P_8021AD, unix.ETH_P_8021Q}}
	others := map[bool][]string{
		false: {"10.0.0.3", "10.0.1.2", "11.0.0.2", "10.0.0.255", "255.255.255.255", "224.0.0.1", "0.0.0.0"},
		true: {"fd00::a00:3", "fd00:0:0:1::a00:2", "fd01::a00:2", "fe80::a00:2", "ff02::1", "::", "::ffff:10.0.0.2",
			"a00:2::", "a00:2::ffff"}, // begins like own4
	}
	for _, v6 := range []bool{false, true} { // of the rank
		c.at(t, v6)
		for _, frame6 := range []bool{false, true} {
			for _, to := range append(others[frame6], "") {
				for kind, p := range kinds {
					for _, p.vlans = range tags {
						p.v6, p.to = frame6, to
						t.Run(fmt.Sprintf("IPv6 %v %v/to %q/%d tags/%s", v6, frame6, to, len(p.vlans), kind), func(t *testing.T) {
							frame := p.bytes()
							want := passed
							if to == "" && frame6 == v6 { // the rank's own
								if want = oracle(frame, v6); want == passed {
									t.Fatal("the frame is not the rank's")
								}
							}
							if got := c.run(t, frame, nil); got != want {
								t.Errorf("counter %d, want %d", got, want)
							}
						})
					}
				}
			}
		}
	}
}
