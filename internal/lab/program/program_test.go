package program

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// The model's own idea of a datatype is that of package datatype.
func TestLayoutsAreThoseOfPackageDatatype(t *testing.T) {
	for seed := range uint64(3000) {
		m := maker{rand.New(rand.NewPCG(seed, 1)), []int{1, 2, 8, 16}[seed%4]}
		s := m.side(m.between(1, 200), basics[m.IntN(len(basics))])
		if seed%3 == 0 {
			s = Side{Layout: m.mixed([]field{{datatype.BasicInt16, 3}, {datatype.BasicFloat64, m.between(1, 9)}, {datatype.BasicByte, 2}}), Count: 2}
		}
		if s.extent != s.Type.Extent() || s.lower != s.Type.LowerBound() {
			t.Fatalf("seed %d: %v: from %d on %d bytes, not %d", seed, s.Type, s.Type.LowerBound(), s.Type.Extent(), s.extent)
		}
		low, high := s.bounds()
		if lo, hi, err := s.Type.Bounds(s.Count); err != nil || int(lo) != low || int(hi) != high {
			t.Fatalf("seed %d: %d of %v: %d to %d, %v, not %d to %d", seed, s.Count, s.Type, lo, hi, err, low, high)
		}
		if s.overlaps() || s.Type.OverlapsSelf(s.Count) {
			t.Fatalf("seed %d: %d of %v overlap", seed, s.Count, s.Type)
		}
		mem, packed := make([]byte, high-low), make([]byte, s.Size())
		for i := range mem {
			mem[i] = byte(m.Uint32())
		}
		if n, err := datatype.Pack(packed, mem, int64(-low), s.Type, s.Count, 0); err != nil || n != len(packed) {
			t.Fatal(n, err)
		}
		if err := same(packed, s.gather(mem, -low)); err != nil {
			t.Fatalf("seed %d: %d of %v: %v", seed, s.Count, s.Type, err)
		}
	}
}

func generated(seed uint64) *Program { return Generate(seed, Ranks(seed)) }

// A seed stands for one program.
func TestSeedStandsForOneProgram(t *testing.T) {
	seen := map[string]uint64{}
	for seed := range testenv.Seeds(100, 20) {
		text := generated(seed).String()
		if again := generated(seed).String(); again != text {
			t.Fatalf("seed %d gives two programs", seed)
		}
		if other, twice := seen[text]; twice {
			t.Errorf("seeds %d and %d give one program", other, seed)
		}
		seen[text] = seed
	}
}

// The programs have everything in them, often enough to matter.
func TestProgramsHaveEverythingInThem(t *testing.T) {
	seen := map[string]int{}
	seeds := testenv.Seeds(300, 60)
	for seed := range seeds {
		p := generated(seed)
		for i := range p.Windows {
			seen[p.Windows[i].Flavor.String()]++
		}
		for i := range p.Shared {
			seen[p.Shared[i].Kind.String()]++
		}
		for _, script := range p.Scripts {
			for i := range script {
				s := &script[i]
				seen[s.Code.String()]++
				if t := s.Talk; t != nil {
					if s.Code == Collective {
						seen[t.Code.String()]++
					}
					for name, is := range map[string]bool{"any source": t.Peer == Any, "any tag": t.Tag == Any, "message with a request": t.Requested,
						"long message": len(t.Want) > 9000, "reversed": t.Reversed} {
						if is {
							seen[name]++
						}
					}
					continue
				}
				if s.Call == nil {
					for name, is := range map[string]bool{"flush_local": s.Local, "test": s.Testing, "exclusive": s.Exclusive, "flush_all": s.Code == Flush && s.Target == Every} {
						if is {
							seen[name]++
						}
					}
					for _, assert := range strings.Fields(asserts(s.Assert)) {
						seen[assert]++
					}
					continue
				}
				c := s.Call
				seen[c.Code.String()]++
				if c.Op != 0 {
					seen[c.Op.String()]++
				}
				if c.Requested {
					seen["request"]++
				}
				where := c.Where()
				switch {
				case c.Target == Null:
					seen["null"]++
					continue
				case where.Size() == 0:
					seen["nothing"]++
					continue
				case where.Size() > 1500:
					seen["several frames"]++
				}
				seen[where.elements[0].basic.String()]++
				if c.At.Layout != nil && !c.At.Type.Contiguous() {
					name, _, _ := strings.Cut(c.At.Type.String(), "(")
					seen[name]++
					if c.Reads() && !c.Origin.Type.Contiguous() || c.Fetches() && !c.Result.Type.Contiguous() {
						seen["derived on both sides"]++
					}
				}
			}
		}
	}
	want := []string{"create", "allocate", "dynamic", "counted", "flipped", "swapped", "guarded", "flush_local", "test", "exclusive", "flush_all",
		"nocheck", "noprecede", "noput", "nostore", "nosucceed", "request", "null", "nothing", "several frames", "derived on both sides", "any source", "any tag", "message with a request", "long message", "reversed",
		"vector", "hvector", "hindexed", "indexed", "indexed_block", "struct", "subarray", "resized"}
	for c := Barrier; c <= Collective; c++ {
		want = append(want, c.String())
	}
	for c := Put; c <= CompareAndSwap; c++ {
		want = append(want, c.String())
	}
	for c := Bcast; c <= Allreduce; c++ {
		want = append(want, c.String())
	}
	for op := datatype.Sum; op <= datatype.MaxLoc; op++ {
		want = append(want, op.String())
	}
	for _, b := range basics {
		want = append(want, b.String())
	}
	for _, name := range want {
		if uint64(seen[name]) < seeds/20 {
			t.Errorf("%d programs have %d of %s", seeds, seen[name], name)
		}
	}
	t.Log(seen)
}
