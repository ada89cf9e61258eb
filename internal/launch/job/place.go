package job

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// peerAddress is what a rank publishes about itself.
type peerAddress struct {
	addr        netip.AddrPort
	incarnation uint64
}

// A rank publishes the version of the frames that it speaks, in the same form in all
// versions, and then its address, in a form that may change with the version. Older builds
// published the address alone. They take this text for no address, and their error quotes it.
const (
	placeVersion = "version "
	placeAddress = "of the frames at "
)

// PlaceOf returns what a rank at an address publishes.
func PlaceOf(addr netip.AddrPort) []byte {
	return fmt.Appendf(nil, placeVersion+"%d "+placeAddress+"%v", wire.Version, addr)
}

// parsePeer reads, as rank self, what another rank has published. Its error is a
// buildError; then its result has no address.
func parsePeer(rank, self int, incarnation uint64, place []byte) (peerAddress, error) {
	p := peerAddress{incarnation: incarnation}
	if _, err := netip.ParseAddrPort(string(place)); err == nil {
		return p, otherVersion(rank, self, "an older version")
	}
	text, versioned := strings.CutPrefix(string(place), placeVersion)
	number, text, _ := strings.Cut(text, " ")
	version, err := strconv.ParseUint(number, 10, 8) // as long as in a frame
	versioned = versioned && err == nil
	if versioned && version != wire.Version {
		return p, otherVersion(rank, self, placeVersion+number)
	}
	text, known := strings.CutPrefix(text, placeAddress)
	addr, err := netip.ParseAddrPort(text)
	if !versioned || !known || err != nil {
		return p, buildError(fmt.Sprintf("rank %d has published %q, which is no place of a rank: %s", rank, place, oneBuild))
	}
	p.addr = addr
	return p, nil
}

// buildError is that a rank is of another build, and this one cannot speak with it.
type buildError string

const oneBuild = "start all ranks of a job from one build"

func otherVersion(rank, self int, theirs string) buildError {
	return buildError(fmt.Sprintf("rank %d speaks %s of the frames and rank %d version %d: %s", rank, theirs, self, wire.Version, oneBuild))
}

func (e buildError) Error() string { return string(e) }

// Is reports whether target is the class that tells this from the death of a process.
func (e buildError) Is(target error) bool { return target == mpierr.Unsupported }

// take takes in what a rank has published. One of another build has failed for this rank, at
// once, and the log tells so once. Its error is a buildError.
func (j *Job) take(rank int, incarnation uint64, place []byte) (peerAddress, error) {
	peer, err := parsePeer(rank, j.rank, incarnation, place)
	news := j.directory.learn(rank, peer)
	if err == nil {
		return peer, nil
	}
	if news {
		j.log.Warn("a rank of another build takes no part in the job with this one", "rank", rank, "error", err)
	}
	e := j.poller.Lock()
	defer j.poller.Unlock()
	if !j.poller.Closed() {
		e.Dial(rank, engine.NoPath, incarnation) // so that a later process of the rank is let in
		e.Unreachable(rank, err)
		j.poller.Tick()
	}
	return peer, err
}
