package datatype

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/xdprma/xdprma/mpierr"
)

// encodedList returns the encoding of a list with as many items as fit.
func encodedList(item func(b []byte, i int) []byte, delta func(i int) int64) []byte {
	var items []byte
	n := 0
	for {
		next := items
		if n > 0 {
			next = binary.AppendVarint(next, delta(n))
		}
		if next = item(next, n); len(next) > MaxEncoded-8 {
			break
		}
		items = next
		n++
	}
	return append(binary.AppendUvarint([]byte{wireVersion, wireData, 0, wireList}, uint64(n-2)), items...)
}

// costly returns encodings of lists that cost the most to decode, by what makes them so.
func costly() map[string][]byte {
	up := func(i int) int64 { return 5000 + int64(i%7) }
	mixed := func(i int) byte { return []byte{byte(BasicInt8), byte(BasicByte)}[i%2] }
	run := func(b []byte, i, elements int) []byte {
		return append(binary.AppendUvarint(append(b, wireRun, mixed(i)), uint64(elements)), 0)
	}
	blocks := func(b []byte, i, elements, stride int) []byte {
		b = append(binary.AppendUvarint(append(b, wireRun, mixed(i)), uint64(elements)), 1)
		return binary.AppendVarint(b, int64(stride))
	}
	loop := func(b []byte, stride int64) []byte { return binary.AppendVarint(append(b, wireLoop, 0), stride) }
	return map[string][]byte{
		"runs":             encodedList(func(b []byte, i int) []byte { return run(b, i, 1) }, up),
		"different runs":   encodedList(func(b []byte, i int) []byte { return run(b, i, 1+i%4000) }, up),
		"backwards":        encodedList(func(b []byte, i int) []byte { return run(b, i, 1) }, func(i int) int64 { return -up(i) }),
		"blocks":           encodedList(func(b []byte, i int) []byte { return blocks(b, i, 1, 60) }, up),
		"different blocks": encodedList(func(b []byte, i int) []byte { return blocks(b, i, 1+i%100, 100+i%900) }, up),
		"loops":            encodedList(func(b []byte, i int) []byte { return blocks(loop(b, 60), i, 1, 20) }, up),
		"loops of loops":   encodedList(func(b []byte, i int) []byte { return blocks(loop(loop(b, 60), 30), i, 1, 14) }, up),
		"long runs":        encodedList(func(b []byte, i int) []byte { return run(b, i, 1<<40-1-i) }, func(int) int64 { return 1 << 41 }),
		"one run many times": encodedList(func(b []byte, i int) []byte {
			if i == 0 {
				return run(b, i, 1)
			}
			return append(b, wireSame)
		}, up),
		"loops of lists": encodedList(func(b []byte, i int) []byte {
			b = run(append(loop(b, 60), wireList, 0), i, 1)
			return run(append(b, 16), i+1, 1)
		}, up),
		"lists": encodedList(func(b []byte, i int) []byte {
			b = run(append(b, wireList, 7), i, 1)
			for k := range 8 {
				b = run(append(b, byte(16+2*k)), i+k+1, 1)
			}
			return b
		}, up),
	}
}

// TestDecodeTakesMemoryInProportion decodes what costs the most, and counts the bytes that
// are allocated. A peer sends such encodings as often as it likes.
func TestDecodeTakesMemoryInProportion(t *testing.T) {
	const perByte, fixed = 80, 16 << 10
	for name, b := range costly() {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		typ, err := Decode(b)
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > uint64(perByte*len(b)+fixed) {
			t.Errorf("%s: %d bytes, %d for each of %d encoded ones", name, got, got/uint64(len(b)), len(b))
		}
		checkDecoded(t, typ, 0)
	}
}

// TestDecodeRefusesWhatMultiplies has a short list in a list, many times over. It would be
// expanded each time, and Encode never sends it.
func TestDecodeRefusesWhatMultiplies(t *testing.T) {
	b := encodedList(func(b []byte, i int) []byte {
		if i > 0 {
			return append(b, wireSame)
		}
		b = append(b, wireList, 6, wireRun, 1, 1, 0)
		for k := range 7 {
			b = append(b, byte(40+2*k), wireRun, byte(BasicByte), 1, 0)
		}
		return b
	}, func(i int) int64 { return 1000 + int64(i%3) })
	if typ, err := Decode(b); mpierr.ClassOf(err) != mpierr.Type {
		t.Errorf("%v, %v", typ, err)
	}
}

func BenchmarkDecodeCostly(b *testing.B) {
	for name, encoding := range costly() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(encoding)))
			for b.Loop() {
				if _, err := Decode(encoding); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
