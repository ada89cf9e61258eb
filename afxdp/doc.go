// Package afxdp drives AF_XDP sockets: the memory shared with the kernel (the
// UMEM), the four rings, and the system calls that move them along.
//
// A Socket serves one queue of one interface and has a UMEM of its own, cut into
// chunks of equal size. The first TxChunks chunks are the transmit area, which
// the caller lays out as it likes (TxArea); the rest belongs to the receive
// side. Sockets of several queues can share a UMEM (Config.Share): they have one
// transmit area and a receive area each.
//
// Every chunk has one owner at any time. A receive chunk is with the kernel (in
// the fill ring or filled) or with the caller (from Receive to Release). A
// transmit chunk is with the caller, or with the kernel from Enqueue until Reap
// returns the frame.
//
// The methods fall into three groups that run concurrently with each other:
//
//   - Receive, Release: one goroutine at a time;
//   - Enqueue, Publish, Reap: one goroutine at a time, under the caller's lock;
//   - Kick, Refill, Wait, Stats, Info, FD: any number of goroutines, no lock.
//
// Only Kick, Refill, Wait and Stats make system calls after Open. Receive,
// Release, Enqueue, Publish, Reap, Kick and Refill allocate nothing.
//
// Attaching an XDP program and putting the socket in its XSKMAP is the caller's
// business; FD is what goes in the map.
package afxdp
