package sim

import (
	"bytes"

	"github.com/xdprma/xdprma/internal/protocol/engine"
)

// Witnesses also write to each other, and give messages and receives up. A message may be
// withdrawn before it is received, so the numbers in messages only rise.
const (
	mailContext = 0x5100
	mailTask    = 1001
)

// writeMail sends a message, which is withdrawn if it is given up before it is received.
func (t *task) writeMail(to *life, s *engine.Session) {
	t.doing = "witness: write"
	length := t.w.rng.IntN(1500)
	if t.w.chance(0.4) {
		length = t.w.rng.IntN(longestMessage - 8)
	}
	t.l.witness.written++
	p := &engine.Sending{To: s.Peer(), Context: mailContext, Data: text(t.l.incarnation<<32|t.l.witness.written, length)}
	start := t.w.now
	t.l.e.PostSend(p)
	if !t.awaitWith(t.patience(), p.Met) && t.l.e.Abandon(p, bytes.Clone(p.Data)) {
		clear(p.Data) // it is the program's again
		return
	}
	t.await(p.Met)
	if p.Err() != nil && s.Err() == nil {
		t.w.failf("rank %d: a message to rank %d failed, and the rank has not: %v", t.l.rank, to.rank, p.Err())
	}
	t.failedAt(to, s.Err(), start)
}

// readMail is the body of the task that receives a rank's mail. It gives receives up and
// begins them again, and at the end takes what is there.
func (t *task) readMail() {
	last := map[int]uint64{}
	for failed := false; ; {
		empty := engine.Receive{Context: mailContext, Source: engine.AnySource, Tag: engine.AnyTag, Buffer: make([]byte, longestMessage)}
		r := &empty
		if failed || t.l.quiet {
			t.await(func() bool {
				r = new(empty) // an earlier attempt may have found that nothing can come any more
				return t.l.e.Usage().Unexpected > 0 && t.l.e.TryReceive(r) && (!r.Met() || r.Err() == nil)
			})
		} else {
			t.l.e.PostReceive(r)
			ready := func() bool { return r.Met() || t.l.quiet }
			if (!t.awaitWith(t.patience(), ready) || !r.Met()) && t.l.e.WithdrawReceive(r) {
				continue
			}
		}
		t.await(r.Met)
		if r.Err() != nil {
			failed = true // a sender has, and each receive from any rank says so
			continue
		}
		n := le.Uint64(r.Buffer)
		if n <= last[r.From] || !bytes.Equal(r.Buffer[:r.Length], text(n, r.Length-8)) {
			t.w.failf("rank %d: message %x of rank %d is damaged, or comes after %x", t.l.rank, n, r.From, last[r.From])
		}
		last[r.From] = n
	}
}
