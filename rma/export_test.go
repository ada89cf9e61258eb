package rma

import "github.com/xdprma/xdprma/internal/engine"

// Silence stops the node without a word to anyone, as a process that is killed
// does: its socket is closed and nothing is served any more.
func (n *Node) Silence() { _ = n.job.Poller().Close() }

// Usage returns what the engine of the window's node holds.
func (w *Win) Usage() engine.Usage {
	e, _ := w.poller.Lock()
	defer w.poller.UnlockQuiet()
	return e.Usage()
}

// LockWaits returns how many requests wait for locks of the node's windows.
func (n *Node) LockWaits() int {
	e, _ := n.job.Poller().Lock()
	defer n.job.Poller().UnlockQuiet()
	return e.Usage().LockWaits
}
