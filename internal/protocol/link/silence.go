package link

import (
	"fmt"

	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// silence says, of a peer that has been silent for too long, where it was looked for and
// whether it was ever heard: one that never was may not run, or a firewall may stop it. Trouble of this rank
// meanwhile may be the reason as well.
func (l *Link) silence(s *Session) error {
	who := l.whereabouts(s)
	if s.state == dialing && s.liveness.HeardSince() {
		return fmt.Errorf("%w: %s was working at the handshake, which began %s ago, when last heard, %s ago", errSilent, who, seconds(s.liveness.Owing(l.Now)), seconds(s.liveness.Silence(l.Now)))
	}
	if s.state == dialing {
		return l.withTrouble(fmt.Errorf("%w: no frame has ever come from %s; see that the rank runs, and that no firewall on the way stops UDP", errSilent, who), s.liveness.Owing(l.Now))
	}
	return l.withTrouble(fmt.Errorf("%w: the last frame from %s came %s ago", errSilent, who, seconds(s.liveness.Silence(l.Now))), s.liveness.Silence(l.Now))
}

// withTrouble adds to an error what may have kept frames from this rank for some of that time, in nanoseconds.
func (l *Link) withTrouble(err error, silent int64) error {
	if l.cfg.Trouble == nil {
		return err
	}
	if trouble := l.cfg.Trouble(silent); trouble != "" {
		return fmt.Errorf("%w; %s", err, trouble)
	}
	return err
}

// longFrame is a payload in bytes that each path is likely to carry, since it is longer than any
// frame without data, and shorter than the least MTU of a link of IPv4 in use.
const longFrame = 548

// unheard says, of a peer that lives and lacks what it was sent, which frames do not get there. Frames to a
// veth may get lost after its XDP program was taken, which the peer's log says, and this rank does not learn.
func (l *Link) unheard(s *Session) error {
	err := fmt.Errorf("%w within the limit of %s, though a frame from it came %s ago: UDP payloads of %d bytes to %s get lost",
		errUnheard, seconds(l.cfg.DeadAfter), seconds(s.liveness.Silence(l.Now)), s.overdue, l.whereabouts(s))
	err = fmt.Errorf("%w; unless the log of the peer says that its XDP program was taken", err)
	if s.overdue <= longFrame {
		return fmt.Errorf("%w, see that no firewall on the way stops UDP in this direction", err)
	}
	return fmt.Errorf("%w, the MTU of a link on the way is too small for them if shorter ones arrive: `ping -M do -s %d` to the peer's host shows it, and frames need an MTU of %d bytes",
		err, s.overdue, wire.MinPayload+headers)
}

// headers are the bytes of the headers of IPv6 and UDP.
const headers = 48

// whereabouts returns where the peer is looked for.
func (l *Link) whereabouts(s *Session) string {
	if l.cfg.Address == nil {
		return "it"
	}
	return l.cfg.Address(s.path)
}

// seconds writes a time in nanoseconds.
func seconds(t int64) string {
	const tenths = 100 * millisecond
	return fmt.Sprintf("%d.%d s", t/tenths/10, t/tenths%10)
}
