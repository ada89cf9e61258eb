package sim

// event is something that happens at a time.
type event struct {
	at int64
	n  uint64 // order of those at one time
	do func()
}

// eventQueue is a heap of events, earliest first.
type eventQueue struct {
	heap []event
	n    uint64
}

func (q *eventQueue) less(i, j int) bool {
	a, b := &q.heap[i], &q.heap[j]
	return a.at < b.at || a.at == b.at && a.n < b.n
}

func (q *eventQueue) push(at int64, do func()) {
	q.n++
	q.heap = append(q.heap, event{at, q.n, do})
	for i := len(q.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.less(i, up) {
			return
		}
		q.heap[i], q.heap[up] = q.heap[up], q.heap[i]
		i = up
	}
}

// pop takes the earliest event, if there is one not later than limit.
func (q *eventQueue) pop(limit int64) (event, bool) {
	if len(q.heap) == 0 || q.heap[0].at > limit {
		return event{}, false
	}
	first := q.heap[0]
	last := len(q.heap) - 1
	q.heap[0], q.heap[last] = q.heap[last], event{}
	q.heap = q.heap[:last]
	for i := 0; ; {
		small := i
		for _, c := range [...]int{2*i + 1, 2*i + 2} {
			if c < last && q.less(c, small) {
				small = c
			}
		}
		if small == i {
			return first, true
		}
		q.heap[i], q.heap[small] = q.heap[small], q.heap[i]
		i = small
	}
}
