package loader_test

import (
	"errors"
	"fmt"
	"log"
	"net/netip"

	"github.com/xdprma/xdprma/loader"
)

// A process attaches the program, lets a session through and looks at what becomes of frames. It
// takes CAP_BPF and CAP_NET_ADMIN. Package afxdp makes sockets for SetSocket.
func ExampleAttach() {
	program, err := loader.Attach(loader.Options{
		Interface: "eth0",
		Address:   netip.MustParseAddr("192.0.2.1"),
		Port:      7770,
		Mode:      loader.Generic,
	})
	var inUse *loader.InUseError
	if errors.As(err, &inUse) {
		log.Fatalf("leave program %v alone", inUse.Program)
	}
	if err != nil {
		log.Fatal(err)
	}
	defer program.Close() // detaches it

	if err := program.AllowSession(0x1234, loader.NoSlot); err != nil {
		log.Fatal(err)
	}
	counters, err := program.Counters()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("frames left to the kernel:", counters["passed"])
}

// It takes no privilege to ask what an interface can do.
func ExampleProbe() {
	f, err := loader.Probe("eth0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s (%s): MTU %d, %d receive queues\n", f.Interface, f.Driver, f.MTU, f.RxQueues)
	if err := f.NoNative(); err != nil {
		fmt.Println("attach with loader.Generic:", err)
	}
	fmt.Println("zero-copy:", f.XDP.Has("xsk-zerocopy"))
	if f.Program != nil {
		fmt.Println("it has program", f.Program)
	}
}

// A process finds out whether XDP programs may execute small requests here, and what it lacks.
func ExampleCanExecute() {
	if err := loader.CanExecute(); err != nil {
		fmt.Println("requests are left to the process:", err)
	}
	caps, err := loader.Capabilities()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("missing:", caps.Missing())
}
