package afxdp_test

import (
	"context"
	"log"
	"net"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/xdprma/xdprma/afxdp"
)

// attach has all frames that arrive at the interface go to the sockets in the map, each by its
// receive queue. Frames of queues without a socket go to the kernel.
func attach(ifindex int, sockets *ebpf.Map) (link.Link, error) {
	const rxQueueIndex, xdpPass = 16, 2 // struct xdp_md, enum xdp_action
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:    ebpf.XDP,
		License: "MIT",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, rxQueueIndex, asm.Word),
			asm.LoadMapPtr(asm.R1, sockets.FD()),
			asm.Mov.Imm(asm.R3, xdpPass),
			asm.FnRedirectMap.Call(),
			asm.Return(),
		},
	})
	if err != nil {
		return nil, err
	}
	defer program.Close()
	return link.AttachXDP(link.XDPOptions{Program: program, Interface: ifindex, Flags: link.XDPGenericMode})
}

// A process receives a batch of frames from one queue and sends each back to its sender. It
// takes CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF.
func Example() {
	eth0, err := net.InterfaceByName("eth0")
	check(err)
	sockets, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	check(err)
	defer sockets.Close()
	s, err := afxdp.Open(context.Background(), afxdp.Config{IfIndex: eth0.Index, Queue: 0})
	check(err)
	defer s.Close()
	check(sockets.Put(uint32(0), uint32(s.FD())))
	attached, err := attach(eth0.Index, sockets)
	check(err)
	defer attached.Close()

	for {
		readable, err := s.Wait(time.Second, -1)
		check(err)
		if readable {
			break
		}
	}
	received := make([][]byte, 64)
	received = received[:s.Receive(received)]
	chunk := uint64(s.Info().ChunkSize)
	for i, frame := range received {
		offset := uint64(i) * chunk // chunk i of the transmit area
		reply := s.TxArea()[offset:][:len(frame)]
		copy(reply, frame)
		copy(reply[0:6], frame[6:12]) // to the sender's address
		copy(reply[6:12], frame[0:6])
		if !s.Enqueue(offset, len(reply)) {
			log.Fatal("the transmit ring is full")
		}
	}
	s.Release() // the received frames are the kernel's again
	s.Publish()

	done := make([]uint64, len(received))
	for sent := 0; sent < len(received); {
		if _, err := s.Kick(); err != nil {
			log.Fatal(err)
		}
		sent += s.Reap(done) // their chunks may be written to again
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
