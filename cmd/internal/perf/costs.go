package perf

import (
	"fmt"
	"slices"
)

// Cost is a step from the bare stream of joined frames towards what a long transfer of the
// library does.
type Cost struct {
	Kind  FloorKind
	About string
}

// The places of the steps in Costs.
const (
	costJoined = iota
	costPieces
	costCold
	costSumSent
	costSumReceived
	costCopySent
	costCopyReceived
	costAcknowledged
)

// Costs are the steps. Each does all that those before it do.
var Costs = []Cost{
	costJoined:       {"costs-joined", "a stream of joined UDP frames, sent and received in one piece of memory each"},
	costPieces:       {"costs-pieces", "a piece of memory for each frame that is sent"},
	costCold:         {"costs-cold", "these pieces in 1,024 slots in turn, and up to 16 buffers a call at the receiver"},
	costSumSent:      {"costs-checksum-sent", "the sender computes each frame's checksum"},
	costSumReceived:  {"costs-checksum-received", "the receiver computes it too"},
	costCopySent:     {"costs-copy-sent", "the sender copies each frame's bytes from 1 MiB of memory"},
	costCopyReceived: {"costs-copy-received", "the receiver copies them to 1 MiB of memory"},
	costAcknowledged: {"costs-acknowledged", "an acknowledgement for each message, and at most 128 frames in flight"},
}

// acknowledgedFrames may be in flight in the last step.
const acknowledgedFrames = 128

// costOf returns the place of a kind in Costs, -1 if it has none.
func costOf(k FloorKind) int {
	return slices.IndexFunc(Costs, func(c Cost) bool { return c.Kind == k })
}

// SummarizeCosts makes one result of the samples of each step, in the order of Costs: the
// medians, and how much longer a message takes than in the step before.
func SummarizeCosts(samples []*FloorSample) ([]*Result, error) {
	var results []*Result
	for i, c := range Costs {
		var of []*FloorSample
		var sender, receiver []float64
		for _, s := range samples {
			if s.Point.Kind == c.Kind {
				of = append(of, s)
				sender, receiver = append(sender, s.SenderTime), append(receiver, s.ReceiverTime)
			}
		}
		r, err := SummarizeFloor(of)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Kind, err)
		}
		if r.MBPerS <= 0 {
			return nil, fmt.Errorf("%s: nothing has arrived", c.Kind)
		}
		r.Bytes = of[0].Message
		r.SenderTime, r.ReceiverTime = Median(sender), Median(receiver)
		r.NsPerByte = 1e3 / r.MBPerS
		r.MessageTime = float64(r.Bytes) / r.MBPerS
		if i > 0 {
			added := r.MessageTime - results[i-1].MessageTime
			r.Added = &added
		}
		results = append(results, r)
	}
	return results, nil
}
