package sim

import (
	"bytes"

	"github.com/xdprma/xdprma/internal/protocol/engine"
)

const longestMessage = 20_000

// text is message number n of a life: the number, and bytes that follow from it.
func text(n uint64, length int) []byte {
	data := le.AppendUint64(nil, n)
	for i := range length {
		data = append(data, byte(int(n)+i))
	}
	return data
}

// send sends numbered messages, short ones and such as the receiver has to get.
func (t *task) send(k *link) {
	t.doing = "send"
	var pending []*engine.Sending
	for range t.w.between(1, 6) {
		length := t.w.rng.IntN(1500)
		if t.w.chance(0.3) {
			length = t.w.rng.IntN(longestMessage - 8)
		}
		p := &engine.Sending{To: k.s.Peer(), Context: simJob, Tag: t.index, Data: text(t.l.incarnation<<32|k.sent[t.index], length)}
		t.l.e.PostSend(p)
		k.sent[t.index]++
		if pending = append(pending, p); t.w.chance(0.3) {
			t.await(p.Met)
		}
	}
	for _, p := range pending {
		if !t.awaitWith(t.patience(), p.Met) {
			t.withdraw(k, p)
			continue
		}
		if p.Err() != nil && !k.failed() {
			t.w.failf("rank %d task %d: a message to rank %d failed: %v", t.l.rank, t.index, k.to.rank, p.Err())
		}
	}
}

// withdraw gives a message up, which may be received all the same. Its memory is used for
// something else at once.
func (t *task) withdraw(k *link, p *engine.Sending) {
	n, from := le.Uint64(p.Data), sender{t.l.rank, t.index}
	if !t.l.e.Abandon(p, bytes.Clone(p.Data)) {
		t.w.failf("rank %d task %d: message %x to rank %d is over, and is waited for", t.l.rank, t.index, n, k.to.rank)
	}
	for i := range p.Data {
		p.Data[i] = 0xee
	}
	if k.to.model.withdrawn[from] == nil {
		k.to.model.withdrawn[from] = map[uint64]bool{}
	}
	k.to.model.withdrawn[from][n] = true
}

// receiver takes a rank's messages, slowly: with a receive that waits for them, or after
// they have come.
func (t *task) receiver() {
	l, e := t.l, t.l.e
	for failed := false; ; {
		r := &engine.Receive{Context: simJob, Source: engine.AnySource, Tag: engine.AnyTag, Buffer: make([]byte, longestMessage), Probe: t.w.chance(0.3)}
		if !l.quiet && !failed && t.w.chance(0.5) {
			l.receive = r
			e.PostReceive(r)
			if !t.awaitWith(t.patience(), r.Met) {
				e.WithdrawReceive(r) // unless it has a message already
			}
		} else {
			t.await(func() bool { return e.Usage().Unexpected > 0 })
			if t.w.chance(0.5) {
				t.sleep(t.w.span(0, 3*millisecond))
			}
			if !e.TryReceive(r) {
				if !t.w.plan.witnesses { // then it may be mail
					t.w.failf("rank %d: nobody receives a message that is there", l.rank)
				}
				t.sleep(t.w.span(0, millisecond))
				continue
			}
		}
		t.await(r.Met)
		l.receive = nil
		switch {
		case r.Err() != nil: // a sender has failed
			failed = true
			t.lost(r)
			continue
		case r.Length == 0: // withdrawn
			continue
		case r.Probe:
			found := *r
			r = &engine.Receive{Context: simJob, Source: found.From, Tag: found.Got, Buffer: make([]byte, longestMessage)}
			there := e.TryReceive(r)
			same := there && r.From == found.From && r.Got == found.Got && r.Length == found.Length
			if !same && len(l.model.withdrawn) == 0 { // none was given up meanwhile
				t.w.failf("rank %d: probed %+v and received %+v", l.rank, found, r)
			}
			if !there {
				continue
			}
			if t.await(r.Met); r.Err() != nil {
				t.lost(r)
				continue
			}
		}
		t.received(r)
	}
}

// lost counts a message that r was for and that its sender has not brought.
func (t *task) lost(r *engine.Receive) {
	if r.Length > 0 {
		t.l.model.lost[sender{r.From, r.Got}]++
	}
}

// received checks that a message comes in its turn.
func (t *task) received(r *engine.Receive) {
	m := &t.l.model
	n := le.Uint64(r.Buffer)
	s := sender{r.From, r.Got}
	want := m.messages[s]
	if n>>32 > want>>32 {
		want = n >> 32 << 32 // the first of a new life
	}
	missing := uint64(0)
	for i := want; i < n; i++ {
		if !m.withdrawn[s][i] {
			missing++
		}
	}
	if n >= want && missing <= m.lost[s] {
		m.lost[s] -= missing
		want = n
	}
	if n != want {
		t.w.failf("rank %d: message %x of rank %d task %d, want %x", t.l.rank, n, r.From, r.Got, want)
	}
	if !bytes.Equal(r.Buffer[:r.Length], text(n, r.Length-8)) {
		t.w.failf("rank %d: wrong bytes in message %x of rank %d", t.l.rank, n, r.From)
	}
	m.messages[s] = want + 1
}

// hush has a rank wait for no more messages than those on their way.
func (l *life) hush() {
	l.quiet = true
	if r := l.receive; r != nil {
		l.e.WithdrawReceive(r)
	}
	l.w.run(l)
}
