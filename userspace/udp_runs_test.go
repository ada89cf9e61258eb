package userspace

import (
	"slices"
	"testing"
)

// outs returns frames of those lengths on a path.
func outs(path PathID, lengths ...int) (o []Out) {
	for _, n := range lengths {
		o = append(o, Out{Len: int32(n), Path: path})
	}
	return o
}

// split returns how many frames each message has that r makes of a batch.
func split(r *runs, batch []Out) (messages []int) {
	for len(batch) > 0 {
		n := r.take(batch)
		messages, batch = append(messages, n), batch[n:]
	}
	return messages
}

func TestRunsOfFrames(t *testing.T) {
	again := outs(0, 1000, 1000, 1000, 1000, 1000)
	again[2].Again = true
	for name, test := range map[string]struct {
		batch []Out
		want  []int
	}{
		"one frame":                       {outs(0, 1000), []int{1}},
		"equal":                           {outs(0, 1000, 1000, 1000), []int{3}},
		"the last is shorter":             {outs(0, 1000, 1000, 10, 1000, 1000), []int{3, 2}},
		"longer and longer":               {outs(0, 997, 998, 999, 1000), []int{1, 1, 1, 1}},
		"a long one between":              {outs(0, 900, 900, 1000, 900, 900), []int{2, 2, 1}},
		"together not longer than one":    {outs(0, 100, 100, 100), []int{1, 1, 1}},
		"together just longer than one":   {outs(0, 500, 501, 500), []int{1, 2}},
		"so short that no run is longer":  {outs(0, repeat(70, 15)...), repeat(70, 1)},
		"more than one message may have":  {outs(0, repeat(130, 900)...), []int{64, 64, 2}},
		"more bytes than a message holds": {outs(0, repeat(66, 1000)...), []int{64, 2}},
		"several paths":                   {slices.Concat(outs(0, 1000, 1000), outs(1, 1000, 1000), outs(0, 1000)), []int{2, 2, 1}},
		"a repeated one":                  {again, []int{2, 1, 2}},
	} {
		r := &runs{segments: maxSegments, longest: 1000}
		if got := split(r, test.batch); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		r.segments = 1
		if got := split(r, test.batch); len(got) != len(test.batch) {
			t.Errorf("%s: %v of a kernel that cuts no messages", name, got)
		}
	}
	r := &runs{segments: maxSegments, longest: 9000}
	if got := split(r, outs(0, repeat(15, 9000)...)); !slices.Equal(got, []int{7, 7, 1}) {
		t.Errorf("frames of 9000 bytes: %v", got)
	}
}

// Frames of a path go by themselves after many losses, longer each time, and share messages
// again. Other paths do not notice.
func TestRunsAfterLosses(t *testing.T) {
	r := &runs{segments: maxSegments, longest: 1000}
	batch := outs(3, 1000, 1000)
	alone := func() (frames int) {
		for r.take(batch) == 1 {
			if r.sent(3, 1) {
				t.Fatal("a loss is taken for a refusal")
			}
			frames++
		}
		return frames
	}
	for want := minPause; want <= 2*maxPause; want *= 2 {
		r.sent(3, 2)
		for range leastRepeated {
			if r.take(batch) != 2 {
				t.Fatal("few repetitions have frames go alone")
			}
			r.repeats(3)
		}
		r.repeats(3) // of the same time
		if n := split(r, outs(2, 1000, 1000)); len(n) != 1 {
			t.Fatalf("another path: %v", n)
		}
		if n := alone(); n != min(want, maxPause) {
			t.Fatalf("%d frames went alone, want %d", n, min(want, maxPause))
		}
	}
	for i := range calmPauses * maxPause {
		if r.sent(3, 2); i%10 == 0 {
			r.repeats(3)
		}
		if i%100 == 99 && r.take(batch) != 2 {
			t.Fatal("one frame in twenty is repeated, and others go alone")
		}
	}
	for r.take(batch) == 2 {
		r.repeats(3)
	}
	if n := alone(); n >= maxPause/2 {
		t.Errorf("%d frames went alone after many without a loss", n)
	}
}

// The kernel's refusal of several frames at once says nothing of it when it refuses the
// first of them alone.
func TestRunsAfterRefusals(t *testing.T) {
	r := &runs{segments: maxSegments, longest: 1000}
	batch := outs(1, 1000, 1000, 1000)
	refuse := func(perhapsCutting bool) {
		r.refused(1, r.take(batch), perhapsCutting)
		if n := r.take(batch); n != 1 {
			t.Fatalf("%d frames are tried together again", n)
		}
	}
	goes := func(n int) (proven bool) { // one by one
		for range n {
			proven = r.sent(1, 1) || proven
		}
		return proven
	}
	refuse(true)
	r.refused(1, 1, true) // they are too long
	if goes(2) || r.take(batch) != 3 {
		t.Error("a refused frame is taken for a refusal to cut")
	}
	refuse(false) // no memory
	if goes(3) || r.take(batch) != 3 {
		t.Error("want of memory is taken for a refusal to cut")
	}
	refuse(true)
	if !goes(1) || goes(2) || r.take(batch) != 1 || r.take(outs(0, 1000, 1000)) != 2 {
		t.Error("a refusal to cut is not noticed, or not on its path only")
	}
}
