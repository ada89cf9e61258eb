package datatype

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/mpierr"
)

// made returns a constructor's result, committed.
func made(t testing.TB) func(*Type, error) *Type {
	return func(typ *Type, err error) *Type {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if err := typ.Commit(); err != nil {
			t.Fatal(err)
		}
		return typ
	}
}

// TestExtentsOfTheStandardsExamples holds examples computed by hand, those named after the standard's
// examples among them.
func TestExtentsOfTheStandardsExamples(t *testing.T) {
	ok := made(t)
	// (double, 0), (char, 8): extent 16, as the standard's examples have it.
	doubleChar := ok(Struct([]int{1, 1}, []int{0, 8}, []*Type{Float64, Int8}))
	marked := ok(Resized(Int32, -3, 9)) // lb marker -3, int at 0, ub marker at 6
	for _, c := range []struct {
		name                      string
		typ                       *Type
		size, lb, extent, tlb, te int
	}{
		{"predefined", Float64, 8, 0, 8, 0, 8},
		{"struct double char", doubleChar, 9, 0, 16, 0, 9},
		{"struct char double", ok(Struct([]int{1, 1}, []int{0, 8}, []*Type{Int8, Float64})), 9, 0, 16, 0, 16},
		{"struct int at 4, char at 9", ok(Struct([]int{1, 1}, []int{4, 9}, []*Type{Int32, Int8})), 5, 4, 8, 4, 6},
		{"contiguous of struct", ok(Contiguous(3, doubleChar)), 27, 0, 48, 0, 41},
		{"vector 2 3 4", ok(Vector(2, 3, 4, doubleChar)), 54, 0, 112, 0, 105},
		{"vector 3 1 -2", ok(Vector(3, 1, -2, doubleChar)), 27, -64, 80, -64, 73},
		{"hvector", ok(Hvector(3, 2, -20, Int32)), 24, -40, 48, -40, 48},
		{"indexed (3,1) at (4,0)", ok(Indexed([]int{3, 1}, []int{4, 0}, doubleChar)), 36, 0, 112, 0, 105},
		{"indexed with empty block", ok(Indexed([]int{0, 1}, []int{math.MinInt, 2}, Int16)), 2, 4, 2, 4, 2},
		{"hindexed", ok(Hindexed([]int{1, 2}, []int{-6, 3}, Int16)), 6, -6, 14, -6, 13},
		{"indexed block", ok(IndexedBlock(2, []int{5, 0, 9}, Int32)), 24, 0, 44, 0, 44},
		{"hindexed block", ok(HindexedBlock(1, []int{8, 1}, Byte)), 2, 1, 8, 1, 8},
		{"struct (2 float at 0, 1 type at 16, 3 char at 26)",
			ok(Struct([]int{2, 1, 3}, []int{0, 16, 26}, []*Type{Float32, doubleChar, Int8})), 20, 0, 32, 0, 29},
		{"resized", marked, 4, -3, 9, 0, 4},
		{"markers are kept", ok(Contiguous(2, marked)), 8, -3, 18, 0, 13},
		{"markers override data", ok(Struct([]int{1, 1}, []int{0, 100}, []*Type{marked, Float64})), 12, -3, 9, 0, 108},
		{"resized again", ok(Resized(marked, 0, 4)), 4, 0, 4, 0, 4},
		{"negative extent", ok(Contiguous(3, ok(Resized(Int32, 0, -8)))), 12, -16, 8, -16, 20},
		{"empty", ok(Contiguous(0, marked)), 0, 0, 0, 0, 0},
		{"resized empty", ok(Contiguous(2, ok(Resized(ok(Contiguous(0, Int8)), 1, 5)))), 0, 1, 10, 0, 0},
		{"dup", ok(Dup(marked)), 4, -3, 9, 0, 4},
		{"subarray c", ok(Subarray([]int{4, 6}, []int{2, 3}, []int{1, 2}, OrderC, Int32)), 24, 0, 96, 32, 36},
		{"subarray fortran", ok(Subarray([]int{4, 6}, []int{2, 3}, []int{1, 2}, OrderFortran, Int32)), 24, 0, 96, 36, 40},
		{"subarray of a row type", ok(Subarray([]int{5}, []int{2}, []int{3}, OrderC, doubleChar)), 18, 0, 80, 48, 25},
		{"pairs", ok(Contiguous(2, Float64Int32)), 32, 0, 32, 0, 32},
	} {
		tlb, te := c.typ.TrueExtent()
		got := [5]int{c.typ.Size(), c.typ.LowerBound(), c.typ.Extent(), tlb, te}
		if want := [5]int{c.size, c.lb, c.extent, c.tlb, c.te}; got != want {
			t.Errorf("%s: size, lb, extent, true lb, true extent are %v, want %v", c.name, got, want)
		}
	}
}

