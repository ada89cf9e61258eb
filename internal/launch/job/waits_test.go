package job

import (
	"log/slog"
	"testing"
	"time"
)

// A wait is a warning once it has lasted for longer than most that are in order, and never if it is
// for what need not come.
func TestLevelOfWaits(t *testing.T) {
	for _, test := range []struct {
		waited time.Duration
		idle   bool
		want   slog.Level
	}{
		{LongWait, false, slog.LevelInfo},
		{LongestSilence, false, slog.LevelWarn},
		{LongWait, true, slog.LevelInfo},
		{time.Hour, true, slog.LevelInfo},
	} {
		if got := levelOf(test.waited, test.idle); got != test.want {
			t.Errorf("after %v, idle %v: %v, want %v", test.waited, test.idle, got, test.want)
		}
	}
}
