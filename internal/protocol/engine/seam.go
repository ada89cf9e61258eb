package engine

import (
	"github.com/xdprma/xdprma/internal/protocol/engine/message"
	"github.com/xdprma/xdprma/internal/protocol/link"
)

// The link defines the types that a device shares with the engine, and its own part of a Config.
type (
	// LinkConfig is what the link is told.
	LinkConfig = link.Config
	// PathID names a way to a peer that a device has resolved.
	PathID = link.PathID
	// Out is one frame to send.
	Out = link.Out
	// Way is how a frame reaches the peer's process.
	Way = link.Way
	// Opened is a session that has become valid.
	Opened = link.Opened
	// Slab is the memory of a device's transmit slots.
	Slab = link.Slab
	// Credentials are what a rank proves who it is with, in a job with a key.
	Credentials = link.Credentials
	// Verdict is what is known of a hello's claims.
	Verdict = link.Verdict
)

// The verdicts.
const (
	Unknown   = link.Unknown
	Confirmed = link.Confirmed
	Refuted   = link.Refuted
)

// The ways.
const (
	Single = link.Single
	Joined = link.Joined
)

// NoPath marks the absence of a path.
const NoPath = link.NoPath

// HeapSlab returns a slab in ordinary memory, for devices that have none of their own.
func HeapSlab(slots, headroom, maxPayload int) *Slab {
	return link.HeapSlab(slots, headroom, maxPayload)
}

// Package message defines sends and receives.
type (
	// Sending is a message on its way out.
	Sending = message.Sending
	// Receive is a receive, or a probe, on its way.
	Receive = message.Receive
)

// The wildcards and the largest tag of messages.
const (
	AnySource = message.AnySource
	AnyTag    = message.AnyTag
	MaxTag    = message.MaxTag
)
