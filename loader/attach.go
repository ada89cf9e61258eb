// Package loader attaches the library's XDP program to a network interface and controls it:
// which sockets frames go to, which sessions are let through, what is counted.
// It also finds out what an interface and a process can do. A program that calls rma.Join needs
// none of it.
//
// The program is called the classifier, because it decides for each frame that arrives: the
// AF_XDP socket of the receive queue gets it, the kernel does, or nobody. Frames of the library
// carry a session id. Two ranks agree on the id with hellos, which are frames without a
// session; other frames with an id that was not allowed are dropped. The wire format is in
// docs/wire.md.
//
// The program is attached by a BPF link that is not pinned. It detaches when the
// Program is closed and when the process dies, however it dies.
package loader

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/internal/openfiles"
)

// programOfOurs is the name under which the kernel knows the classifier.
const programOfOurs = bpf.ClassifierProgXdprmaClassify

// Attach loads the classifier and attaches it to an interface. Until AllowSession is
// called, the classifier drops frames to the configured address and port, save handshakes,
// and passes all other frames to the kernel. Frames to the address and port that it does
// not drop go to the socket of the queue, or to the kernel where SetSocket gave the queue
// none.
//
// It needs CAP_BPF and CAP_NET_ADMIN, and Linux 5.18. It never replaces a program:
// if there is one, errors.As finds an InUseError. libxdp's dispatcher it enters if that keeps a
// place for it, by a program "xdprma_slot", which takes CAP_SYS_ADMIN; it may wait for libxdp's lock. Errors say what to do; their
// class is mpierr.Arg for bad options and mpierr.Unsupported for what this
// machine or process cannot do. The caller must keep the Program and Close it.
func Attach(opts Options) (*Program, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	features, err := Probe(o.Interface)
	if err != nil {
		return nil, err
	}
	if err := features.Free(); err != nil {
		return nil, err
	}
	if features.Program != nil {
		if o.place, err = features.Program.open(o.Mode); err != nil {
			return nil, err
		}
		defer o.place.in.Close()
	}
	p, err := load(o)
	if err != nil {
		return nil, explain("attach", err, circumstances(o.Mode, features))
	}
	if err := p.attach(features, o.place); err != nil {
		_ = p.Close() // nothing is attached: err is what matters
		return nil, err
	}
	return p, nil
}

// load makes the program and its maps. If the kernel or the process cannot have one that
// executes requests, it makes one that does not.
func load(o Options) (*Program, error) {
	if o.Slots == 0 {
		return loadFor(o, errNotAsked)
	}
	p, reason := loadFor(o, nil)
	if reason == nil {
		return p, nil
	}
	o.Slots = 0
	p, err := loadFor(o, fmt.Errorf("the program that executes requests cannot be loaded: %w", whyNoTier(reason)))
	if err == nil {
		o.Logger.Warn("requests are executed by this process and not in XDP", "interface", o.Interface, "reason", p.noTier)
	}
	return p, err
}

// whyNoTier says in plain words why the program that executes requests is not loaded.
func whyNoTier(err error) error {
	why := openfiles.Explain(plain{err})
	// A kernel that asks lets a replacement change frames only where the dispatcher's function says that it does.
	if strings.HasPrefix(refusal(err), "Extension program changes packet data") {
		return fmt.Errorf("the dispatcher is of libxdp before 1.5.5, in which this kernel lets no program change frames: have a newer libxdp make it: %w", why)
	}
	if caps, fault := Capabilities(); fault == nil && !caps.Perfmon && refusal(err) != "" {
		return fmt.Errorf("missing CAP_PERFMON, without which kernel %s does not take it: run as root, or grant it: %w", caps.Kernel, why)
	}
	return why
}

// programFlags returns the flags of a program for a mode. Natively it takes frames in
// several buffers, whatever the MTU: otherwise the kernel refuses it where the MTU at the far
// end of a veth is larger, and refuses to raise an MTU later. In generic mode the kernel makes
// a packet linear for a program without the flag. That is cheaper than copying a packet of
// joined frames into the pages of buffers, and AF_XDP cuts a long frame into buffers all the same.
func programFlags(mode Mode) uint32 {
	if mode == Generic {
		return 0
	}
	return unix.BPF_F_XDP_HAS_FRAGS
}

// executing reads the program that executes requests, in the form for processes that have CAP_PERFMON or do
// not; tests replace it.
var executing = func(perfmon bool) (*ebpf.CollectionSpec, error) {
	if perfmon {
		return bpf.LoadExpress()
	}
	return bpf.LoadUnrolled()
}

