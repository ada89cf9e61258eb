package rmatest

import (
	"fmt"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/xdprma/xdprma/internal/inside"
)

// The labels of goroutines.
const (
	labelJob  = "rmatest"
	labelRank = "rank"
)

// library is what the names of this library's functions begin with.
const library = "github.com/xdprma/xdprma/"

// goroutines returns the stacks of the job's goroutines that wanted picks out by their
// labels and frames, each in the shape that is wished for.
func (j *trial) goroutines(wanted func(labels, frames string) bool, shape func(frames string) string) string {
	var profile, picked strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1) // writing to memory does not fail
	for entry := range strings.SplitSeq(profile.String(), "\n\n") {
		_, labels, _ := strings.Cut(entry, "# labels: ")
		labels, frames, _ := strings.Cut(labels, "\n")
		if strings.Contains(labels, strconv.Quote(labelJob)+":"+strconv.Quote(j.name)) && wanted(labels, frames) {
			picked.WriteString("\n" + readable(shape(frames)))
		}
	}
	return picked.String()
}

// readable returns the frames of a profile without their addresses.
func readable(frames string) string {
	var b strings.Builder
	for line := range strings.Lines(frames) {
		if f := strings.Fields(line); len(f) >= 4 { // #, address, function, position
			name, _, _ := strings.Cut(f[2], "+0x")
			fmt.Fprintf(&b, "\n    %s\n        %s", name, f[3])
		}
	}
	return b.String()
}

// waits says what the calls of a rank wait for. One that is stopped cannot be asked: whoever has its
// engine may stand still.
func (r *rank) waits() string {
	if r.node == nil || r.stopped {
		return ""
	}
	answer := make(chan []string, 1)
	go func() { answer <- inside.Job(r.node.World()).Waits() }()
	select {
	case waits := <-answer:
		var b strings.Builder
		for _, w := range waits {
			fmt.Fprintf(&b, "\n    it waits for %s", w)
		}
		return b.String()
	case <-time.After(time.Second): // the report must come all the same
		return "\n    its engine does not answer"
	}
}

// fromCall leaves out of frames those that the library's call has itself called: they say nothing of
// the program.
func fromCall(frames string) string {
	for _, public := range []string{"rma.", "comm."} {
		if at := strings.LastIndex(frames, "\t"+library+public); at >= 0 {
			frames = frames[strings.LastIndex(frames[:at], "\n")+1:]
		}
	}
	return frames
}

// where says which ranks have not ended, and where they are.
func (j *trial) where() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.whereLocked()
}

func (j *trial) whereLocked() string {
	var b strings.Builder
	for _, r := range j.ranks {
		if r.state == "" {
			continue
		}
		stopped := ""
		if r.stopped {
			stopped = " and is stopped"
		}
		own := strconv.Quote(labelRank) + ":" + strconv.Quote(strconv.Itoa(r.number))
		fmt.Fprintf(&b, "\nrank %d %s%s:%s%s", r.number, r.state, stopped, r.waits(), j.goroutines(func(labels, frames string) bool {
			return strings.Contains(labels, own) && strings.Contains(frames, library+"rmatest.call.func1") ||
				r.state != "runs" && strings.Contains(frames, library+"rmatest.(*trial).live")
		}, fromCall))
	}
	return b.String()
}

// left waits until no goroutine of the library runs for the job, and returns where those are
// that do not end. One that has told another of its end may need a moment for it.
func (j *trial) left(limit time.Duration) string {
	pause := 20 * time.Microsecond
	for end := time.Now().Add(limit); ; pause = min(2*pause, 10*time.Millisecond) {
		left := j.goroutines(func(_, frames string) bool { return strings.Contains(frames, library) }, strings.Clone)
		if left == "" || time.Now().After(end) {
			return left
		}
		time.Sleep(pause)
	}
}
