package engine

import "github.com/xdprma/xdprma/internal/link"

// The link defines the types that a device shares with the engine.
type (
	// PathID names a way to a peer that a device has resolved.
	PathID = link.PathID
	// Out is one frame to send.
	Out = link.Out
	// Slab is the memory of a device's transmit slots.
	Slab = link.Slab
)

// NoPath marks the absence of a path.
const NoPath = link.NoPath

// HeapSlab returns a slab in ordinary memory, for devices that have none of their own.
func HeapSlab(slots, headroom, maxPayload int) *Slab {
	return link.HeapSlab(slots, headroom, maxPayload)
}
