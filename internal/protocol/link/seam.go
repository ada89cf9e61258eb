package link

// PathID names a way to a peer that a device has resolved: the headers that a
// frame to that peer starts with and the queue that it leaves through.
type PathID = int32

// NoPath marks the absence of a path.
const NoPath PathID = -1

// Way is how a frame reaches the peer's process.
type Way uint8

// The ways.
const (
	Single  Way = iota // by itself, as the device carries frames
	Joined             // to the peer's UDP socket, mostly with others in one message that the kernel cuts; see runs.go
	numWays            // how many there are
)

// Out is one frame to send: Len bytes of payload in transmit slot Slot.
type Out struct {
	Slot int32
	Len  int32
	Path PathID
	Way  Way
	More bool // it shares a message with the frame that follows
}

// Slab is the memory of a device's transmit slots. The payload of slot i starts
// at Mem[i*Stride+Headroom] and may take up to MaxPayload bytes; the Headroom
// bytes before it belong to the device, which writes link, network and
// transport headers there.
type Slab struct {
	Mem        []byte
	Slots      int
	Stride     int
	Headroom   int
	MaxPayload int
}

// Payload returns the payload area of slot i.
func (s *Slab) Payload(i int32) []byte {
	at := int(i)*s.Stride + s.Headroom
	return s.Mem[at : at+s.MaxPayload : at+s.MaxPayload]
}

// Detach puts memory of the heap in place of the device's, which is about to go or has
// gone. Nothing is sent from then on, so one slot's memory does for all: who still writes
// to a slot harms nobody.
func (s *Slab) Detach() { s.Mem, s.Stride = make([]byte, s.Stride), 0 }

// HeapSlab returns a slab in ordinary memory, for devices that have none of
// their own.
func HeapSlab(slots, headroom, maxPayload int) *Slab {
	stride := (headroom + maxPayload + 63) &^ 63
	return &Slab{Mem: make([]byte, slots*stride), Slots: slots, Stride: stride, Headroom: headroom, MaxPayload: maxPayload}
}
