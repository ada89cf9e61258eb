package windows

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

func newWindow(t testing.TB, size int) *Window {
	t.Helper()
	memory, err := MapAnonymous(size, 0)
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(Config{ID: 7, Flavor: window.FlavorAllocate, Memory: memory, Size: size, DispUnit: 8, GroupSize: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Free(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func TestMemory(t *testing.T) {
	for _, size := range []int{0, 1, 4096, 10000} {
		m, err := MapAnonymous(size, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Bytes()) != size || cap(m.Bytes()) != size {
			t.Errorf("size %d: got %d bytes, capacity %d", size, len(m.Bytes()), cap(m.Bytes()))
		}
		for i := range m.Bytes() {
			m.Bytes()[i] = 1
		}
		for range 2 {
			if err := m.Close(); err != nil || m.Bytes() != nil {
				t.Errorf("close: %v, %d bytes left", err, len(m.Bytes()))
			}
		}
	}
	for size, class := range map[int]mpierr.Class{-1: mpierr.Size, math.MaxInt: mpierr.NoMem, 1 << 60: mpierr.NoMem} {
		if _, err := MapAnonymous(size, 0); !errors.Is(err, class) {
			t.Errorf("size %d: %v, want %v", size, err, class)
		}
	}
	for _, align := range []int{1, 64, 4096, 1 << 16, 1 << 21} {
		m, err := MapAnonymous(5000, align)
		if err != nil {
			t.Fatal(err)
		}
		if mem := m.Bytes(); len(mem) != 5000 || cap(mem) != 5000 || Address(mem)%uint64(align) != 0 {
			t.Errorf("alignment %d: %d bytes at %#x", align, len(mem), Address(mem))
		}
		m.Bytes()[4999] = 1
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	user := Slice(make([]byte, 5))
	if len(user.Bytes()) != 5 || user.Close() != nil || user.Close() != nil || user.Bytes() != nil {
		t.Error("user memory is not kept or not let go")
	}
}

func TestNewChecks(t *testing.T) {
	good := Config{Flavor: window.FlavorCreate, Memory: Slice(make([]byte, 64)), Size: 64, DispUnit: 1, GroupSize: 1}
	for name, c := range map[string]struct {
		change func(*Config)
		class  mpierr.Class
	}{
		"good":             {func(*Config) {}, mpierr.Success},
		"no memory":        {func(c *Config) { c.Memory, c.Size = nil, 0 }, mpierr.Success},
		"less than memory": {func(c *Config) { c.Size = 1 }, mpierr.Success},
		"dynamic":          {func(c *Config) { c.Flavor, c.Memory, c.Size = window.FlavorDynamic, nil, 0 }, mpierr.Success},
		"negative size":    {func(c *Config) { c.Size = -1 }, mpierr.Size},
		"dynamic size":     {func(c *Config) { c.Flavor = window.FlavorDynamic }, mpierr.Size},
		"beyond memory":    {func(c *Config) { c.Size = 65 }, mpierr.Base},
		"unit 0":           {func(c *Config) { c.DispUnit = 0 }, mpierr.Disp},
		"unit -1":          {func(c *Config) { c.DispUnit = -1 }, mpierr.Disp},
		"flavour":          {func(c *Config) { c.Flavor = 315 }, mpierr.RMAFlavor},
		"group":            {func(c *Config) { c.GroupSize = 0 }, mpierr.Arg},
	} {
		config := good
		c.change(&config)
		w, err := New(config)
		if mpierr.ClassOf(err) != c.class || (err == nil) != (w != nil) {
			t.Errorf("%s: %v, want %v", name, err, c.class)
		}
		if w != nil && (w.Size() != config.Size || w.DispUnit() != 1 || w.GroupSize() != 1 || w.Model() != window.ModelUnified || w.Flavor() != config.Flavor) {
			t.Errorf("%s: attributes wrong: %+v", name, config)
		}
	}
}

func TestByteDisp(t *testing.T) {
	for _, c := range []struct {
		disp  int64
		unit  int
		want  uint64
		class mpierr.Class
	}{
		{0, 1, 0, 0}, {3, 8, 24, 0}, {math.MaxInt64, 1, math.MaxInt64, 0},
		{-1, 8, 0, mpierr.Disp}, {1, 0, 0, mpierr.Disp}, {1, -8, 0, mpierr.Disp},
		{math.MaxInt64, 2, 0, mpierr.RMARange}, {math.MaxInt64, math.MaxInt, 0, mpierr.RMARange}, {1 << 60, 8, 0, mpierr.RMARange},
	} {
		if got, class := ByteDisp(c.disp, c.unit); got != c.want || class != c.class {
			t.Errorf("%d x %d: %d %v, want %d %v", c.disp, c.unit, got, class, c.want, c.class)
		}
	}
}

func TestSliceBounds(t *testing.T) {
	const size = 100
	w := newWindow(t, size)
	edges := []uint64{0, 1, 50, 99, 100, 101, 1 << 31, 1 << 32, 1 << 63, math.MaxUint64 - 100, math.MaxUint64}
	rapid.Check(t, func(t *rapid.T) {
		disp := rapid.OneOf(rapid.SampledFrom(edges), rapid.Uint64()).Draw(t, "disp")
		n := rapid.OneOf(rapid.IntRange(-2, 102), rapid.SampledFrom([]int{math.MinInt, math.MaxInt, math.MaxUint32}), rapid.Int()).Draw(t, "n")
		mem, class := w.Slice(disp, n)
		if disp <= size && n >= 0 && n <= size-int(disp) {
			if class != mpierr.Success || len(mem) != n {
				t.Fatalf("%d bytes at %d: %v", n, disp, class)
			}
		} else if class != mpierr.RMARange || mem != nil {
			t.Fatalf("%d bytes at %d: %v", n, disp, class)
		}
	})
}

func TestDataPath(t *testing.T) {
	w := newWindow(t, 64)
	word := func(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }
	got := make([]byte, 8)
	expect := func(what string, class mpierr.Class, want uint64) {
		t.Helper()
		if v := binary.LittleEndian.Uint64(got); class != mpierr.Success || v != want {
			t.Errorf("%s: %v, value %d, want %d", what, class, v, want)
		}
	}
	if class := w.Put(8, word(5)); class != mpierr.Success {
		t.Error(class)
	}
	expect("get", w.Get(8, got), 5)
	if class := w.Accumulate(datatype.Sum, datatype.BasicUint64, 8, word(2)); class != mpierr.Success {
		t.Error(class)
	}
	expect("get_accumulate", w.GetAccumulate(datatype.Prod, datatype.BasicUint64, 8, word(3), got), 7)
	expect("no_op", w.GetAccumulate(datatype.NoOp, datatype.BasicUint64, 8, nil, got), 21)
	expect("compare_and_swap", w.CompareAndSwap(datatype.BasicUint64, 8, word(21), word(1), got), 21)
	expect("get", w.Get(8, got), 1)
	if class := w.Put(64, nil); class != mpierr.Success {
		t.Errorf("empty put at the end: %v", class)
	}
}

func TestDataPathRefuses(t *testing.T) {
	w := newWindow(t, 64)
	b8, b4, none := make([]byte, 8), make([]byte, 4), []byte(nil)
	const i64, f64 = datatype.BasicInt64, datatype.BasicFloat64
	calls := map[string]struct {
		call func() mpierr.Class
		want mpierr.Class
	}{
		"put range":         {func() mpierr.Class { return w.Put(57, b8) }, mpierr.RMARange},
		"put wrap":          {func() mpierr.Class { return w.Put(math.MaxUint64-3, b8) }, mpierr.RMARange},
		"get range":         {func() mpierr.Class { return w.Get(64, b8) }, mpierr.RMARange},
		"accumulate range":  {func() mpierr.Class { return w.Accumulate(datatype.Sum, i64, 64, b8) }, mpierr.RMARange},
		"accumulate align":  {func() mpierr.Class { return w.Accumulate(datatype.Sum, i64, 4, b8) }, mpierr.Disp},
		"complex64 align":   {func() mpierr.Class { return w.Accumulate(datatype.Sum, datatype.BasicComplex64, 4, b8) }, mpierr.Disp},
		"accumulate count":  {func() mpierr.Class { return w.Accumulate(datatype.Sum, i64, 0, b4) }, mpierr.Count},
		"accumulate op":     {func() mpierr.Class { return w.Accumulate(datatype.BAnd, f64, 0, b8) }, mpierr.Op},
		"accumulate op 0":   {func() mpierr.Class { return w.Accumulate(0, i64, 0, b8) }, mpierr.Op},
		"accumulate op 255": {func() mpierr.Class { return w.Accumulate(255, i64, 0, b8) }, mpierr.Op},
		"accumulate no_op":  {func() mpierr.Class { return w.Accumulate(datatype.NoOp, i64, 0, b8) }, mpierr.Op},
		"accumulate type":   {func() mpierr.Class { return w.Accumulate(datatype.Sum, 200, 0, b8) }, mpierr.Type},
		"get_acc lengths":   {func() mpierr.Class { return w.GetAccumulate(datatype.Sum, i64, 0, none, b8) }, mpierr.Count},
		"get_acc count":     {func() mpierr.Class { return w.GetAccumulate(datatype.NoOp, i64, 0, none, b4) }, mpierr.Count},
		"get_acc type":      {func() mpierr.Class { return w.GetAccumulate(datatype.Sum, 0, 0, b8, b8) }, mpierr.Type},
		"get_acc op":        {func() mpierr.Class { return w.GetAccumulate(13, i64, 0, b8, b8) }, mpierr.Op},
		"get_acc range":     {func() mpierr.Class { return w.GetAccumulate(datatype.Sum, i64, 1<<40, b8, b8) }, mpierr.RMARange},
		"get_acc align":     {func() mpierr.Class { return w.GetAccumulate(datatype.Sum, i64, 2, b8, b8) }, mpierr.Disp},
		"swap type":         {func() mpierr.Class { return w.CompareAndSwap(f64, 0, b8, b8, b8) }, mpierr.Type},
		"swap type 0":       {func() mpierr.Class { return w.CompareAndSwap(0, 0, none, none, none) }, mpierr.Type},
		"swap count":        {func() mpierr.Class { return w.CompareAndSwap(i64, 0, b8, b4, b8) }, mpierr.Count},
		"swap range":        {func() mpierr.Class { return w.CompareAndSwap(i64, 64, b8, b8, b8) }, mpierr.RMARange},
		"swap align":        {func() mpierr.Class { return w.CompareAndSwap(i64, 12, b8, b8, b8) }, mpierr.Disp},
	}
	for name, c := range calls {
		if got := c.call(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if err := errors.Join(w.Free(), w.Free()); err != nil || w.Bytes() != nil {
		t.Fatalf("free: %v", err)
	}
	for name, class := range map[string]mpierr.Class{
		"put": w.Put(0, b8), "empty put": w.Put(0, nil), "get": w.Get(0, b8),
		"accumulate":       w.Accumulate(datatype.Sum, i64, 0, b8),
		"get_accumulate":   w.GetAccumulate(datatype.Sum, i64, 0, b8, b8),
		"compare_and_swap": w.CompareAndSwap(i64, 0, b8, b8, b8),
	} {
		if class != mpierr.Win {
			t.Errorf("%s on a freed window: %v", name, class)
		}
	}
}

// FuzzDataPath throws at a window what a hostile peer might send; nothing may
// panic, and nothing before or after the window may change.
//
//fuzz:inputs 40000
func FuzzDataPath(f *testing.F) {
	f.Add(uint8(1), uint8(4), uint64(8), []byte{1, 0, 0, 0, 0, 0, 0, 0}, uint8(8))
	f.Add(uint8(12), uint8(14), uint64(math.MaxUint64), []byte{}, uint8(16))
	f.Add(uint8(255), uint8(255), uint64(31), []byte{9}, uint8(1))
	f.Fuzz(func(t *testing.T, op, basic uint8, disp uint64, data []byte, n uint8) {
		mem := make([]byte, 128)
		w, err := New(Config{Flavor: window.FlavorCreate, Memory: Slice(mem[33:97]), Size: 64, DispUnit: 1, GroupSize: 1})
		if err != nil {
			t.Fatal(err)
		}
		result := make([]byte, n)
		o, b := datatype.Op(op), datatype.Basic(basic)
		for _, d := range []uint64{disp, disp % 80} {
			w.Put(d, data)
			w.Get(d, result)
			w.Accumulate(o, b, d, data)
			w.GetAccumulate(o, b, d, data, result)
			w.CompareAndSwap(b, d, data, data, result)
		}
		for i, v := range mem {
			if v != 0 && (i < 33 || i >= 97) {
				t.Fatalf("byte %d outside the window changed", i)
			}
		}
	})
}

func TestDataPathDoesNotAllocate(t *testing.T) {
	w := newWindow(t, 64)
	var table Table
	if err := table.Add(w); err != nil {
		t.Fatal(err)
	}
	data, result := make([]byte, 8), make([]byte, 8)
	n := testing.AllocsPerRun(100, func() {
		w := table.Lookup(7)
		w.Put(8, data)
		w.Get(8, result)
		w.Accumulate(datatype.Sum, datatype.BasicInt64, 8, data)
		w.GetAccumulate(datatype.Sum, datatype.BasicFloat64, 8, data, result)
		w.CompareAndSwap(datatype.BasicInt64, 8, data, data, result)
		w.Put(100, data)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestTableFindsWindowsById(t *testing.T) {
	var table Table
	if table.Remove(7); table.Lookup(7) != nil {
		t.Error("an empty table has windows")
	}
	w := newWindow(t, 8)
	if err := table.Add(w); err != nil || table.Lookup(7) != w {
		t.Errorf("add: %v", err)
	}
	if err := table.Add(newWindow(t, 8)); !errors.Is(err, mpierr.Arg) || table.Lookup(7) != w {
		t.Errorf("a second window with the same id: %v", err)
	}
	if table.Remove(7); table.Lookup(7) != nil {
		t.Error("remove leaves the window")
	}
}

func TestInfo(t *testing.T) {
	defaults, err := ParseInfo(window.Info{"some_other_key": "whatever", "NO_LOCKS": "?"})
	if err != nil || defaults != (Hints{Ordering: OrderAll}) {
		t.Fatalf("%+v, %v", defaults, err)
	}
	all := window.Info{"no_locks": "true", "accumulate_ordering": "waw, rar", "accumulate_ops": "same_op", "mpi_accumulate_granularity": "64",
		"same_size": "true", "same_disp_unit": "true", "alloc_shared_noncontig": "true", "mpi_minimum_memory_alignment": "4096",
		"mpi_assert_memory_alloc_kinds": "system, mpi:alloc_mem", "xdprma_ordered": "true",
		"xdprma_check_conflicts": "true", "xdprma_in_clear": "true", "xdprma_counters": "7", "xdprma_access": "read,lock"}
	h, err := ParseInfo(all)
	want := Hints{
		Settled: Settled{NoLocks: true, SameSize: true, SameDispUnit: true, AllocSharedNoncontig: true, MinAlignment: 4096,
			Check: true, InClear: true, Counters: 7, Rules: h.Rules},
		Ordering: OrderRAR | OrderWAW, Ordered: true, SameOp: true, MemoryKinds: "system,mpi:alloc_mem",
	}
	if err != nil || h != want {
		t.Errorf("%+v, %v", h, err)
	}
	for _, h := range []Hints{h, defaults, {}} {
		again, err := ParseInfo(h.Info())
		if again.Rules = h.Rules; err != nil || again != h || len(h.Info()) < len(all)-2 {
			t.Errorf("%v parses as %+v, %v", h.Info(), again, err)
		}
	}
	given := window.Info{"xdprma_ordered": "false", "xdprma_counters": "0", "xdprma_check_conflicts": "false", "xdprma_in_clear": "false", "xdprma_access": "all"}
	unchanged, err := ParseInfo(given)
	for key, value := range given {
		if got := unchanged.Info()[key]; err != nil || got != value || defaults.Info()[key] != value {
			t.Errorf("%s is %q where %q was given, %v, and %q by default", key, got, value, err, defaults.Info()[key])
		}
	}
	if got := h.Info(); got["accumulate_ordering"] != "rar,waw" || got["mpi_accumulate_granularity"] != "0" || len(got) != len(all) {
		t.Errorf("in use: %v", got)
	}
	changed, err := h.With(window.Info{"no_locks": "false"})
	if want.NoLocks = false; err != nil || changed != want {
		t.Errorf("changing one key: %+v, %v", changed, err)
	}
	bad := window.Info{"no_locks": "yes", "accumulate_ordering": "rar,none", "accumulate_ops": "", "mpi_accumulate_granularity": "-1",
		"same_size": "", "same_disp_unit": "True", "alloc_shared_noncontig": "1", "mpi_minimum_memory_alignment": "24",
		"mpi_assert_memory_alloc_kinds": "system,,mpi", "xdprma_ordered": "yes"}
	for key := range maps.Keys(bad) {
		if got, err := h.With(window.Info{key: bad[key]}); !errors.Is(err, mpierr.Arg) || got != h {
			t.Errorf("%s=%q: %+v, %v", key, bad[key], got, err)
		}
	}
}

func TestConstants(t *testing.T) {
	if window.LockExclusive.String() != "exclusive" || window.LockShared.String() != "shared" || window.LockType(0).String() != "invalid" {
		t.Error("names of lock types")
	}
	for f, name := range map[window.Flavor]string{310: "invalid", 311: "create", 312: "allocate", 313: "dynamic", 314: "shared", 315: "invalid"} {
		if f.String() != name || f.Valid() != (name != "invalid") {
			t.Errorf("flavour %d is %s", f, f)
		}
	}
}

func BenchmarkDataPath(b *testing.B) {
	w := newWindow(b, 4096)
	data, result := make([]byte, 8), make([]byte, 8)
	b.Run("put8", func(b *testing.B) {
		for b.Loop() {
			w.Put(8, data)
		}
	})
	b.Run("get8", func(b *testing.B) {
		for b.Loop() {
			w.Get(8, result)
		}
	})
	b.Run("sum8", func(b *testing.B) {
		for b.Loop() {
			w.Accumulate(datatype.Sum, datatype.BasicInt64, 8, data)
		}
	})
	b.Run("fetch8", func(b *testing.B) {
		for b.Loop() {
			w.GetAccumulate(datatype.Sum, datatype.BasicInt64, 8, data, result)
		}
	})
	b.Run("cas8", func(b *testing.B) {
		for b.Loop() {
			w.CompareAndSwap(datatype.BasicInt64, 8, data, data, result)
		}
	})
}
