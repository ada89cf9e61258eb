package userspace

// Bounds of what the kernel cuts into datagrams: their number, and bytes, with which the
// packet that the kernel cuts holds headers.
const (
	maxSegments  = 64
	maxSegmented = 1<<16 - 1 - ipv6Len - udpLen
)

// Bounds of a pause, in frames; how many times as many frames have to share messages
// before the next pause is half as long; and how many frames have to be repeated, and of
// how many that shared messages one, before a pause begins.
const (
	minPause, maxPause = 64, 1 << 16
	calmPauses         = 16
	leastRepeated      = 8
	oneRepeatedOf      = 4
)

// runs decides which frames of a batch share a message, which the kernel cuts into
// frames: consecutive frames of one path and one length, of which the last may be
// shorter. It remembers of each path whether that is a good idea. The kernel may refuse
// it, and something on the way may lose what it does not see as frames.
type runs struct {
	segments int // frames that share a message at most; 1 if the kernel cuts no messages
	longest  int // bytes of the longest frame
	paths    []sharing
}

// sharing is what runs knows of a path.
type sharing struct {
	single   int  // frames that have to go by themselves before others share a message again
	pause    int  // frames that do the next time that too many are repeated
	shared   int  // frames that have shared messages since pause changed
	repeated int  // frames that were sent again since then
	suspect  bool // the kernel refused a message: perhaps because it consists of several frames
	never    bool // that was why
}

// of returns what is known of a path. It allocates for new paths only.
func (r *runs) of(path PathID) *sharing {
	for int(path) >= len(r.paths) {
		r.paths = append(r.paths, sharing{pause: minPause})
	}
	return &r.paths[path]
}

// take returns how many frames at the start of batch, which is not empty, go as one
// message. Together they are longer than any frame, by which the classifier of a peer
// tells that they are several.
func (r *runs) take(batch []Out) int {
	first := batch[0]
	p := r.of(first.Path)
	if first.Again || p.never || p.single > 0 || int(first.Len)*r.segments <= r.longest {
		return 1
	}
	n, bytes := 1, int(first.Len)
	for n < len(batch) && n < r.segments && batch[n-1].Len == first.Len {
		next := batch[n]
		bytes += int(next.Len)
		if next.Path != first.Path || next.Len > first.Len || next.Again || bytes > maxSegmented {
			bytes -= int(next.Len)
			break
		}
		n++
	}
	if bytes <= r.longest {
		return 1
	}
	return n
}

// sent notes that n frames went as one message. It reports true if that proves that the
// kernel cuts no messages on this path, which it does once.
func (r *runs) sent(path PathID, n int) bool {
	p := r.of(path)
	if n == 1 {
		p.single = max(p.single-1, 0)
	} else {
		if p.shared += n; p.shared >= calmPauses*p.pause {
			p.pause, p.shared, p.repeated = max(p.pause/2, minPause), 0, 0
		}
	}
	proven := p.suspect
	p.never, p.suspect = p.never || proven, false
	return proven
}

// refused notes that the kernel refused n frames as one message. Several will be tried one
// by one: it may have refused them because it does not cut them.
func (r *runs) refused(path PathID, n int, perhapsCutting bool) {
	p := r.of(path)
	p.suspect = n > 1 && perhapsCutting
	if n == 1 {
		p.single = max(p.single-1, 0)
	} else {
		p.single = n
	}
}

// repeats notes that a frame is sent again. If many are, of those that shared messages,
// frames go by themselves for a while, which is longer each time that comes soon.
func (r *runs) repeats(path PathID) {
	p := r.of(path)
	if p.single > 0 {
		return
	}
	if p.repeated++; p.repeated >= leastRepeated && p.repeated*oneRepeatedOf > p.shared {
		p.single, p.pause, p.shared, p.repeated = p.pause, min(2*p.pause, maxPause), 0, 0
	}
}
