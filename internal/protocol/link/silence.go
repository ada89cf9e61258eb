package link

import "fmt"

// silence says, of a peer that has been silent for too long, where it was looked for and
// whether it was ever heard: one that never was may not run, or a firewall may stop it.
func (l *Link) silence(s *Session) error {
	who := "it"
	if l.cfg.Address != nil {
		who = l.cfg.Address(s.path)
	}
	if s.state == dialing {
		return fmt.Errorf("%w: no frame has ever come from %s; see that the rank runs, and that no firewall on the way stops UDP", errSilent, who)
	}
	const tenths = 100 * millisecond
	ago := (l.Now - s.heard) / tenths
	return fmt.Errorf("%w: the last frame from %s came %d.%d s ago", errSilent, who, ago/10, ago%10)
}
