package perf

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// stopsItself is the variable that makes this test binary stop itself and then end.
const stopsItself = "XDPRMA_PERF_STOPS_ITSELF"

func TestMain(m *testing.M) {
	if os.Getenv(stopsItself) == "" {
		os.Exit(m.Run())
	}
	var from, to int64
	err := stopSelf(50*time.Millisecond, func(a, b int64) { from, to = a, b })
	if now := machineTime(); err != nil || from <= 0 || to <= from || now < to {
		fmt.Fprintf(os.Stderr, "stopped from %d to %d, and now it is %d: %v\n", from, to, now, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A process that stopped itself goes on although nobody continues it.
func TestStoppedProcessGoesOn(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), stopsItself+"=1"), os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var seen []string
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(cmd.Process.Pid, &status, unix.WUNTRACED, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			t.Fatal(err)
		case status.Stopped():
			seen = append(seen, "stopped by "+unix.SignalName(status.StopSignal()))
			continue
		}
		seen = append(seen, fmt.Sprintf("status %d, signalled: %v", status.ExitStatus(), status.Signaled()))
		break
	}
	if want := []string{"stopped by SIGSTOP", "status 0, signalled: false"}; !slices.Equal(seen, want) {
		t.Errorf("the process was seen as %q, want %q", seen, want)
	}
}

func TestLoadsAreFoundByName(t *testing.T) {
	for _, l := range loads() {
		if found, err := findLoad(l.name); err != nil || found.name != l.name || found.about != l.about {
			t.Errorf("%q: %+v, %v", l.name, found, err)
		}
		if _, ok := Find("progress-" + l.name + "-paced"); !ok {
			t.Errorf("load %q has no paced test", l.name)
		}
		if _, ok := Find("progress-" + l.name); ok == l.paced {
			t.Errorf("load %q has a test without a pause: %v", l.name, ok)
		}
	}
	if l, err := findLoad("nothing"); err == nil {
		t.Errorf("found %+v", l)
	}
}

// The floors in the kernel of a test of progress have that test's load and pace.
func TestKernelFloorsHaveTheLoadOfTheirTest(t *testing.T) {
	testenv.NeedsRoot(t)
	plan := &Plan{Device: FloorXDP, Duration: 10 * time.Millisecond}
	for _, name := range []string{"progress-gc-paced", "progress-1-busy", "progress-0-busy-paced", "put-latency"} {
		test, _ := Find(name)
		floors := Point{Test: name, Bytes: 8, Ranks: 2}.KernelFloors()
		if want := []FloorPoint{{Kernel, 8, test.load, test.pace}, {Memory, 8, test.load, test.pace}}; !slices.Equal(floors, want) {
			t.Errorf("%s: %+v, want %+v", name, floors, want)
		}
		plan.Floors = append(plan.Floors, floors...)
	}
	lab, places := floorLab(t, netlab.Config{Ranks: 2, MTU: 1500})
	samples := bothSides(t, plan, places, lab.Do)
	checkFloors(t, plan, samples, 1500)
}
