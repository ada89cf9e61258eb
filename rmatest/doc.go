// Package rmatest runs the ranks of a job inside a test: all in one process, each in a
// goroutine of its own, without root, sockets of a network or a launcher. A job of four ranks
// takes some milliseconds, and the race detector sees all of it.
//
//	func TestCounter(t *testing.T) {
//		rmatest.Run(t, 4, func(t *rmatest.T, node *rma.Node) {
//			ctx := t.Context()
//			win, err := rma.AllocateOf[int64](ctx, node.World(), 1)
//			t.Must(err)
//			t.Must(win.Lock(ctx, rma.LockShared, 0))
//			t.Must(win.Update(1, 0, rma.At(0), rma.Sum))
//			t.Must(win.Unlock(ctx, 0))
//			t.Must(node.World().Barrier(ctx))
//			if got := win.Memory()[0]; node.Rank() == 0 && got != 4 {
//				t.Errorf("the counter is %d, want 4", got)
//			}
//			t.Must(win.Free(ctx))
//		})
//	}
//
// The function is what a program does between rma.Join and Node.Close. Job is the same where
// there is no test, as in an Example.
//
// # Failures
//
// The T that the function is given is a testing.TB of its rank, and Fatal ends the rank. It
// ends the others too, as a panic does: their contexts end, and what becomes of them is not
// reported. Calls that need the other ranks, such as Win.Free, belong into T.Cleanup and not into
// defer: only then they do not wait for ranks that a failure has not ended yet. A rank that returns with a window that it has not freed fails the test as well. So
// do conflicting accesses, and goroutines of the library that are there when all ranks have
// closed. Shortly before the test's deadline, or when the time of Within is over, the job ends
// with a report that says which ranks hang, what they wait for, and where.
//
// A job cannot run in a bubble of testing/synctest: its ranks meet over a socket, and a goroutine that waits for
// one keeps the clock of the bubble from going on. All its times are those of the real clock.
//
// # What is tested
//
// Each rank has a host of its own and is in checking mode, so all accesses go by frames, and
// those that nothing orders are found if they overlap in time: an access that is complete before
// the other one arrives is not compared with it. Notifications that count in another order
// than the program expects are not found; they show in the results with Unchecked, over a Network
// with loss.
//
// Hosts puts several ranks on a host. They have memory in common for rma.AllocateShared. With
// Unchecked, they access each other's other windows by loads and stores as well, as on a real
// host.
//
// # Faults
//
// A Network is an option too. It loses, doubles, reorders and delays frames by a seed, which
// is logged when the test fails; and it stops ranks and kills them while they run:
//
//	net := rmatest.Network{Loss: 0.05, Reordering: 0.1}
//	rmatest.Run(t, 3, func(t *rmatest.T, node *rma.Node) {
//		...
//		if node.Rank() == 0 {
//			net.Kill(2)
//		}
//		err := win.Flush(t.Context(), 2) // class rma.ErrProcFailed
//	}, &net)
//
// The n-th frame from one rank to another meets the same in each run of a seed. Which frame
// that is depends on the scheduler, so a seed brings the same faults and not the same run.
package rmatest
