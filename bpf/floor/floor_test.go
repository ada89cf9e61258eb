package floor

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// Verdicts, as the kernel numbers them.
const pass, transmit = 2, 3

const (
	wordAt  = 14 + 20 + 8 + 16
	trailer = 0xaa
)

// request is a frame that asks to add n.
func request(n uint64) []byte {
	frame := make([]byte, wordAt, 80)
	for i := range frame {
		frame[i] = byte(i)
	}
	frame[12], frame[13] = 0x88, 0xb5
	return append(binary.LittleEndian.AppendUint64(frame, n), trailer)
}

func run(t *testing.T, target *Target, frame []byte) (verdict uint32, out []byte) {
	t.Helper()
	o := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
	verdict, err := target.Program().Run(o)
	if err != nil {
		t.Fatal(err)
	}
	return verdict, o.DataOut
}

func TestProgramAddsAndAnswers(t *testing.T) {
	testenv.NeedsRoot(t)
	target, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
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
		verdict, out := run(t, target, frame)
		if verdict != transmit || !bytes.Equal(out, want) {
			t.Errorf("add %d: verdict %d, answer\n%x, want\n%x", n, verdict, out, want)
		}
		sum += n
	}
	if got, err := target.Word(); err != nil || got != sum {
		t.Errorf("the word is %d, %v; want %d", got, err, sum)
	}
}

func TestProgramPassesOtherFrames(t *testing.T) {
	testenv.NeedsRoot(t)
	target, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	other := request(1)
	other[12] = 8
	for _, frame := range [][]byte{other, request(1)[:wordAt+7]} {
		if verdict, out := run(t, target, frame); verdict != pass || !bytes.Equal(out, frame) {
			t.Errorf("%x: verdict %d, frame %x", frame, verdict, out)
		}
	}
	if got, err := target.Word(); err != nil || got != 0 {
		t.Errorf("the word is %d, %v", got, err)
	}
}
