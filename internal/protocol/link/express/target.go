package express

// Newest is the request of a peer that is the newest of those which a target has seen. The
// zero value has seen none.
type Newest struct{ exchange, try uint64 }

// Follows reports whether a request is newer than all before it, and remembers it if so. One that
// is not may have been captured by anybody: it says nothing of the peer.
func (n *Newest) Follows(h *Header) bool {
	if h.Exchange < n.exchange || h.Exchange == n.exchange && h.Try <= n.try {
		return false
	}
	n.exchange, n.try = h.Exchange, h.Try
	return true
}
