package bpf_test

import (
	"testing"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

const (
	badCode  = bpf.ClassifierCounterCOUNTER_EXPRESS_BAD_CODE
	executed = bpf.ClassifierCounterCOUNTER_EXPRESS_EXECUTED
)

// The program executes requests with the code of their session, and drops others, which change
// nothing. Only those of the session's path it looks at; a request for user space has to
// prove itself too.
func TestCodesOfRequests(t *testing.T) {
	p := loadTier(t)
	keys := &express.Keys{Requests: siphash.Key{1}, Answers: siphash.Key{2}}
	put := record{wire.Record{Code: wire.CodePut, Window: wideWindow}, []byte("origin's")}
	for _, tt := range []struct {
		name string
		slot *express.Keys
		key  *siphash.Key
		last func(b []byte)
		want bpf.ClassifierCounter
	}{
		{"right", keys, &keys.Requests, nil, executed},
		{"none, of a session without", nil, nil, nil, executed},
		{"none", keys, nil, nil, badCode},
		{"zero", keys, &keys.Requests, func(b []byte) { clear(b[40:48]) }, badCode},
		{"of an answer", keys, &keys.Answers, nil, badCode},
		{"of another session", keys, &siphash.Key{3}, nil, badCode},
		{"flipped first bit", keys, &keys.Requests, func(b []byte) { b[40] ^= 1 }, badCode},
		{"flipped last bit", keys, &keys.Requests, func(b []byte) { b[47] ^= 1 << 7 }, badCode},
		{"of other data", keys, &keys.Requests, func(b []byte) { b[len(b)-1] ^= 1 }, badCode},
		{"with a checksum", keys, &keys.Requests, func(b []byte) { b[16] = 1 }, badCode},
		{"for user space", keys, &siphash.Key{3}, func(b []byte) { b[6] = wire.FlagUser; express.Sign(b, &siphash.Key{3}) }, badCode},
		{"of a session without", nil, &keys.Requests, nil, badForm},
	} {
		p.tables.OpenSlot(0, express.Slot{Session: session, PeerSession: peerSession, Rank: memberRank, Keys: tt.slot})
		clear(p.chunks[0][wideBase:][:8])
		b := signed(tt.key, express.Header{Session: session, Exchange: 1, Try: 1}, put)
		if tt.last != nil {
			tt.last(b)
		}
		before := p.counted(t, tt.want)
		verdict, out := p.exec(t, packet{payload: b}.bytes())
		if p.counted(t, tt.want) != before+1 {
			t.Errorf("%s: verdict %d, and counter %d did not advance", tt.name, verdict, tt.want)
		}
		done := p.chunks[0][wideBase] != 0
		if done != (tt.want == executed) || !done && p.tables.Place(0).Word != express.WordOf(0, express.StateDone) {
			t.Errorf("%s: executed: %v", tt.name, done)
		}
		if done {
			var key *siphash.Key
			if tt.slot != nil {
				key = &tt.slot.Answers
			}
			if _, _, fault := express.Decode(packet{}.parts(out).payload, key); fault != wire.OK {
				t.Errorf("%s: the answer has the fault %v", tt.name, fault)
			}
		}
	}
}