// TestDistributedArrayGivesEachRankItsShare divides arrays by hand: what each rank has of the indices
// of an array of bytes.
func TestDistributedArrayGivesEachRankItsShare(t *testing.T) {
	ok := made(t)
	for _, c := range []struct {
		name        string
		size        int
		global      []int
		dists       []Distribution
		args, procs []int
		order       Order
		want        []string // for each rank, the indices in packed order
	}{
		{"block", 2, []int{5}, []Distribution{DistributeBlock}, []int{DefaultArg}, []int{2}, OrderC, []string{"\x00\x01\x02", "\x03\x04"}},
		{"block, empty share", 4, []int{5}, []Distribution{DistributeBlock}, []int{2}, []int{4}, OrderC, []string{"\x00\x01", "\x02\x03", "\x04", ""}},
		{"cyclic", 3, []int{7}, []Distribution{DistributeCyclic}, []int{DefaultArg}, []int{3}, OrderC, []string{"\x00\x03\x06", "\x01\x04", "\x02\x05"}},
		{"cyclic of 2", 2, []int{7}, []Distribution{DistributeCyclic}, []int{2}, []int{2}, OrderC, []string{"\x00\x01\x04\x05", "\x02\x03\x06"}},
		{"none by block, c", 2, []int{2, 4}, []Distribution{DistributeNone, DistributeBlock}, []int{DefaultArg, DefaultArg}, []int{1, 2}, OrderC,
			[]string{"\x00\x01\x04\x05", "\x02\x03\x06\x07"}},
		{"none by block, fortran", 2, []int{2, 4}, []Distribution{DistributeNone, DistributeBlock}, []int{DefaultArg, DefaultArg}, []int{1, 2}, OrderFortran,
			[]string{"\x00\x01\x02\x03", "\x04\x05\x06\x07"}},
		{"cyclic by block, ranks in rows", 4, []int{3, 4}, []Distribution{DistributeCyclic, DistributeBlock}, []int{DefaultArg, DefaultArg}, []int{2, 2}, OrderC,
			[]string{"\x00\x01\x08\x09", "\x02\x03\x0a\x0b", "\x04\x05", "\x06\x07"}},
		{"cyclic by block, fortran", 4, []int{3, 4}, []Distribution{DistributeCyclic, DistributeBlock}, []int{DefaultArg, DefaultArg}, []int{2, 2}, OrderFortran,
			[]string{"\x00\x02\x03\x05", "\x06\x08\x09\x0b", "\x01\x04", "\x07\x0a"}},
	} {
		total := 1
		for _, g := range c.global {
			total *= g
		}
		mem := make([]byte, total)
		for i := range mem {
			mem[i] = byte(i)
		}
		for rank, want := range c.want {
			typ := ok(DistributedArray(c.size, rank, c.global, c.dists, c.args, c.procs, c.order, Byte))
			got := make([]byte, total)
			n, err := Pack(got, mem, 0, typ, 1, 0)
			if err != nil || string(got[:n]) != want {
				t.Errorf("%s, rank %d: %q (%v), want %q", c.name, rank, got[:n], err, want)
			}
			if typ.LowerBound() != 0 || typ.Extent() != total {
				t.Errorf("%s, rank %d: lower bound %d, extent %d", c.name, rank, typ.LowerBound(), typ.Extent())
			}
		}
	}
}

