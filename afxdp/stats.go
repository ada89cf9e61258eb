package afxdp

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Stats counts what a Socket did since Open. The first group is the socket's
// own, the second the kernel's (XDP_STATISTICS).
type Stats struct {
	RxFrames, RxBytes uint64 // delivered by Receive
	RxInvalid         uint64 // descriptors from the kernel that were ignored: not a chunk that it had
	RxOversize        uint64 // frames longer than MaxFrame, or out of several chunks without MultiBuffer
	TxFrames, TxBytes uint64 // published
	TxCompleted       uint64 // frames returned by Reap
	TxInvalid         uint64 // completions from the kernel that were ignored: not a chunk in flight
	TxLost            uint64 // frames that the kernel dropped during a Kick
	Kicks             uint64 // system calls to send
	KickFailures      uint64 // those that failed for want of memory or for good

	KernelRxDropped   uint64 // frames dropped for being longer than a chunk or, without zero-copy, for want of chunks in the fill ring
	KernelRxInvalid   uint64 // fill ring entries refused
	KernelTxInvalid   uint64 // transmit descriptors refused; they never complete
	KernelRxRingFull  uint64 // frames dropped for want of room in the receive ring
	KernelRxFillEmpty uint64 // times the fill ring was empty: KernelRxDropped has the frame too, or with zero-copy it waits in the NIC
	KernelTxRingEmpty uint64 // times the kernel found nothing to send
}

// Stats returns the counters. Any goroutine may call it.
func (s *Socket) Stats() (Stats, error) {
	var k unix.XDPStatistics
	if err := getsockopt(s.fd, unix.XDP_STATISTICS, &k); err != nil {
		return Stats{}, fmt.Errorf("afxdp: read statistics: %w", err)
	}
	return Stats{
		RxFrames:     s.rx.frames.Load(),
		RxBytes:      s.rx.bytes.Load(),
		RxInvalid:    s.rx.invalid.Load(),
		RxOversize:   s.rx.oversize.Load(),
		TxFrames:     s.tx.frames.Load(),
		TxBytes:      s.tx.bytes.Load(),
		TxCompleted:  s.tx.done.Load(),
		TxInvalid:    s.tx.invalid.Load(),
		TxLost:       s.kick.lost.Load(),
		Kicks:        s.kick.calls.Load(),
		KickFailures: s.kick.failures.Load(),

		KernelRxDropped:   k.Rx_dropped,
		KernelRxInvalid:   k.Rx_invalid_descs,
		KernelTxInvalid:   k.Tx_invalid_descs,
		KernelRxRingFull:  k.Rx_ring_full,
		KernelRxFillEmpty: k.Rx_fill_ring_empty_descs,
		KernelTxRingEmpty: k.Tx_ring_empty_descs,
	}, nil
}

// HasReceived reports whether the kernel has ever had a frame for the socket: it is received, or
// was dropped for want of room. Any goroutine may call it until Close. It makes a system call
// as long as it returns false.
func (s *Socket) HasReceived() bool {
	if atomic.LoadUint32(s.rx.rx.producer) != 0 {
		return true
	}
	k, err := s.Stats()
	return err == nil && k.KernelRxDropped+k.KernelRxRingFull > 0
}
