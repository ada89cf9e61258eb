package loader

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// MaxSlots is how many sessions a program executes requests of at most.
const MaxSlots = 4096

// Tier is what a process shares with a program that executes small requests itself: the
// tables that say which requests it may execute for whom, and the memory of windows, in
// chunks. It serves the library alone: bpf/express.h and docs/wire.md say what is in the
// tables.
type Tier struct {
	Chunks
	slots, windows []byte
	answers        *Answers
}

// Tier returns what p shares, or says why p executes no requests.
func (p *Program) Tier() (*Tier, error) { return p.tier, p.noTier }

var (
	errNotAsked = errors.New("it was not asked to")
	errForeign  = errors.New("the program was attached by another process")
)

// newTier maps the tables of a rank.
func newTier(chunks Chunks, slots, windows, answers, bell *ebpf.Map) (t *Tier, err error) {
	t = &Tier{Chunks: chunks}
	t.slots, err = mapShared(slots, int(slots.MaxEntries()*slots.ValueSize()))
	if err == nil {
		t.windows, err = mapShared(windows, int(windows.MaxEntries()*windows.ValueSize()))
	}
	if err == nil {
		t.answers, err = newAnswers(answers, bell)
	}
	if err == nil {
		err = t.Quiesce() // it must work later on, when nothing can be done about it
	}
	if err != nil {
		return nil, errors.Join(err, t.Release())
	}
	return t, nil
}

// mapShared maps the first n bytes of a map's memory.
func mapShared(m *ebpf.Map, n int) ([]byte, error) {
	mem, err := unix.Mmap(m.FD(), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of %v: %w", n, m, err)
	}
	return mem, nil
}

// Slots returns the table of the sessions that have a slot, until Release.
func (t *Tier) Slots() []byte { return t.slots }

// Windows returns the table of the windows, until Release.
func (t *Tier) Windows() []byte { return t.windows }

// Answers returns the answers that the program hands over, until Release.
func (t *Tier) Answers() *Answers { return t.answers }

// Release unmaps the tables. It may be called after the program's Close, which leaves
// them mapped, since others may still look at them.
func (t *Tier) Release() error {
	errs := []error{t.answers.unmap()}
	for _, mem := range []*[]byte{&t.slots, &t.windows} {
		if *mem != nil {
			errs = append(errs, unix.Munmap(*mem))
			*mem = nil
		}
	}
	return errors.Join(errs...)
}

// CanExecute returns nil if this process can load a program that executes requests on this
// machine, or says why not. It attaches nothing.
func CanExecute() error {
	o, err := Options{Interface: "none", Address: netip.IPv6Loopback(), Port: 1, Slots: 1}.withDefaults()
	if err != nil {
		return err
	}
	p, err := loadFor(o, nil)
	if err != nil {
		return whyNoTier(err)
	}
	return errors.Join(p.tier.Release(), p.Close())
}
