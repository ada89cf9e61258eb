package link

import (
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// TestKeysAreWipedWithTheirSessions ends a session and the wait for the first frame of one, for each of which a
// frame comes afterwards.
func TestKeysAreWipedWithTheirSessions(t *testing.T) {
	for name, end := range map[string]func(*Link, *Session, *answered){
		"another life of the peer": func(l *Link, s *Session, a *answered) { l.makeWay(s); l.withdraw(a) },
		"the end of the link":      func(l *Link, _ *Session, _ *answered) { l.ForgetKeys() },
	} {
		chains, suite := secure.Chains{Send: [32]byte{1}, Receive: [32]byte{1}}, secure.Suite{Level: secure.Seal}
		keyed := func() (*secure.Guard, *secure.ExpressKeys) {
			codes := chains.Express()
			return secure.NewGuard(&chains, suite), &codes
		}
		s, a := &Session{identity: identity{localID: 1}}, &answered{localID: 2, place: None}
		s.guard, s.codes = keyed()
		a.guard, a.codes = keyed()
		guards, codes := []*secure.Guard{s.guard, a.guard}, []*secure.ExpressKeys{s.codes, a.codes}
		end(&Link{byID: map[uint64]*Session{1: s}, waiting: map[uint64]*answered{2: a}}, s, a)
		for i := range guards {
			frame := make([]byte, 100)
			if secure.NewGuard(&chains, suite).Seal(frame); codes[i] == nil || *codes[i] != (secure.ExpressKeys{}) {
				t.Errorf("%s: codes of frames have their keys still", name)
			}
			if _, v := guards[i].Open(frame, 0); v == secure.Genuine {
				t.Errorf("%s: frames are believed still", name)
			}
		}
	}
}