// loadFor makes the program and its maps. noTier is why it is not to execute requests, or
// nil.
func loadFor(o Options, noTier error) (*Program, error) {
	read := bpf.LoadClassifier
	if noTier == nil {
		caps, err := Capabilities()
		read = func() (*ebpf.CollectionSpec, error) { return executing(err != nil || caps.Perfmon) }
	}
	spec, err := read()
	if err != nil {
		return nil, err
	}
	spec.Programs[programOfOurs].Flags = programFlags(o.Mode)
	if o.place != nil {
		o.place.shape(spec.Programs[programOfOurs])
	}
	spec.Maps[bpf.ClassifierMapXsks].MaxEntries = uint32(o.Queues)
	if noTier == nil {
		spec.Maps[bpf.ClassifierMapSlots].MaxEntries = uint32(o.Slots)
		spec.Maps[bpf.ClassifierMapAnswers].MaxEntries = answersLen(o.Slots)
	} else {
		spec.Maps[bpf.ClassifierMapWindows].MaxEntries = 1
		spec.Maps[bpf.ClassifierMapAnswers].MaxEntries = uint32(os.Getpagesize())
	}
	if err := needsFiles(len(spec.Maps) + len(spec.Programs) + filesForLoading); err != nil {
		return nil, err
	}
	objects := &bpf.ClassifierObjects{}
	// The verifier tells why it refuses a program at every level of its log. The lowest leaves
	// out its way there, which takes seconds for a long program.
	options := &ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}}
	if err := spec.LoadAndAssign(objects, options); err != nil {
		return nil, err
	}
	if err := errors.Join(objects.ConfigMap.Put(uint32(0), o.config()), objects.HelloMap.Put(uint32(0), o.hellos())); err != nil {
		return nil, errors.Join(err, objects.Close())
	}
	// Whoever is lent the map must not have the program take other frames.
	if err := objects.ConfigMap.Freeze(); err != nil {
		return nil, errors.Join(fmt.Errorf("freeze what the program is told: %w", err), objects.Close())
	}
	maps := Maps{Sockets: objects.Xsks, Sessions: objects.Sessions, Counters: objects.Counters, Config: objects.ConfigMap, Hellos: objects.HelloMap}
	p, err := newProgram(maps, o.Mode)
	if err != nil {
		return nil, errors.Join(err, objects.Close())
	}
	p.objects, p.noTier = objects, noTier
	if p.bell, err = mapShared(objects.Bell, int(objects.Bell.ValueSize())); err != nil {
		return nil, errors.Join(err, objects.Close())
	}
	if noTier == nil {
		if p.spare, err = newSpare(spec, bpf.ClassifierMapChunks); err != nil {
			return nil, errors.Join(err, p.Close())
		}
		chunks := &chunkMap{use: p.use, outer: objects.Chunks, spare: p.spare, most: int(objects.Chunks.MaxEntries()) - 1, page: int(p.spare.ValueSize())}
		if p.tier, err = newTier(chunks, objects.Slots, objects.Windows, objects.Answers, objects.Bell); err != nil {
			return nil, errors.Join(err, p.Close())
		}
	}
	return p, nil
}

// attach puts the program on the interface, or into a place of the dispatcher there.
func (p *Program) attach(f Features, in *place) error {
	if p.mode == Native {
		if err := f.NoNative(); err != nil {
			return explain("attach", fmt.Errorf("%w: %w", err, unix.EOPNOTSUPP), circumstances(p.mode, f))
		}
	}
	if in != nil {
		l, err := in.attach(p.objects.XdprmaClassify)
		if errors.Is(err, unix.EBUSY) {
			return f.inUse()
		}
		if err != nil {
			return explain("attach", fmt.Errorf("enter libxdp's dispatcher: %w", err), circumstances(p.mode, f))
		}
		p.link, p.at = l, site{dispatcher: true}
		return nil
	}
	at := siteOf(f)
	l, err := at.attach(p)
	if err == nil {
		p.link, p.at = l, at
		return nil
	}
	if isOccupied(err) {
		// Someone attached between our look and our attempt.
		if now, probeErr := Probe(f.Interface); probeErr == nil && now.Program != nil {
			return now.Free()
		}
		return Features{Interface: f.Interface, Program: &ProgramInfo{}}.Free()
	}
	return explain("attach", err, circumstances(p.mode, f))
}

// circumstances gathers what explain wants to know.
func circumstances(mode Mode, f Features) failure {
	caps, _ := Capabilities() // without them the advice is less precise
	return failure{
		ifname: f.Interface, driver: f.Driver, mtu: f.MTU, rxQueues: f.RxQueues, mode: mode, caps: caps}
}