// TestDistributedArrayOfTheStandard is the 100x200x300 array of the standard's
// description of MPI_Type_create_darray, over 2 by 3 processes.
func TestDistributedArrayOfTheStandard(t *testing.T) {
	total := 0
	for rank := range 6 {
		typ := made(t)(DistributedArray(6, rank, []int{100, 200, 300},
			[]Distribution{DistributeCyclic, DistributeNone, DistributeBlock}, []int{10, DefaultArg, DefaultArg}, []int{2, 1, 3}, OrderFortran, Float64))
		// The first dimension has ten blocks of 10, the last 100 indices each.
		if want := 50 * 200 * 100 * 8; typ.Size() != want || typ.Extent() != 100*200*300*8 {
			t.Errorf("rank %d: size %d, extent %d", rank, typ.Size(), typ.Extent())
		}
		lb, _ := typ.TrueExtent()
		if want := (rank/3*10 + rank%3*100*200*100) * 8; lb != want {
			t.Errorf("rank %d starts at %d, want %d", rank, lb, want)
		}
		total += typ.Size()
	}
	if total != 100*200*300*8 {
		t.Errorf("the shares have %d bytes in all", total)
	}
}

func TestConstructorsRefuseWhatIsNoDatatype(t *testing.T) {
	gone := made(t)(Contiguous(2, Int8))
	if err := gone.Free(); err != nil {
		t.Fatal(err)
	}
	darray := func(size, rank, global int, d Distribution, arg, procs int, o Order) error {
		_, err := DistributedArray(size, rank, []int{global}, []Distribution{d}, []int{arg}, []int{procs}, o, Int8)
		return err
	}
	sub := func(size, n, start int) error {
		_, err := Subarray([]int{size}, []int{n}, []int{start}, OrderC, Int8)
		return err
	}
	only := func(_ *Type, err error) error { return err }
	deep := func() (typ *Type, err error) {
		typ = Int8
		for range 20 {
			if typ, err = Hvector(2, 1, 1000, typ); err == nil {
				typ, err = Indexed([]int{1, 2}, []int{0, 77}, typ)
			}
			if err != nil {
				return nil, err
			}
		}
		return typ, nil
	}
	for name, c := range map[string]struct {
		err  error
		want mpierr.Class
	}{
		"negative count":        {only(Contiguous(-1, Int8)), mpierr.Count},
		"no type":               {only(Contiguous(1, nil)), mpierr.Type},
		"freed type":            {only(Vector(1, 1, 1, gone)), mpierr.Type},
		"negative block":        {only(Vector(1, -1, 1, Int8)), mpierr.Arg},
		"too long":              {only(Contiguous(math.MaxInt, Int64)), mpierr.Arg},
		"too far":               {only(Hvector(3, 1, math.MinInt, Int64)), mpierr.Arg},
		"stride overflows":      {only(Vector(2, 1, math.MaxInt, Int64)), mpierr.Arg},
		"displaced too far":     {only(Indexed([]int{1}, []int{math.MaxInt}, Int64)), mpierr.Arg},
		"lengths differ":        {only(Hindexed([]int{1}, []int{1, 2}, Int64)), mpierr.Arg},
		"negative indexed":      {only(Indexed([]int{-1}, []int{1}, Int64)), mpierr.Arg},
		"negative equal blocks": {only(HindexedBlock(-1, []int{1}, Int64)), mpierr.Arg},
		"struct lengths":        {only(Struct([]int{1}, []int{1}, nil)), mpierr.Arg},
		"struct of nothing":     {only(Struct([]int{1}, []int{1}, []*Type{nil})), mpierr.Type},
		"struct of less":        {only(Struct([]int{-1}, []int{1}, []*Type{Int8})), mpierr.Arg},
		"resized too far":       {only(Resized(Int8, 0, math.MaxInt)), mpierr.Arg},
		"dup of nothing":        {only(Dup(nil)), mpierr.Type},
		"too deep":              {only(deep()), mpierr.Arg},
		"empty subarray":        {sub(4, 0, 0), mpierr.Arg},
		"subarray outside":      {sub(4, 3, 2), mpierr.Arg},
		"subarray before":       {sub(4, 3, -1), mpierr.Arg},
		"subarray overflows":    {sub(math.MaxInt, 1, math.MaxInt), mpierr.Arg},
		"subarray huge":         {sub(math.MaxInt, 1, math.MaxInt-1), mpierr.Arg},
		"no dimensions":         {only(Subarray(nil, nil, nil, OrderC, Int8)), mpierr.Arg},
		"no order":              {darray(1, 0, 4, DistributeBlock, DefaultArg, 1, 0), mpierr.Arg},
		"rank outside":          {darray(2, 2, 4, DistributeBlock, DefaultArg, 2, OrderC), mpierr.Arg},
		"grid does not fit":     {darray(3, 0, 4, DistributeBlock, DefaultArg, 2, OrderC), mpierr.Arg},
		"no processes":          {darray(0, 0, 4, DistributeBlock, DefaultArg, 0, OrderC), mpierr.Arg},
		"blocks too small":      {darray(2, 0, 5, DistributeBlock, 2, 2, OrderC), mpierr.Arg},
		"none over two":         {darray(2, 0, 5, DistributeNone, DefaultArg, 2, OrderC), mpierr.Arg},
		"no distribution":       {darray(2, 0, 5, 9, DefaultArg, 2, OrderC), mpierr.Arg},
		"empty array":           {darray(2, 0, 0, DistributeBlock, DefaultArg, 2, OrderC), mpierr.Arg},
		"huge cycle":            {darray(2, 1, 5, DistributeCyclic, math.MaxInt, 2, OrderC), mpierr.Arg},
		"free of predefined":    {Int8.Free(), mpierr.Type},
		"free twice":            {gone.Free(), mpierr.Type},
		"commit after free":     {gone.Commit(), mpierr.Type},
		"name of predefined":    {Int8.SetName("x"), mpierr.Type},
	} {
		var e *mpierr.Error
		if !errors.As(c.err, &e) || e.Class != c.want {
			t.Errorf("%s: %v, want class %v", name, c.err, c.want)
		}
	}
}

