package fabric

import "github.com/xdprma/xdprma/internal/protocol/link"

// NoExchanges is part of a layer above a link whose requests never are exchanges, and that holds
// nothing for a peer.
type NoExchanges struct{}

// Express implements link.Upper.
func (NoExchanges) Express(*link.Session, []byte) (n, results int) { return 0, 0 }

// Executed implements link.Upper.
func (NoExchanges) Executed(s *link.Session, records, results []byte, refused uint8) {}

// Served implements link.Upper.
func (NoExchanges) Served() {}

// Quiesced implements link.Upper.
func (NoExchanges) Quiesced(*link.Session) {}
