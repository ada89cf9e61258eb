package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/afxdp"
	"github.com/xdprma/xdprma/bpf/floor"
)

// xdpLine is an AF_XDP socket on queue 0 behind a program that redirects
// everything to it. Its frames are of an EtherType for experiments, so that
// whoever else meets them leaves them alone.
type xdpLine struct {
	bulk
	socket  *afxdp.Socket
	sockets *ebpf.Map
	program *ebpf.Program
	kernel  *floor.Programs // nil until the kernel takes frames for the first time
	answer  *floor.Answer   // nil: answers come to the socket
	taken   uint64          // number of the last answer that receive took from there
	link    link.Link
	open    []io.Closer // what close has to close, in the order of opening
	ifi     *net.Interface
	native  bool

	stride int
	free   []uint64 // offsets of transmit frames that are the caller's
	reaped [receiveMax]uint64
	frames [receiveMax][]byte
}

const (
	experimental = 0x88b5 // EtherType
	xdpFrames    = 1024   // in each direction
	xdpWindow    = 512
	xdpPass      = 2    // of enum xdp_action
	smallMTU     = 1500 // up to here a chunk of 2048 bytes holds a frame
)

func openXDPLine(ifname string, generic bool) (l *xdpLine, err error) {
	l = &xdpLine{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("AF_XDP floor on %s: %w", ifname, err), l.close())
			l = nil
		}
	}()
	if l.ifi, err = net.InterfaceByName(ifname); err != nil {
		return l, err
	}
	if l.socket, err = afxdp.Open(context.Background(), l.config()); err != nil {
		return l, err
	}
	l.open = append(l.open, l.socket)
	if err = l.attach(generic); err != nil {
		return l, err
	}
	for i := range xdpFrames {
		l.free = append(l.free, uint64(i*l.stride))
	}
	return l, nil
}

// config lays frames out in chunks as the library's device does.
func (l *xdpLine) config() afxdp.Config {
	chunk := 4096
	if l.ifi.MTU <= smallMTU {
		chunk = 2048
	}
	length := l.payload() + headers
	perSlot := (length + chunk - 1) / chunk
	room := chunk - unix.XDP_PACKET_HEADROOM
	perFrame := (length + room - 1) / room
	l.stride = perSlot * chunk
	return afxdp.Config{
		IfIndex: l.ifi.Index, ChunkSize: chunk,
		TxChunks: xdpFrames * perSlot, RxChunks: 2 * xdpFrames * perFrame,
		MultiBuffer: perSlot > 1 || perFrame > 1, MaxFrame: min(max(chunk, length), 1<<16),
	}
}

// attach puts the program on the interface, in the driver where that works.
func (l *xdpLine) attach(generic bool) (err error) {
	l.sockets, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return err
	}
	l.open = append(l.open, l.sockets)
	if err = l.sockets.Put(uint32(0), uint32(l.socket.FD())); err != nil {
		return err
	}
	if l.program, err = ebpf.NewProgram(redirect(l.sockets)); err != nil {
		return err
	}
	l.open = append(l.open, l.program)
	options := link.XDPOptions{Program: l.program, Interface: l.ifi.Index, Flags: link.XDPDriverMode}
	if !generic {
		if l.link, err = link.AttachXDP(options); err == nil {
			l.native = true
		}
	}
	if !l.native {
		options.Flags = link.XDPGenericMode
		l.link, err = link.AttachXDP(options)
	}
	if err == nil {
		l.open = append(l.open, l.link)
	}
	return err
}

// redirect is the least program that an AF_XDP socket needs.
func redirect(sockets *ebpf.Map) *ebpf.ProgramSpec {
	const rxQueueIndex = 16 // offset in struct xdp_md
	return &ebpf.ProgramSpec{
		Name: "xdprma_floor", Type: ebpf.XDP, AttachType: ebpf.AttachXDP, License: "MIT", Flags: unix.BPF_F_XDP_HAS_FRAGS,
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, rxQueueIndex, asm.Word),
			asm.LoadMapPtr(asm.R1, sockets.FD()),
			asm.Mov.Imm(asm.R3, xdpPass),
			asm.FnRedirectMap.Call(),
			asm.Return(),
		},
	}
}