func TestUseNeedsCommitAndEndsWithFree(t *testing.T) {
	old, err := Contiguous(2, Int32)
	if err != nil {
		t.Fatal(err)
	}
	if old.Committed() || !Int32.Committed() || (*Type)(nil).Committed() {
		t.Error("wrong before commit")
	}
	if d, err := Dup(old); err != nil || d.Committed() {
		t.Errorf("dup of an uncommitted type: %v", err)
	}
	outer := made(t)(Vector(2, 1, 3, old)) // of a type that is not committed
	if err := errors.Join(old.Commit(), old.Commit(), old.Free()); err != nil || old.Committed() {
		t.Errorf("wrong after free: %v", err)
	}
	if d, err := Dup(outer); err != nil || !d.Committed() {
		t.Errorf("dup of a committed type: %v", err)
	}
	if _, err := Pack(nil, nil, 0, old, 1, 0); mpierr.ClassOf(err) != mpierr.Type {
		t.Errorf("pack of a freed type: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("an iterator takes a freed type")
		}
	}()
	new(Iter).Reset(old, 1)
}

func TestDescriptionNamesTheConstructor(t *testing.T) {
	ok := made(t)
	v := ok(Vector(3, 2, 4, Float64))
	if got := v.String(); got != "vector(3, 2, 4, float64)" || v.Name() != "" {
		t.Errorf("%s, named %q", got, v.Name())
	}
	if err := v.SetName("row"); err != nil || v.Name() != "row" {
		t.Error(err)
	}
	for _, c := range []struct {
		typ  *Type
		want string
	}{
		{ok(Struct([]int{1, 2}, []int{0, 8}, []*Type{v, Int8})), "struct([1 2], [0 8], [row=vector(3, 2, 4, float64) int8])"},
		{ok(Subarray([]int{4}, []int{2}, []int{1}, OrderFortran, Int8)), "subarray([4], [2], [1], fortran, int8)"},
		{ok(DistributedArray(2, 1, []int{4}, []Distribution{DistributeCyclic}, []int{DefaultArg}, []int{2}, OrderC, Int8)),
			"distributed_array(2, 1, [4], [cyclic], [-1], [2], c, int8)"},
		{ok(IndexedBlock(1, make([]int, 100), Int8)), "indexed_block(1, [0 0 0 0 0 0 0 0 ... 100 in all], int8)"},
	} {
		if got := c.typ.String(); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	typ := v
	for range 12 {
		typ = ok(Struct([]int{1, 1}, []int{0, 8}, []*Type{typ, typ}))
	}
	if s := typ.String(); len(s) > 1000 || !strings.HasPrefix(s, "struct(") {
		t.Errorf("%d characters: %s", len(s), s)
	}
}
