package comm

import "time"

// SetLongWait has ranks wait in silence for another time, until restore is called.
func SetLongWait(d time.Duration) (restore func()) {
	was := longWait
	longWait = d
	return func() { longWait = was }
}
