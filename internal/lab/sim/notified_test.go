package sim

import (
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/program"
	"github.com/xdprma/xdprma/internal/lab/twin"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// notifications calls f for each record of a frame that notifies, in a bundle or an exchange,
// and returns the frame with what f changes.
func notifications(b []byte, f func(record []byte)) []byte {
	tell := func(_ wire.Code, record []byte) {
		var r wire.Record
		if wire.NextRecord(record, &r); r.Notifies() {
			f(record)
		}
	}
	h, _, fault := express.Decode(b, nil)
	if fault != wire.OK {
		return eachRecord(b, tell)
	}
	if h.Flags == wire.FlagResponse {
		return b
	}
	c := append([]byte(nil), b...)
	var r wire.Record
	for at, n := wire.HeaderLen, 0; n < int(h.Records); n++ {
		size := wire.NextRecord(c[at:], &r)
		tell(r.Code, c[at:at+size])
		at += size
	}
	express.Request(c, h, nil)
	return c
}

// TestOraclesBiteOnNotifications breaks what is promised of notified operations, as
// TestOraclesBite does.
func TestOraclesBiteOnNotifications(t *testing.T) {
	t.Parallel()
	const seeds = 400
	each := func(f func(record []byte)) func(int, int, []byte) [][]byte {
		return func(_, _ int, b []byte) [][]byte { return [][]byte{notifications(b, f)} }
	}
	tests := []struct {
		name     string
		notice   string // in what the oracle says
		programs string // in what is said of generated programs; "": they do not notice
		config   Config
	}{
		{"notifications that are dropped", "after a flush", "programs still run", Config{Tamper: each(func(record []byte) {
			if record[3] &^= wire.FlagNotify; wire.Code(record[0]) == wire.CodeNotify {
				record[0], record[3] = byte(wire.CodePing), 0
			}
		})}},
		{"notifications of what has not acted", "slots are whole", "bytes are wrong", Config{Tamper: each(func(record []byte) {
			record[0], record[3] = byte(wire.CodeNotify), 0
		})}},
		{"notifications that are not after all", "series", "bytes are wrong", Config{Tamper: func(_, _ int, b []byte) [][]byte {
			if notifies, others := false, false; isRequest(b) {
				eachRecord(b, func(code wire.Code, record []byte) {
					var r wire.Record
					wire.NextRecord(record, &r)
					notifies = notifies || r.Notifies()
					others = others || code > wire.CodeCompareSwap && code != wire.CodeNotify
				})
				if notifies && !others { // which the fence may be for
					b = resign(b, func(h *wire.Header) { h.Flags &^= wire.FlagAfterAll })
				}
			}
			return [][]byte{b}
		}}},
		{"notifications that count twice", "were issued", "counter", Config{Tamper: func(_, _ int, b []byte) [][]byte {
			var more []byte
			if isRequest(b) {
				notifications(b, func(record []byte) {
					more = append(more[:0], record[:wire.RecordLen]...)
					more[0], more[3], more[4], more[5], more[6], more[7] = byte(wire.CodeNotify), 0, 0, 0, 0, 0
				})
			}
			if len(more) > 0 && len(b)+len(more) <= wire.MinPayload {
				b = resignDamaged(append(append([]byte(nil), b...), more...))
			}
			return [][]byte{b}
		}}},
		{"notifications without order", "slots are whole", "", Config{unordered: true}},
		{"nobody knows who sleeps", "sleeps", "sleeps", Config{deaf: true}},
	}
	for _, tt := range tests {
		notices := func(t *testing.T, notice string, config func(c *Config)) {
			for seed := range uint64(seeds) {
				c := tt.config
				c.Seed = seed
				config(&c)
				if r := Run(c); r.Err != nil && strings.Contains(r.Err.Error(), notice) {
					t.Logf("seed %d: %.160s", seed, r.Err)
					return
				}
			}
			t.Errorf("%d seeds noticed nothing", seeds)
		}
		t.Run(tt.name, func(t *testing.T) {
			notices(t, tt.notice, func(c *Config) { c.shape = func(p *plan, _ int64) { p.notifies = true } })
		})
		if tt.programs == "" {
			continue
		}
		t.Run(tt.name+", generated programs", func(t *testing.T) {
			notices(t, tt.programs, func(c *Config) { c.Program = program.Generate(c.Seed, program.Ranks(c.Seed)) })
		})
	}
}

// TestNotificationsAreHandedOn sees that seeds have programs count while somebody sleeps.
func TestNotificationsAreHandedOn(t *testing.T) {
	awaited := 0
	for seed := uint64(0); seed < 200 && awaited == 0; seed++ {
		r := Run(Config{Seed: seed, shape: func(p *plan, _ int64) { p.notifies, p.hosts, p.tier = true, 0, tier{windows: 1<<64 - 1, serves: 1} }})
		awaited += r.reasons[twin.Awaited]
	}
	if awaited == 0 {
		t.Error("no program has handed a notification on")
	}
}
