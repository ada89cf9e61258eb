package poller

import (
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

const millisecond = 1000 * microsecond

func TestCrowd(t *testing.T) {
	const fast, lost = 10 * microsecond, 3 * millisecond
	for _, c := range []struct {
		what   string
		yields []int64 // how long each takes, one right after the other
		ends   int64   // when it is no longer taken for crowded, after the last yield; 0: it is not
	}{
		{"nothing is known", nil, 0},
		{"others poll, too", []int64{fast, 400 * microsecond, fast}, 0},
		{"a rank that polls has computed", []int64{lost}, 0},
		{"several have, now and then", []int64{lost, fast, fast, fast, fast, fast, fast, lost}, 0},
		{"somebody computes", []int64{lost, lost}, 20 * millisecond},
		{"somebody computes, another one polls", []int64{lost, fast, lost}, 17500 * microsecond},
		{"somebody goes on to", []int64{lost, lost, lost}, 40 * millisecond},
		{"for long", []int64{lost, lost, lost, lost, lost, lost, lost, lost, lost, lost}, 640 * millisecond},
		{"the yield after that is fast", []int64{lost, lost, lost, lost, lost, lost, lost, lost, fast}, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			var w crowd
			var now int64
			var found bool
			for _, y := range c.yields {
				now = max(now, w.until) // no caller yields before
				found = w.note(now, now+y)
				now += y
			}
			if found != (c.ends > 0) || w.here(now) != found {
				t.Errorf("somebody computes: %v, and afterwards: %v, want %v", found, w.here(now), c.ends > 0)
			}
			if ends := max(0, w.until-now); ends != c.ends {
				t.Errorf("it is taken for crowded for %v, want %v", time.Duration(ends), time.Duration(c.ends))
			}
		})
	}
}

// Where others compute all the time, few yields find that out; and the end of it is noticed. The caller
// yields whenever it may, and a peer that polls has the processor, too.
func TestCrowdCostsLittle(t *testing.T) {
	const slice, busy = 4 * millisecond, 60_000 * millisecond
	for _, between := range []int{0, 1, 3} { // fast yields to the peer, between two to the one that computes
		var w crowd
		var now, lost int64
		yield := func(d int64) {
			now = max(now+microsecond, w.until)
			w.note(now, now+d)
			now += d
		}
		for now < busy {
			for range between {
				yield(10 * microsecond)
			}
			yield(slice)
			lost += slice
		}
		if share := float64(lost) / busy; share > 0.02 {
			t.Errorf("%d fast yields between: %.1f %% of the time goes into others", between, 100*share)
		}
		for begin, yields := now, 0; w.here(now) || yields < 100; yields++ {
			if yield(microsecond); now-begin > 700*millisecond {
				t.Fatalf("%d fast yields between: the end is not noticed after %v", between, time.Duration(now-begin))
			}
		}
		if w.pause != 0 {
			t.Errorf("%d fast yields between: after 100 yields to nobody it would believe the first one that takes long", between)
		}
	}
}

// A real caller finds a process that computes on its processor.
func TestCallerNoticesWhoComputes(t *testing.T) {
	runtime.LockOSThread() // and never unlock it: the thread, which is bound, ends with the test
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		testenv.Lacks(t, "binding a thread to a processor is not allowed here: "+err.Error())
	}
	computes := exec.Command("sh", "-c", "while :; do :; done") // is bound as the thread that starts it is
	computes.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := computes.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = computes.Process.Kill()
		_ = computes.Wait()
	}()
	a := newAnswering(t, Config{Spin: time.Hour, Wake: time.Hour, yield: yield}, 2000)
	for begin := time.Now(); ; {
		if sleeps, _ := a.ask(1); sleeps > 0 {
			break
		}
		if time.Since(begin) > time.Minute {
			t.Fatal("a caller beside a process that computes has polled for a minute and not slept")
		}
	}
}
