package rma

// Silence stops the node without a word to anyone, as a process that is killed
// does: its socket is closed and nothing is served any more.
func (n *Node) Silence() { _ = n.job.Poller().Close() }
