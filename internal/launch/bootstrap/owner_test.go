package bootstrap

import (
	"encoding/binary"
	"strings"
	"testing"
)

// TestRanksSpeakForThemselves has a client send all that may look like the word of another
// rank, of another incarnation, or of the launcher. Each time either its connection ends, or
// the words are its own place and no more.
func TestRanksSpeakForThemselves(t *testing.T) {
	s := serveAt(t, "127.0.0.1:0")
	ctx := testContext(t)
	other, err := join(t, s, 0, 12)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Publish(ctx, []byte("here")); err != nil {
		t.Fatal(err)
	}
	later := binary.LittleEndian.AppendUint64(nil, 1<<63)
	ended := append(binary.LittleEndian.AppendUint32(nil, 0), "it was killed"...)
	for _, forged := range []struct {
		name  string
		m     message
		place bool // it is a place like any other
	}{
		{"place of another", message{kind: kindPublish, body: append([]byte{0, 0, 0, 0}, "there"...)}, true},
		{"place in a later life", message{kind: kindPublish, body: append(later, "there"...)}, true},
		{"place of another, as rank", message{kind: kindPublish, rank: 0, number: 0, body: []byte("there")}, true},
		{"end of another", message{kind: kindEnded, body: ended}, false},
		{"end of itself", message{kind: kindEnded, body: append([]byte{1}, ended[1:]...)}, false},
		{"end, asked for with words", message{kind: kindEnd, body: ended}, false},
		{"left in a later life", message{kind: kindLeft, body: later}, false},
		{"abort", message{kind: kindAborted, body: []byte("why")}, false},
	} {
		t.Run(forged.name, func(t *testing.T) {
			m, err := join(t, s, 1, 12)
			if err != nil {
				t.Fatal(err)
			}
			conn := m.rendezvous.(*Client).way()
			if _, err := conn.Write(appendMessage(nil, forged.m)); err != nil {
				t.Fatal(err)
			}
			p, found, err := m.FindNow(ctx, 1)
			if !forged.place {
				if err != nil || m.rendezvous.(*Client).way() == conn {
					t.Errorf("the connection was left open, or is not open again: %v", err)
				}
			} else if err != nil || !found || p.Incarnation != m.Incarnation || string(p.Place) != string(forged.m.body) {
				t.Errorf("the rank is %q in life %d, %t, %v; want %q in life %d", p.Place, p.Incarnation, found, err, forged.m.body, m.Incarnation)
			}
			if p, err := other.Find(ctx, 0); err != nil || p.Incarnation != other.Incarnation || string(p.Place) != "here" {
				t.Errorf("the other rank is %q in life %d, %v", p.Place, p.Incarnation, err)
			}
			s.board.mu.Lock()
			for _, e := range s.board.news {
				if e.Rank != 1 || e.Incarnation == 0 || strings.Contains(e.Reason, "killed") {
					t.Errorf("it is told that rank %d has ended, in life %d: %v", e.Rank, e.Incarnation, e)
				}
			}
			s.board.mu.Unlock()
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
