package reliable

// The bounds of the retransmission timeout, and the least patience before a probe, in
// nanoseconds.
const (
	MinTimeout int64 = 4_000_000
	MaxTimeout int64 = 200_000_000
	MinProbe   int64 = 500_000
)

// RTT estimates the round trip and derives the retransmission timeout from it,
// as RFC 6298 does. Times are in nanoseconds. The zero value has seen no round trip.
type RTT struct {
	smoothed int64
	variance int64
	backoff  uint8
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
	t := r.smoothed + 4*r.variance
	if r.smoothed == 0 {
		t = 4 * MinTimeout
	}
	t = max(t, MinTimeout) << r.backoff
	return min(t, MaxTimeout)
}

// Probe returns how long to wait before one bundle is sent again in case it was lost
// with all behind it. The wait is short, because a false alarm costs no more than a
// frame.
func (r *RTT) Probe() int64 {
	t := r.Timeout()
	if r.smoothed == 0 || r.backoff > 0 {
		return t
	}
	return min(t, max(2*r.smoothed+4*r.variance, MinProbe))
}

// Expired doubles the timeout, up to its bound, until the next progress.
func (r *RTT) Expired() {
	if r.Timeout() < MaxTimeout {
		r.backoff++
	}
}

// Progress ends backing off: the peer has answered.
func (r *RTT) Progress() { r.backoff = 0 }
