package rma

// Silence stops the node without a word to anyone, as a process that is killed
// does: its socket is closed and nothing is served any more.
func (n *Node) Silence() { _ = n.job.Poller().Close() }

// LockWaits returns how many requests wait for locks of the node's windows.
func (n *Node) LockWaits() int {
	e, _ := n.job.Poller().Lock()
	defer n.job.Poller().UnlockQuiet()
	return e.Usage().LockWaits
}
