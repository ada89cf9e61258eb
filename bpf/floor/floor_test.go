package floor

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// Verdicts, as the kernel numbers them.
const drop, pass, transmit = 1, 2, 3

const (
	numberAt = 14 + 20 + 8 + 8
	wordAt   = numberAt + 8
	trailer  = 0xaa
)

// request is a frame that asks to add n, or says that n was there.
func request(n uint64) []byte {
	frame := make([]byte, wordAt, 80)
	for i := range frame {
		frame[i] = byte(i)
	}
	frame[12], frame[13] = 0x88, 0xb5
	return append(binary.LittleEndian.AppendUint64(frame, n), trailer)
}

func load(t *testing.T) *Programs {
	t.Helper()
	testenv.NeedsRoot(t)
	p, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func run(t *testing.T, program *ebpf.Program, frame []byte) (verdict uint32, out []byte) {
	t.Helper()
	o := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
	verdict, err := program.Run(o)
	if err != nil {
		t.Fatal(err)
	}
	return verdict, o.DataOut
}

func TestProgramAddsAndAnswers(t *testing.T) {
	p := load(t)
	sum := uint64(0)
	for _, n := range []uint64{1, 5, 1<<63 + 7} {
		frame := request(n)
		want := bytes.Clone(frame)
		copy(want, frame[6:12])
		copy(want[6:], frame[:6])
		copy(want[26:], frame[30:34])
		copy(want[30:], frame[26:30])
		copy(want[34:], frame[36:38])
		copy(want[36:], frame[34:36])
		binary.LittleEndian.PutUint64(want[wordAt:], sum)
		verdict, out := run(t, p.FetchAdd(), frame)
		if verdict != transmit || !bytes.Equal(out, want) {
			t.Errorf("add %d: verdict %d, answer\n%x, want\n%x", n, verdict, out, want)
		}
		sum += n
	}
	if got, err := p.Word(); err != nil || got != sum {
		t.Errorf("the word is %d, %v; want %d", got, err, sum)
	}
}

func TestProgramPassesOtherFrames(t *testing.T) {
	p := load(t)
	other := request(1)
	other[12] = 8
	for _, program := range []*ebpf.Program{p.FetchAdd(), p.KeepAnswer()} {
		for _, frame := range [][]byte{other, request(1)[:wordAt+7]} {
			if verdict, out := run(t, program, frame); verdict != pass || !bytes.Equal(out, frame) {
				t.Errorf("%v, %x: verdict %d, frame %x", program, frame, verdict, out)
			}
		}
	}
	if got, err := p.Word(); err != nil || got != 0 {
		t.Errorf("the word is %d, %v", got, err)
	}
}

// Only the answer that is awaited is written, and that once.
func TestProgramKeepsTheAwaitedAnswer(t *testing.T) {
	p := load(t)
	a := p.Answer()
	for _, step := range []struct{ await, arrives, word, number, keeps uint64 }{
		{0, 7, 1, 0, 0},
		{1<<40 + 1, 1 << 40, 2, 0, 0},
		{0, 1<<40 + 1, 3, 1<<40 + 1, 3},
		{0, 1<<40 + 1, 4, 1<<40 + 1, 3},
		{9, 9, 1<<63 + 5, 9, 1<<63 + 5},
	} {
		if step.await != 0 {
			a.Await(step.await)
		}
		frame := request(step.word)
		binary.LittleEndian.PutUint64(frame[numberAt:], step.arrives)
		verdict, _ := run(t, p.KeepAnswer(), frame)
		if number, word := a.Take(); verdict != drop || number != step.number || word != step.keeps {
			t.Errorf("%+v: verdict %d, number %d, word %d", step, verdict, number, word)
		}
	}
}