// taking exchanges the program on the interface.
func (l *xdpLine) taking(by taker) (err error) {
	l.answer = nil
	if by == socketTakes {
		return l.link.Update(l.program)
	}
	if l.kernel == nil {
		if l.kernel, err = floor.Load(); err != nil {
			return err
		}
		l.open = append(l.open, l.kernel)
	}
	if by == kernelAnswers {
		return l.link.Update(l.kernel.FetchAdd())
	}
	l.answer = l.kernel.Answer()
	return l.link.Update(l.kernel.KeepAnswer())
}

func (l *xdpLine) payload() int    { return l.ifi.MTU - ipUDP }
func (l *xdpLine) window() int     { return xdpWindow }
func (l *xdpLine) burst() int      { return sendBatch }
func (l *xdpLine) address() []byte { return l.ifi.HardwareAddr }

func (l *xdpLine) mode() string {
	if l.native {
		return "xdp-native"
	}
	return "xdp-generic"
}

func (l *xdpLine) counts() string {
	c, err := l.socket.Stats()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d frames sent and %d of them dropped at once, %d received, %d dropped for want of room",
		c.TxFrames, c.TxLost, c.RxFrames, c.KernelRxDropped+c.KernelRxRingFull)
}

// connect writes the Ethernet header into every transmit frame.
func (l *xdpLine) connect(peer []byte) error {
	if len(peer) != 6 || len(l.ifi.HardwareAddr) != 6 {
		return fmt.Errorf("%x and %x are not both Ethernet addresses", peer, l.ifi.HardwareAddr)
	}
	area := l.socket.TxArea()
	for _, at := range l.free {
		frame := area[at:]
		copy(frame, peer)
		copy(frame[6:], l.ifi.HardwareAddr)
		frame[12], frame[13] = experimental>>8, experimental&0xff
	}
	return nil
}

// idleReaps bounds the looks for a free frame, each of which lets the kernel send.
const idleReaps = 1 << 20

func (l *xdpLine) send(number uint64, n, length int) error {
	area := l.socket.TxArea()
	if l.answer != nil {
		l.answer.Await(number)
	}
	for n > 0 {
		batch := min(n, sendBatch)
		for tries := 0; len(l.free) < batch; tries++ {
			if tries > idleReaps {
				return errors.New("the kernel does not give transmit frames back")
			}
			got := l.socket.Reap(l.reaped[:])
			l.free = append(l.free, l.reaped[:got]...) // within capacity
			if got == 0 {
				if _, err := l.socket.Kick(); err != nil {
					return err
				}
			}
		}
		for range batch {
			at := l.free[len(l.free)-1]
			payload := area[at+headers:]
			putMark(payload, number)
			l.fill(payload[markLen:length])
			if !l.socket.Enqueue(at, length+headers) {
				return errors.New("the transmit ring is full although frames are free")
			}
			l.free = l.free[:len(l.free)-1]
		}
		l.socket.Publish()
		if err := l.kick(); err != nil {
			return err
		}
		n -= batch
	}
	return nil
}

// kick makes the kernel take all that was published.
func (l *xdpLine) kick() error {
	for range idleReaps {
		switch result, err := l.socket.Kick(); result {
		case afxdp.KickDone, afxdp.KickFailed:
			return err
		}
		got := l.socket.Reap(l.reaped[:])
		l.free = append(l.free, l.reaped[:got]...)
	}
	return errors.New("the kernel does not take the frames")
}

func (l *xdpLine) receive(numbers []uint64) (int, error) {
	if l.answer != nil {
		return l.take(numbers), nil
	}
	got := l.socket.Receive(l.frames[:min(len(numbers), receiveMax)])
	if got == 0 {
		return 0, nil
	}
	n := 0
	for _, frame := range l.frames[:got] {
		if len(frame) < headers+markLen {
			continue
		}
		if number, ok := mark(frame[headers:]); ok {
			numbers[n] = number
			n++
		}
		l.drain(frame[headers+markLen:])
	}
	l.socket.Release()
	l.socket.Refill()
	return n, nil
}

// take is receive from memory.
func (l *xdpLine) take(numbers []uint64) int {
	number, word := l.answer.Take()
	if number == l.taken {
		return 0
	}
	l.taken, numbers[0] = number, number
	l.sum ^= uint32(word)
	return 1
}

func (l *xdpLine) close() error {
	var errs []error
	for _, c := range slices.Backward(l.open) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
