package onesided

import "testing"

// TestLockPassing asks for locks of lock_all while an exclusive request waits: they pass
// it while it is young, and from then on where their epoch is older than its wait.
func TestLockPassing(t *testing.T) {
	const owner, second = 5, 1000 * millisecond
	f := newRanks(t, owner+1, 64, nil)
	var a []*Access
	for rank := range owner {
		a = append(a, f.access(rank, owner))
	}
	ask := func(rank int, passing bool, age int64) bool {
		if passing {
			f.e[rank].LockPassing(a[rank], f.Now-age)
		} else {
			f.e[rank].Lock(a[rank], rank == 1)
		}
		f.Settle()
		return a[rank].Held()
	}
	leave := func(rank int) {
		f.e[rank].Unlock(a[rank])
		f.Settle()
	}
	if !ask(0, false, 0) || ask(1, false, 0) {
		t.Fatal("the lock is not as it should be")
	}
	f.Pass(second)
	if !ask(2, true, 0) {
		t.Error("a request that is as good as new is not passed")
	}
	f.Pass(6 * second) // two beyond the limit of life
	if ask(3, true, second) {
		t.Error("an epoch of one second has passed a wait of two")
	}
	if !ask(4, true, 3*second) {
		t.Error("an epoch of three seconds has not passed a wait of two")
	}
	for _, rank := range []int{0, 2, 4} {
		if a[1].Held() {
			t.Errorf("exclusive beside rank %d", rank)
		}
		leave(rank)
	}
	if !a[1].Held() || a[3].Held() {
		t.Errorf("the exclusive request holds the lock: %v; who came after it: %v", a[1].Held(), a[3].Held())
	}
	leave(1)
	if !a[3].Held() {
		t.Error("the last has not got the lock")
	}
	leave(3)
	f.atRest()
}
