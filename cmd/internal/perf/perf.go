// Package perf measures one-sided communication as the one-sided tests of the
// OSU micro-benchmarks do, and the floor under it: what AF_XDP, or a UDP socket
// where there is no AF_XDP or where that is faster, does between the same processes'
// interfaces without any protocol.
//
// A measurement runs in a job whose ranks all call Run with the same Plan; rank
// 0, the origin, gets the samples. A floor runs in a job of two with RunFloor.
// Samples of several jobs are merged, and compared with the floors taken before,
// between and after them, by Summarize.
package perf

import "time"

// Point is one setting of one test.
type Point struct {
	Test   string
	Bytes  int `json:",omitempty"` // of an operation
	Window int `json:",omitempty"` // operations outstanding; 0 where the test has none
	Ranks  int // that take part
}

// Plan is what the ranks of a job measure. All ranks have the same.
type Plan struct {
	Points     []Point       `json:",omitempty"`
	Floors     []FloorPoint  `json:",omitempty"`
	Device     FloorDevice   `json:",omitempty"` // of the floors
	Duration   time.Duration // of each point's timed loop
	Bind       bool          // whether two ranks keep to a processor each, but for tests of scheduling
	Iterations int           `json:",omitempty"` // if not 0, the passes of the timed loop, in place of Duration
}

// Sample is what one job measured at one point.
type Sample struct {
	Point   Point
	Latency []byte        `json:",omitempty"` // encoded histogram of passes, in nanoseconds
	Ops     uint64        // operations in the timed loop, of all ranks that count
	Elapsed time.Duration // of the timed loop
	Passes  uint64        // of the timed loop
	Allocs  uint64        // by the origin's process in the timed loop
	CPU     time.Duration `json:",omitempty"` // processor time of the origin's process, of the test idle
	Mode    string        // how frames travelled
	Level   string        // of their security
	MTU     int           // bytes of the largest IP packet

	// WhileStopped is how many passes began and finished while the target was
	// stopped, in a test that stops it.
	WhileStopped *uint64 `json:",omitempty"`

	// Executed is how many requests the XDP programs of the ranks have executed, those of
	// the warm-up too.
	Executed uint64 `json:",omitempty"`
}

// FloorKind is what a floor does.
type FloorKind string

// The kinds. An echo is as many frames as Bytes takes in one direction and one
// small frame back. A stream is full frames in one direction, or frames of one
// operation each if Bytes is not 0, in a window that keeps the receiver from
// overflowing. CheckedStream is Stream with what no reliable transfer can do
// without: the sender copies every frame's bytes from memory and the receiver to
// memory, and both compute the checksum that frames of the library carry. SignedStream is the
// same with the tags of signed frames, and SealedStream with those and the encryption of sealed
// ones. Kernel is
// an echo of one small frame, answered by the XDP program of the other side, which
// fetches a word and adds to it: no thread of that side runs. Memory is the same with an XDP
// program on the asking side, too, which writes the answer to memory that its process polls:
// no socket receives it. JoinedStream is Stream of UDP
// frames that the kernel keeps joined as long as it can, where an XDP program in generic
// mode passes them. Costs has more, over UDP sockets alone.
const (
	Echo          FloorKind = "floor-echo"
	Kernel        FloorKind = "floor-kernel"
	Memory        FloorKind = "floor-memory"
	Stream        FloorKind = "floor-stream"
	CheckedStream FloorKind = "floor-stream-checked"
	SignedStream  FloorKind = "floor-stream-signed"
	SealedStream  FloorKind = "floor-stream-sealed"
	JoinedStream  FloorKind = "floor-stream-joined"
)

// FloorPoint is one setting of a floor.
type FloorPoint struct {
	Kind  FloorKind
	Bytes int `json:",omitempty"`

	// Of a floor in the kernel: the load on the answering side, none if empty, and
	// the time between two requests.
	Load string        `json:",omitempty"`
	Pace time.Duration `json:",omitempty"`
}

// roundTrips reports whether the floor's figure is the time of a round trip.
func (p FloorPoint) roundTrips() bool { return p.Kind == Echo || p.inKernel() }

// inKernel reports whether the kernel of the other side answers.
func (p FloorPoint) inKernel() bool { return p.Kind == Kernel || p.Kind == Memory }

// taker returns what takes the floor's frames on one side.
func (p FloorPoint) taker(side int) taker {
	switch {
	case side == 1 && p.inKernel():
		return kernelAnswers
	case p.Kind == Memory:
		return kernelKeeps
	}
	return socketTakes
}

// On returns the device of the floor beneath ranks that use the given one.
func (p FloorPoint) On(ranks FloorDevice) FloorDevice {
	if p.Kind == JoinedStream {
		return FloorJoined
	}
	return ranks
}

// FloorDevice names what carries a floor's frames.
type FloorDevice string

// The devices. FloorXDP is a program in the driver where that is possible. FloorJoined is
// a UDP socket on an interface with a generic program that passes all frames.
const (
	FloorXDP        FloorDevice = "xdp"
	FloorXDPGeneric FloorDevice = "xdp-generic"
	FloorUDP        FloorDevice = "udp"
	FloorJoined     FloorDevice = "udp behind xdp-generic"
)

// FloorSample is what one job measured of a floor.
type FloorSample struct {
	Point   FloorPoint
	Latency []byte  `json:",omitempty"` // of an echo, also in the kernel: encoded histogram of round trips, in nanoseconds
	MBPerS  float64 `json:",omitempty"` // of a stream: 10^6 payload bytes a second
	Message int     `json:",omitempty"` // payload bytes that the sender of a stream hands over at once
	// Of a step of Costs: for how many µs each side is busy with a message.
	SenderTime   float64 `json:",omitempty"`
	ReceiverTime float64 `json:",omitempty"`
	Lost         uint64  `json:",omitempty"` // round trips or frames that did not complete and do not count
	Mode         string  // "xdp-native", "xdp-generic", "udp" or "udp behind xdp-generic"
	MTU          int     // bytes of the largest IP packet
}
