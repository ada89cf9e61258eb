package reliable

// Congestion decides how many bundles may be in flight to one peer. It is called
// once an acknowledgement, not once a packet.
type Congestion interface {
	// Acked reports that n bundles were acknowledged.
	Acked(n int)
	// Lost reports that bundles were found lost; fresh says that the newest of
	// them was sent after the last reduction, so that one burst counts once.
	Lost(fresh bool)
	// Window returns how many bundles may be in flight.
	Window() int
}

// The bounds of AIMD's window, in bundles. The floor is what a lossy but idle
// path needs for packet-threshold detection to go on working.
const (
	windowFloor = 16
	windowStart = 64
	windowLimit = Span / 2
)

// AIMD grows the window by one bundle a round trip (by one an acknowledgement
// until the first loss) and cuts it to seven tenths on loss.
type AIMD struct {
	window    int32
	threshold int32
	credit    int32
}

// NewAIMD returns a window of the starting size.
func NewAIMD() *AIMD { return &AIMD{window: windowStart, threshold: windowLimit} }

// Acked implements Congestion.
func (a *AIMD) Acked(n int) {
	if a.window < a.threshold {
		a.window = min(a.window+int32(n), windowLimit)
		return
	}
	a.credit += int32(n)
	if a.credit >= a.window {
		a.credit -= a.window
		a.window = min(a.window+1, windowLimit)
	}
}

// Lost implements Congestion.
func (a *AIMD) Lost(fresh bool) {
	if !fresh {
		return
	}
	a.window = max(a.window*7/10, windowFloor)
	a.threshold = a.window
	a.credit = 0
}

// Window implements Congestion.
func (a *AIMD) Window() int { return int(a.window) }
