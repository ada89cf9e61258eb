package loader

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/mpierr"
)

// Mode is where the program runs.
type Mode int

// The modes. Native runs it in the driver, before the kernel has built a socket
// buffer; Generic runs it after, on any interface. TCX is not of XDP: it runs an Executor where tc sees a frame first,
// from Linux 6.6 on, beside programs of others.
const (
	Native Mode = iota
	Generic
	TCX
)

// String returns the mode's name in lower case.
func (m Mode) String() string {
	switch m {
	case Native:
		return "native"
	case Generic:
		return "generic"
	case TCX:
		return "tcx"
	}
	return fmt.Sprintf("mode %d", int(m))
}

// Options say where and how to attach. Zero values mean the defaults named here.
type Options struct {
	Interface string // required; a name in the caller's network namespace
	// Address and Port are required: the IP address and UDP port whose frames are for the
	// sockets. A zone is not looked at.
	Address netip.Addr
	Port    uint16
	Queues  int    // receive queues that get a socket; default 1
	Mode    Mode   // default Native
	Job     uint64 // the hash of a job, which hellos carry; others do not reach the sockets; 0: those of any job do
	Longest int    // bytes of the longest UDP payload for the sockets; 0: of any length
	// HelloKey is the key of Job by which handshakes have codes, of SipHash-2-4. No other
	// handshakes reach the sockets. nil: handshakes have no codes.
	HelloKey *[16]byte
	// HelloRate and HelloBurst limit these hellos on each CPU: HelloRate a second,
	// HelloBurst at once. Defaults 1000 and 1024, and with a HelloKey 20000 and 8192. Hellos of
	// other jobs do not count.
	HelloRate, HelloBurst int
	// Slots is the number of sessions, at most MaxSlots, whose small requests the program may
	// execute. A program that cannot leaves all requests to the sockets; see Program.Tier.
	Slots  int
	Logger *slog.Logger // told why the program cannot execute requests; default: silent

	place *place // where the program goes in libxdp's dispatcher; nil: it has the interface
}

const (
	defaultHelloRate  = 1000
	defaultHelloBurst = 1024

	// With a key nobody but members makes new hellos, but captured ones can be sent again, as often
	// as somebody likes. A member repeats a hello after 4 ms, and so on up to 200 ms, for 5 s: that
	// is what the limit for each value lets through. The limit on all is what 2000 captured hellos
	// use up at most, so fewer leave it to new ones. Of 4096 values 3000 captured hellos have a
	// half: a new hello is alone with its value every second time, and else, where each of them is
	// sent 50 times a second, one of its repetitions in seven passes.
	keyedHelloRate  = 20_000
	keyedHelloBurst = 8192
	valueRate       = 10
	valueBurst      = 8

	maxHelloRate  = 1_000_000_000 // one a nanosecond, the clock's unit
	maxHelloBurst = 1 << 20
	maxPayload    = 1<<16 - 1
	maxQueues     = 1 << 16 // the kernel numbers a frame's queue with 16 bits
)

// withHelloLimits returns o with the limits on hellos that it does not say.
func (o Options) withHelloLimits() Options {
	rate, burst := defaultHelloRate, defaultHelloBurst
	if o.HelloKey != nil {
		rate, burst = keyedHelloRate, keyedHelloBurst
	}
	o.HelloRate, o.HelloBurst = cmp.Or(o.HelloRate, rate), cmp.Or(o.HelloBurst, burst)
	return o
}

// withDefaults returns o complete, or says what is wrong with it.
func (o Options) withDefaults() (Options, error) {
	if o.Queues == 0 {
		o.Queues = 1
	}
	o = o.withHelloLimits()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Address = o.Address.Unmap().WithZone("")
	switch {
	case o.Interface == "":
		return o, badOption("no interface is named")
	case !o.Address.IsValid():
		return o, badOption("no address is named: name one of the interface's")
	case o.Address.IsUnspecified() || o.Address.IsMulticast():
		return o, badOption("the address %v is not of one machine: name one of the interface's", o.Address)
	case o.Port == 0:
		return o, badOption("the UDP port is 0")
	case o.Queues < 0 || o.Queues > maxQueues:
		return o, badOption("%d queues are outside 1 to %d", o.Queues, maxQueues)
	case o.Mode < Native || o.Mode > Generic:
		return o, badOption("%v", o.Mode)
	case o.Longest < 0 || o.Longest > maxPayload:
		return o, badOption("a longest payload of %d bytes is outside 0 to %d", o.Longest, maxPayload)
	case o.Slots < 0 || o.Slots > MaxSlots:
		return o, badOption("%d slots are outside 0 to %d", o.Slots, MaxSlots)
	case o.HelloRate < 0 || o.HelloRate > maxHelloRate:
		return o, badOption("hello rate %d is outside 1 to %d", o.HelloRate, maxHelloRate)
	case o.HelloBurst < 0 || o.HelloBurst > maxHelloBurst:
		return o, badOption("hello burst %d is outside 1 to %d", o.HelloBurst, maxHelloBurst)
	}
	return o, nil
}

func badOption(format string, args ...any) error {
	return mpierr.New("attach", mpierr.Arg, mpierr.NoRank, format, args...)
}

// config is what the program is told of the frames that it is to take.
func (o Options) config() bpf.ClassifierConfig {
	generic := uint64(0)
	if o.Mode == Generic {
		generic = 1
	}
	return bpf.ClassifierConfig{
		Address: addressFor(o.Address),
		Ports:   bpf.ClassifierPorts{Base: o.Port, Count: 1},
		Longest: uint32(o.Longest),
		Generic: generic,
	}
}

// hellos is what the program is told of handshakes.
func (o Options) hellos() bpf.ClassifierHelloConfig {
	interval := uint64(second / o.HelloRate)
	c := bpf.ClassifierHelloConfig{
		Job:           o.Job,
		HelloInterval: interval,
		HelloBurst:    interval * uint64(o.HelloBurst),
		ValueInterval: second / valueRate,
		ValueBurst:    second / valueRate * valueBurst,
	}
	if o.HelloKey != nil {
		c.Keyed = 1
		c.HelloKey = [2]uint64{binary.LittleEndian.Uint64(o.HelloKey[:8]), binary.LittleEndian.Uint64(o.HelloKey[8:])}
	}
	return c
}

const second = 1_000_000_000 // in ns
