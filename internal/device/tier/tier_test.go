package tier

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/mpierr"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// openTier returns the tier of a program that executes requests of four sessions, and what closes both as
// a device does.
func openTier(t *testing.T) (tier *Tier, closeBoth func() error) {
	t.Helper()
	l := labtest.New(t, netlab.Config{Ranks: 2})
	var program *loader.Program
	if err := l.Do(0, func() (err error) {
		program, err = loader.Attach(loader.Options{Interface: l.Interface(0), Address: l.Addr(0), Port: 7000, Slots: 4})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	kernel, err := program.Tier()
	if err != nil {
		t.Fatal(errors.Join(err, program.Close()))
	}
	tier = New(kernel, log)
	closeBoth = sync.OnceValue(func() error {
		tier.Close()
		return program.Close()
	})
	t.Cleanup(func() {
		if err := closeBoth(); err != nil {
			t.Error(err)
		}
	})
	return tier, closeBoth
}

// region is memory that the program reaches, and this process maps.
type region struct {
	*Region
	mem []byte
}

func allocate(t *testing.T, tier *Tier, size int) region {
	t.Helper()
	file, err := tier.Allocate(t.Context(), size)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(file, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	r, err := tier.Reach(t.Context(), file)
	if err := errors.Join(err, unix.Close(file)); err != nil {
		t.Fatal(err)
	}
	return region{r, mem}
}

func (r region) expose(t *testing.T, id uint32) {
	t.Helper()
	if err := r.Reserve(t.Context(), id); err != nil {
		t.Fatalf("window %d: %v", id, err)
	}
	r.Expose(express.Window{ID: id, Size: uint64(len(r.mem)), Locks: true}, r.Region)
}

func (r region) close(t *testing.T) {
	t.Helper()
	r.Close()
	if err := unix.Munmap(r.mem); err != nil {
		t.Error(err)
	}
}

// idle reports whether nothing of the tier is in use.
func (t *Tier) idle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, used := range t.chunks {
		if used {
			return false
		}
	}
	return t.places == [express.Windows]bool{}
}

// descriptors counts this process's maps and mappings of BPF.
func descriptors(t *testing.T) (n int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(to, "bpf") {
			n++
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return n + bytes.Count(maps, []byte("bpf-map"))
}

func TestRegionsLeaveNothing(t *testing.T) {
	tier, _ := openTier(t)
	before := descriptors(t)
	for i := range 40 {
		r := allocate(t, tier, 100_000)
		if bytes.Count(r.mem, []byte{0}) != 100_000 {
			t.Fatal("the memory is not zero")
		}
		if i%3 > 0 {
			r.expose(t, uint32(i))
		}
		if i%2 > 0 {
			testenv.Await(t, "the chunk is installed", func() bool {
				tier.mu.Lock()
				defer tier.mu.Unlock()
				return r.chunk.installed
			})
		}
		r.mem[99_999] = 1
		r.Retract()
		r.close(t)
		r.Close()
	}
	testenv.Await(t, "all is given back", tier.idle)
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors and mappings, %d before", after, before)
	}
}

// A place among the windows is taken until the program has forgotten the window before.
func TestPlaceOfAFreedWindowWaits(t *testing.T) {
	tier, _ := openTier(t)
	first, second, third := allocate(t, tier, 8), allocate(t, tier, 8), allocate(t, tier, 8)
	defer second.close(t)
	defer third.close(t)
	first.expose(t, 3)
	lock := tier.Tables().Find(3)
	first.Retract()
	if lock == nil || tier.Tables().Find(3) != nil {
		t.Error("the lock was not there, or is after the window was retracted")
	}
	if second.expose(t, 3); second.place == first.place {
		t.Errorf("place %d, of the window that the program may be at, is given to another", first.place)
	}
	second.Retract()
	first.close(t)
	<-first.back
	if third.expose(t, 3); third.place != first.place {
		t.Error("no place for a third window")
	}
	third.Retract()
}

func TestTierIsBounded(t *testing.T) {
	tier, _ := openTier(t)
	var regions []region
	for range express.Chunks {
		regions = append(regions, allocate(t, tier, 1))
	}
	if _, err := tier.Allocate(t.Context(), 1); mpierr.ClassOf(err) != mpierr.NoMem {
		t.Errorf("one more: %v", err)
	}
	for _, r := range regions {
		r.close(t)
	}
	testenv.Await(t, "all is given back", tier.idle)
	if _, err := tier.Allocate(t.Context(), 1<<46); mpierr.ClassOf(err) != mpierr.NoMem || !tier.idle() {
		t.Errorf("64 TiB: %v", err)
	}
}

// Memory outlives the device, and what is asked for later is refused.
func TestTierAfterClose(t *testing.T) {
	tier, closeBoth := openTier(t)
	r := allocate(t, tier, 5000)
	r.expose(t, 1)
	var quiesced sync.WaitGroup
	quiesced.Add(1)
	tier.Quiesce(quiesced.Done)
	quiesced.Wait()
	if err := closeBoth(); err != nil {
		t.Fatal(err)
	}
	r.mem[4999] = 1
	tier.Tables().CloseSlot(3)
	r.Retract()
	r.close(t)
	if _, err := tier.Allocate(t.Context(), 1); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	tier.Quiesce(func() { t.Error("quiesced after Close") })
	time.Sleep(time.Millisecond)
}

// A device closes though the kernel does not wait for running programs any more.
func TestTierClosesWithoutAFence(t *testing.T) {
	tier, closeBoth := openTier(t)
	tried := make(chan struct{}, 1)
	tier.graces = func() error {
		select {
		case tried <- struct{}{}:
		default:
		}
		return errors.New("a test has it fail")
	}
	tier.Quiesce(func() { t.Error("quiesced") })
	<-tried
	if err := testenv.Ends(t, "Close", testenv.Start(closeBoth)); err != nil {
		t.Error(err)
	}
}

// Windows that share memory have places of their own. Each place is free once the window is gone,
// and the memory with the last of them, in whatever order they go and whether the program has the
// memory by then or not.
func TestSharedRegionsGoOneByOne(t *testing.T) {
	tier, _ := openTier(t)
	before := descriptors(t)
	for i := range 24 {
		r := allocate(t, tier, 8)
		regions, syncs := []*Region{r.Region, r.Share(), r.Share()}, make([]region, 3)
		for k, of := range regions {
			syncs[k] = allocate(t, tier, 64)
			if err := of.Reserve(t.Context(), uint32(3*i+k)); err != nil {
				t.Fatalf("window %d: %v", 3*i+k, err)
			}
			of.Expose(express.Window{ID: uint32(3*i + k), Size: 8}, syncs[k].Region)
			if e := tier.Tables().Find(uint32(3*i + k)); e == nil || e.Chunk != uint32(r.chunk.index) || e.Sync != uint32(syncs[k].chunk.index) {
				t.Fatalf("window %d is exposed as %+v", 3*i+k, e)
			}
		}
		if i%2 > 0 {
			testenv.Await(t, "the chunk is installed", func() bool {
				tier.mu.Lock()
				defer tier.mu.Unlock()
				return r.chunk.installed
			})
		}
		for k := range regions {
			of := regions[(k+i)%3]
			tier.mu.Lock()
			used := tier.chunks[r.chunk.index]
			tier.mu.Unlock()
			if !used {
				t.Fatalf("the chunk is given back while %d windows have it", 3-k)
			}
			of.Retract()
			of.Close()
			of.Close()
			syncs[(k+i)%3].close(t)
			if k == 0 && i%3 == 0 {
				testenv.Await(t, "the place is given back", func() bool {
					tier.mu.Lock()
					defer tier.mu.Unlock()
					return !tier.places[of.place]
				})
			}
		}
		r.close(t)
	}
	testenv.Await(t, "all is given back", tier.idle)
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors and mappings, %d before", after, before)
	}
	if (*Region)(nil).Share() != nil {
		t.Error("no region is shared")
	}
}
