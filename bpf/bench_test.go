package bpf_test

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/twin"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// BenchmarkClassify has the kernel run the program on a frame of a known session,
// and reports the time of one run.
func BenchmarkClassify(b *testing.B) {
	c := load(b)
	frame := packet{payload: message(wire.KindData, session)}.bytes()
	const runs = 1_000_000
	for b.Loop() {
		verdict, each, err := c.XdprmaClassify.Benchmark(frame, runs, nil)
		if err != nil || verdict != 4 {
			b.Fatalf("verdict %d, %v", verdict, err)
		}
		b.ReportMetric(float64(each.Nanoseconds()), "ns/frame")
	}
}

// BenchmarkExchange has the kernel run the program on a request that is the next of its
// session each time, and reports the time of one run, answer included.
func BenchmarkExchange(b *testing.B) { benchmarkExchange(b, loadTier(b)) }

// BenchmarkExchangeWithoutPerfmon does it with the program for a process without CAP_PERFMON.
func BenchmarkExchangeWithoutPerfmon(b *testing.B) { benchmarkExchange(b, loadForm(b, false)) }

// BenchmarkExchangeShared does it with the programs for several ranks.
func BenchmarkExchangeShared(b *testing.B) {
	b.Run("xdp", func(b *testing.B) { benchmarkExchange(b, loadShared(b, bpf.LoadShared)) })
	b.Run("tcx", func(b *testing.B) { benchmarkExchange(b, loadShared(b, bpf.LoadSharedTCX)) })
}

// ends maps the positions of the ring of answers: up to where it was read, and written.
func (p *tier) ends(b *testing.B) (consumed, produced []byte) {
	page := os.Getpagesize()
	consumed, err := unix.Mmap(p.Answers.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err == nil {
		b.Cleanup(func() { unix.Munmap(consumed) })
		produced, err = unix.Mmap(p.Answers.FD(), int64(page), page, unix.PROT_READ, unix.MAP_SHARED)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { unix.Munmap(produced) })
	return consumed, produced
}

func benchmarkExchange(b *testing.B, p *tier) {
	part := make([]byte, wire.PartLen)
	wire.PutPart(part, 0, 8)
	wide := make([]byte, wire.PartLen)
	wire.PutPart(wide, 0, 1024)
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	sum := wire.Record{Window: wideWindow, Basic: uint8(datatype.BasicInt64), Op: uint8(datatype.Sum)}
	op := func(c wire.Code) wire.Record {
		r := sum
		r.Code = c
		return r
	}
	data := packet{payload: message(wire.KindData, session)}.bytes()
	b.Run("data", func(b *testing.B) { // what one run costs that executes nothing
		var spent time.Duration
		for b.Loop() {
			_, each, err := p.XdprmaClassify.Benchmark(data, 1, nil)
			if err != nil {
				b.Fatal(err)
			}
			spent += each
		}
		b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "ns/run")
	})
	// The program looks at a request for user space as far as its checksum or code, and leaves it
	// as it is, so that the kernel can repeat the run.
	for i, name := range []string{"looked-at", "looked-at-with-code"} {
		b.Run(name, func(b *testing.B) {
			h := express.Header{Session: sessionOf(i), Exchange: 1, Try: 1, Flags: wire.FlagUser}
			frame := packet{payload: signed(keyOf(i), h, record{op(wire.CodePut), one})}.bytes()
			for b.Loop() {
				verdict, each, err := p.XdprmaClassify.Benchmark(frame, 100_000, nil)
				if err != nil || verdict != p.verdicts[twin.ToUser] {
					b.Fatalf("verdict %d, %v", verdict, err)
				}
				b.ReportMetric(float64(each.Nanoseconds()), "ns/run")
			}
		})
	}
	for n, size := range []int{0, 8, 8, 1024} { // of an answer's results
		i := n / 2 % 2
		b.Run([]string{"answer-0", "answer-8", "answer-8-with-code", "answer-1024-with-code"}[n], func(b *testing.B) {
			payload := make([]byte, wire.HeaderLen+size)
			express.Request(payload, express.Header{Session: sessionOf(i), Exchange: 1, Try: 1, Flags: wire.FlagResponse}, answeredKeyOf(i))
			frame := packet{payload: payload}.bytes()
			consumed, produced := p.ends(b)
			var spent time.Duration
			const runs = 1
			for b.Loop() {
				verdict, each, err := p.XdprmaClassify.Benchmark(frame, runs, nil)
				if err != nil || verdict != p.verdicts[twin.Drop] {
					b.Fatalf("verdict %d, %v", verdict, err)
				}
				spent += each
				le.PutUint64(consumed, le.Uint64(produced))
			}
			b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "ns/run")
		})
	}
	for _, tt := range []struct {
		name string
		list []record
	}{
		{"put-8", []record{{op(wire.CodePut), one}}},
		{"put-1128", []record{{op(wire.CodePut), make([]byte, 1128)}}},
		{"get-8", []record{{op(wire.CodeGet), part}}},
		{"get-1024", []record{{op(wire.CodeGet), wide}}},
		{"fetch_and_op", []record{{op(wire.CodeGetAccumulate), append(part[:8:8], one...)}}},
		{"compare_and_swap", []record{{op(wire.CodeCompareSwap), append(one[:8:8], one...)}}},
		{"locked-fetch_and_op", []record{
			{wire.Record{Code: wire.CodeLock, Window: wideWindow}, nil},
			{op(wire.CodeGetAccumulate), append(part[:8:8], one...)},
			{wire.Record{Code: wire.CodeUnlock, Window: wideWindow}, nil},
		}},
	} {
		for n, kind := range []string{"", "-with-code", "-over-IPv6"} {
			i := n % 2 // the slots without keys, and with
			b.Run(tt.name+kind, func(b *testing.B) {
				v6 := n == 2
				p.at(b, v6)
				frame := packet{v6: v6, payload: signed(keyOf(i), express.Header{Session: sessionOf(i), Exchange: 1, Try: 1}, tt.list...)}.bytes()
				var spent time.Duration
				for b.Loop() {
					p.tables.OpenSlot(i, express.Slot{Session: sessionOf(i), PeerSession: peerSession, Rank: memberRank, Keys: keysOf(i)})
					verdict, each, err := p.XdprmaClassify.Benchmark(frame, 1, nil)
					if err != nil || verdict != p.verdicts[twin.Answer] {
						b.Fatalf("verdict %d, %v", verdict, err)
					}
					spent += each
				}
				b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "ns/run")
			})
		}
	}
}
