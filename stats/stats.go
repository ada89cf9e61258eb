// Package stats has the counters of a rank, which rma.Node.Stats returns. All are totals since
// the rank has joined. Nothing is lost, or refused, without being counted in one of them.
//
// On a path that loses nothing, Link.Resent and Link.Repeated stay near 0 at the rank that sends,
// and so does all that Device and Stats.Faults count as dropped or malformed. OneSided.Conflicts
// and OneSided.Refused speak of mistakes in a program. Link counts what travels between ranks:
//
//   - A frame is one UDP datagram.
//   - A session is what two ranks agree on before they exchange anything else; they open it
//     with hellos, and other handshake frames.
//   - A bundle is a frame of requests, or of answers, which is sent again until it is
//     acknowledged.
//   - An express frame carries a few small requests, which the XDP program of the peer may
//     execute. The frame and its answer are an exchange.
//
// Stats.Faults has the names of what was wrong with frames and records that were dropped. "short",
// "magic", "version", "kind", "flags" and "frame" are malformed, "checksum" is damaged, and "record"
// is a mistake of the peer. In a job with a key "code" is a handshake or an express frame that nobody
// with the key has made, "tag" a frame that does not come from the peer as it was sent, and "replay"
// one that has come before. Many of these three are an attack, or a bad network.
package stats

// Stats are the counters of a rank.
type Stats struct {
	Link
	Messages
	OneSided
	Faults map[string]uint64 // frames and records that were dropped, by what was wrong; see the head of this page
	Device Device            // what carries the frames
}

// Link counts frames, bundles and express frames between ranks; see the head of this page.
type Link struct {
	Frames     uint64 // received, of any kind
	Unknown    uint64 // frames of unknown sessions
	Handshakes uint64 // handshake frames that were refused
	Refuted    uint64 // of them, hellos that are not what their rank has published or, in a job with a key, not from it
	Unverified uint64 // hellos that came before it was known what their rank has published
	Resets     uint64 // peers that declared a session dead

	Bundles        uint64 // received and taken in
	Duplicates     uint64 // bundles received again
	OutOfSpan      uint64 // bundles too far ahead of those that had come
	Parked         uint64 // bundles that had to wait for order or room
	ParkingFull    uint64 // bundles left to be sent again for want of room
	BadAcks        uint64 // acknowledgements of what was never sent
	Sent           uint64 // bundles sent for the first time
	Joined         uint64 // of them, by the way of joined frames
	Resent         uint64 // bundles sent again, for what Lost, Probes and Timeouts count
	Acks           uint64 // frames sent only to acknowledge
	Lost           uint64 // bundles found lost by acknowledgements of later ones; near 0 with one bundle on the way at a time
	Probes         uint64 // bundles sent again early, in case the last ones were lost
	Timeouts       uint64 // retransmission timeouts
	SlotsExhausted uint64 // times that there was no room for another frame; see userspace.Limits
	PeersFailed    uint64 // sessions that ended because the peer was silent, or is lost otherwise

	Exchanges   uint64 // bundles sent as express frames
	Repeated    uint64 // express frames sent again
	Executed    uint64 // exchanges that the peer executed at once
	Taken       uint64 // exchanges that the peer took as bundles
	LateAnswers uint64 // answers to exchanges that were over
	AnswersLost uint64 // times that exchanges with a peer were given up because its answers got lost

	ExpressTaken    uint64 // express frames of peers that became bundles
	ExpressAnswered uint64 // express frames of peers that user space answered
	ExpressDropped  uint64 // express frames of peers left to be sent again
}

// Messages counts messages between two ranks. It does not count messages that were received
// without trouble.
type Messages struct {
	Unexpected uint64 // messages that came before a receive was there
	Dropped    uint64 // messages that nobody can receive: their communicator was freed here
	Overdrawn  uint64 // messages refused because their sender had no credit for them
}

// OneSided counts operations on windows. It does not count operations that went well.
type OneSided struct {
	BadAnswers   uint64 // answers to no operation of ours
	Deferred     uint64 // calls kept back until a lock was granted or a target had posted
	Refused      uint64 // requests that this rank refused
	Outsiders    uint64 // requests of ranks that are not in the group of the window or communicator
	Denied       uint64 // requests that the window's owner gives their origin no right to; those under a refused lock too
	Types        uint64 // datatypes that peers defined here
	TypesRefused uint64 // pieces of definitions that this rank refused
	Conflicts    uint64 // conflicting accesses found in checking mode
}

// Device counts what a rank's network device did and what went wrong.
type Device struct {
	RxFrames, RxBytes uint64            // malformed ones too; bytes as the socket counts them: whole frames with AF_XDP, payload with UDP
	TxFrames, TxBytes uint64            // bytes as for RxBytes
	RxDropped         uint64            // frames lost before the library saw them, for want of room
	RxMalformed       uint64            // frames that reached user space and were not well formed
	TxDropped         uint64            // frames that the kernel accepted and did not send
	TxErrors          uint64            // failed transmit calls
	Sleeps, Wakeups   uint64            // times that the library slept until a frame came, and that a call of the program ended that sleep
	Unreached         uint64            // windows that the XDP program should reach and does not; the log has the first one's reason
	FilterTaken       uint64            // times that the XDP program was found taken from the interface; the log says by what
	Filter            map[string]uint64 // the XDP program's counters by name, as loader.Program.Counters has them; nil without XDP
}
