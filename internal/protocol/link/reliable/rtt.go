package reliable

// The bounds of the retransmission timeout, and the least patience before a probe, in
// nanoseconds. Backing off ends at MaxTimeout; a peer that is known to be slower than that gets
// up to SlowTimeout.
const (
	MinTimeout  int64 = 4_000_000
	MaxTimeout  int64 = 200_000_000
	SlowTimeout int64 = 1_000_000_000
	MinProbe    int64 = 500_000
)

// RTT estimates the round trip and derives the retransmission timeout from it,
// as RFC 6298 does. Times are in nanoseconds. The zero value has seen no round trip.
type RTT struct {
	smoothed int64
	variance int64
	guess    int64 // of the timeout, before any round trip is seen
	backoff  uint8
}

// Credible returns what to make of a round trip during which something was sent again. It may be
// as long as it seems, or the path failed for a while and lost all that was sent later.
func (r *RTT) Credible(rtt int64) int64 { return min(rtt, 2*r.base()) }

// Sampled reports whether a round trip was seen.
func (r *RTT) Sampled() bool { return r.smoothed != 0 }

// Guess returns an estimate for a peer of which nothing is known yet, by what r knows of others:
// where all are slow because they share few processors, a new one is, too.
func (r *RTT) Guess() RTT {
	if !r.Sampled() {
		return RTT{}
	}
	return RTT{guess: min(r.base(), MaxTimeout)}
}

// Sample takes in one measured round trip and ends any backing off.
func (r *RTT) Sample(rtt int64) {
	r.backoff = 0
	if r.smoothed == 0 {
		r.smoothed, r.variance = rtt, rtt/2
		return
	}
	d := r.smoothed - rtt
	if d < 0 {
		d = -d
	}
	r.variance += (d - r.variance) / 4
	r.smoothed += (rtt - r.smoothed) / 8
}

// Timeout returns how long to wait for an acknowledgement.
func (r *RTT) Timeout() int64 {
	t := r.base()
	return min(t<<r.backoff, r.longest())
}

// longest is how far the timeout backs off.
func (r *RTT) longest() int64 { return max(MaxTimeout, min(4*r.base(), SlowTimeout)) }

// base is Timeout without backing off.
func (r *RTT) base() int64 {
	if !r.Sampled() {
		return max(r.guess, 4*MinTimeout)
	}
	return min(max(r.smoothed+4*r.variance, MinTimeout), SlowTimeout)
}

// Probe returns how long to wait before one bundle is sent again in case it was lost
// with all behind it. The wait is short, because a false alarm costs no more than a
// frame.
func (r *RTT) Probe() int64 {
	t := r.Timeout()
	if !r.Sampled() || r.backoff > 0 {
		return t
	}
	return min(t, max(2*r.smoothed+4*r.variance, MinProbe))
}

// Expired doubles the timeout, up to its bound, until the next progress.
func (r *RTT) Expired() {
	if r.Timeout() < r.longest() {
		r.backoff++
	}
}

// Progress ends backing off: the peer has answered.
func (r *RTT) Progress() { r.backoff = 0 }
