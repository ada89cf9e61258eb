package loader

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// tier returns what a program with four slots shares.
func (l *lab) tier(t *testing.T) (*Program, *Tier) {
	t.Helper()
	p := l.attach(t, Options{Slots: 4})
	tier, err := p.Tier()
	must(t, err)
	t.Cleanup(func() { must(t, tier.Release()) })
	return p, tier
}

// reached returns a page of the chunk that the program finds at an index, nil without one.
func (tier *Tier) reached(t *testing.T, i, page int) []byte {
	t.Helper()
	var inner *ebpf.Map
	if err := chunksOf(tier).outer.Lookup(uint32(i), &inner); errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	value := make([]byte, chunksOf(tier).page)
	must(t, inner.Lookup(uint32(page), &value))
	return value
}

func TestTablesAreShared(t *testing.T) {
	l := newLab(t, shape{})
	p, tier := l.tier(t)
	for _, table := range []struct {
		mem   []byte
		m     *ebpf.Map
		count int
	}{{tier.Slots(), p.objects.Slots, 4}, {tier.Windows(), p.objects.Windows, 256}} {
		each := len(table.mem) / table.count
		if each != int(table.m.ValueSize()) || bytes.Count(table.mem, []byte{0}) != len(table.mem) {
			t.Fatalf("%d bytes for %d entries of %v, or they are not zero", len(table.mem), table.count, table.m)
		}
		table.mem[3*each+1] = 42
		var value []byte
		must(t, table.m.Lookup(uint32(3), &value))
		if value[1] != 42 {
			t.Errorf("%v does not have what was written to its memory", table.m)
		}
	}
	must(t, p.AllowSession(7, 2))
	var slot uint32
	must(t, p.maps.Sessions.Lookup(uint64(7), &slot))
	must(t, p.AllowSession(7, NoSlot))
	var none uint32
	must(t, p.maps.Sessions.Lookup(uint64(7), &none))
	if slot != 3 || none != 0 {
		t.Errorf("the program finds slot %d and then %d, not 3 and 0", slot, none)
	}
}

func TestChunkIsReachedUntilRemoved(t *testing.T) {
	l := newLab(t, shape{})
	p, tier := l.tier(t)
	file, err := tier.NewChunk(chunksOf(tier).page + 1)
	must(t, err)
	mem, err := unix.Mmap(file, 0, 2*chunksOf(tier).page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	if bytes.Count(mem, []byte{0}) != 2*chunksOf(tier).page {
		t.Fatal("the chunk is not zero")
	}
	last := tier.Most() - 1
	must(t, tier.Install(last, file))
	must(t, unix.Close(file))
	mem[chunksOf(tier).page+5] = 9
	if got := tier.reached(t, last, 1); got[5] != 9 {
		t.Error("the program does not see what was written")
	}
	must(t, unix.Munmap(mem))
	if got := tier.reached(t, last, 1); got[5] != 9 {
		t.Error("the program has lost the memory that the process unmapped")
	}
	must(t, tier.Quiesce())
	must(t, tier.Remove(last))
	if tier.reached(t, last, 1) != nil {
		t.Error("the program still reaches the chunk")
	}
	must(t, p.Close())
	if _, err := tier.NewChunk(1); err == nil {
		t.Error("a closed program takes chunks")
	}
	if tier.Quiesce() == nil || len(tier.Slots()) == 0 {
		t.Error("a closed program is waited for, or has unmapped its tables")
	}
}

func TestChunkBeyondMemory(t *testing.T) {
	l := newLab(t, shape{})
	_, tier := l.tier(t)
	if _, err := tier.NewChunk(1 << 46); err == nil {
		t.Error("64 TiB were had")
	}
}

// Where the program that executes requests cannot be loaded, the classifier still is.
func TestAttachWithoutTier(t *testing.T) {
	l := newLab(t, shape{})
	p := l.attach(t, Options{})
	if tier, err := p.Tier(); tier != nil || !errors.Is(err, errNotAsked) {
		t.Errorf("%v, %v without slots", tier, err)
	}
	must(t, p.Close())

	defer func(f func(bool) (*ebpf.CollectionSpec, error)) { executing = f }(executing)
	executing = func(bool) (*ebpf.CollectionSpec, error) {
		spec, err := bpf.LoadExpress()
		if err == nil {
			spec.Maps[bpf.ClassifierMapSlots].Flags &^= unix.BPF_F_MMAPABLE // it cannot be mapped
		}
		return spec, err
	}
	var log bytes.Buffer
	p = l.attach(t, Options{Slots: 4, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if tier, err := p.Tier(); tier != nil || err == nil || !strings.Contains(log.String(), "executed by this process") {
		t.Errorf("%v, %v, log %s", tier, err, log.String())
	}
	if l.attached(t) == nil {
		t.Error("nothing is attached")
	}
}

// If the kernel does not make a map, the error says so in plain words.
func TestRefusedMapIsNamed(t *testing.T) {
	testenv.NeedsRoot(t)
	defer func(f func(bool) (*ebpf.CollectionSpec, error)) { executing = f }(executing)
	executing = func(bool) (*ebpf.CollectionSpec, error) {
		spec, err := bpf.LoadExpress()
		if err == nil {
			spec.Maps[bpf.ClassifierMapSessions].MaxEntries = 1 << 31
		}
		return spec, err
	}
	const want = "the kernel does not make the map sessions of the XDP program xdprma_classify: argument list too long"
	if err := CanExecute(); !errors.Is(err, unix.E2BIG) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// If the verifier refuses the program that executes requests, the warning says why.
func TestRefusedTierSaysWhy(t *testing.T) {
	l := newLab(t, shape{})
	defer func(f func(bool) (*ebpf.CollectionSpec, error)) { executing = f }(executing)
	executing = func(bool) (*ebpf.CollectionSpec, error) {
		spec, err := bpf.LoadExpress()
		if err == nil {
			p := spec.Programs[bpf.ClassifierProgXdprmaClassify]
			p.Instructions = asm.Instructions{asm.Mov.Reg(asm.R0, asm.R9), asm.Return()}
		}
		return spec, err
	}
	var log bytes.Buffer
	l.attach(t, Options{Slots: 4, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for _, err := range []string{log.String(), fmt.Sprint(CanExecute())} {
		if !strings.Contains(err, "verifier refuses") || !strings.Contains(err, "R9 !read_ok") {
			t.Error(err)
		}
	}
}

// chunksOf returns the memory of a tier whose program this process has loaded.
func chunksOf(t *Tier) *chunkMap { return t.Chunks.(*chunkMap) }
