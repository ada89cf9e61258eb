package rma_test

import (
	"bytes"
	"os"
	"runtime"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/userspace"
)

// TestWindowsComeAndGo makes and frees windows and duplicates without a pause, on each transport. The XDP
// programs reach every one, though they forget those before later, and in the end nothing is left.
func TestWindowsComeAndGo(t *testing.T) {
	once(t)
	rounds := testenv.Windows(150)
	type transport struct {
		name  string
		reach bool // by the XDP program, or in memory
		open  func(t *testing.T) *job
	}
	for _, test := range append(testenv.OneOf(
		transport{"UDP", false, func(t *testing.T) *job { return newJob(t, 2, rma.Limits{}) }},
		transport{"memory", true, func(t *testing.T) *job { return newJobAt(t, []string{"a", "a"}, rma.Limits{}) }},
	), transport{"XDP", true, func(t *testing.T) *job { return newLabJob(t, 2, userspace.XDPNative, rma.Limits{}) }}) {
		t.Run(test.name, func(t *testing.T) {
			j := test.open(t)
			j.ctx = t.Context() // many rounds take longer than a job may in other tests
			lives := func(wins []*rma.Win) []*rma.Win {
				if wins[0].Unattended(1) != test.reach || wins[1].Unattended(0) != test.reach {
					t.Fatalf("in reach: %v, %v", wins[0].Unattended(1), wins[1].Unattended(0))
				}
				return wins
			}
			freeAll(j, lives(j.windows(64, 8))) // with all that stays: sessions, threads
			goroutines, files, kernel := runtime.NumGoroutine(), testenv.OpenFiles(t), kernelMemory(t)
			most, mostFiles := 0, 0
			for i := range rounds {
				wins := lives(j.windows(64, 8))
				dups := lives(dupAll(j, wins))
				freeAll(j, wins)
				freeAll(j, lives(dupAll(j, dups)))
				freeAll(j, dups)
				if i%100 == 0 {
					most, mostFiles = max(most, runtime.NumGoroutine()), max(mostFiles, testenv.OpenFiles(t))
				}
				if (i+1)%max(1, rounds/10) == 0 {
					t.Logf("%d rounds: %s", i+1, resident(t))
				}
			}
			t.Logf("at most %d goroutines and %d files, of %d and %d at the start", most, mostFiles, goroutines, files)
			for _, n := range j.nodes {
				if n := n.Stats().Device.Unreached; n > 0 {
					t.Errorf("%d windows are not reached", n)
				}
			}
			awaitNoMoreKernelMemory(t, kernel)
			testenv.Await(t, "goroutines and files to go", func() bool {
				return runtime.NumGoroutine() <= goroutines && testenv.OpenFiles(t) <= files
			})
		})
	}
}

// resident returns the line of /proc that says how much memory this process has.
func resident(t *testing.T) string {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := bytes.Cut(status, []byte("VmRSS:"))
	line, _, _ := bytes.Cut(after, []byte("\n"))
	return string(bytes.TrimSpace(line))
}
