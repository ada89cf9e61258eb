package secure

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
)

// guards returns both ends of a session.
func guards() (a, b *Guard) {
	c := Chains{Send: [32]byte{1}, Receive: [32]byte{2}}
	return NewGuard(c), NewGuard(Chains{Send: c.Receive, Receive: c.Send})
}

func sealed(g *Guard, payload string) []byte {
	frame := append([]byte(payload), make([]byte, TrailerLen)...)
	g.Seal(frame)
	return frame
}

func TestGuardOpensWhatItsPeerSealed(t *testing.T) {
	a, b := guards()
	for n := range 3 {
		text := fmt.Sprint("frame ", n)
		if got, v := b.Open(sealed(a, text), 0); v != Genuine || string(got) != text {
			t.Fatalf("frame %d: %q, %v", n, got, v)
		}
	}
	if got, v := a.Open(sealed(b, "back"), 0); v != Genuine || string(got) != "back" {
		t.Fatalf("back: %q, %v", got, v)
	}
}

func TestGuardRefuses(t *testing.T) {
	a, b := guards()
	first, frame := sealed(a, "first"), sealed(a, "a frame that is to be altered")
	for bit := range 8 * len(frame) {
		if _, v := b.Open(flipped(frame, bit), 0); v == Genuine {
			t.Fatalf("the frame is taken with bit %d flipped", bit)
		}
	}
	for n := range frame {
		if _, v := b.Open(frame[:n], 0); v == Genuine {
			t.Fatalf("%d bytes of the frame are taken", n)
		}
	}
	if _, v := a.Open(frame, 0); v != Forged {
		t.Errorf("a frame that comes back: %v", v)
	}
	for _, f := range [][]byte{frame, first} { // in whatever order
		if _, v := b.Open(f, 0); v != Genuine {
			t.Fatalf("the genuine frame after all those: %v", v)
		}
		if _, v := b.Open(f, 0); v != Replayed {
			t.Errorf("the frame once more: %v", v)
		}
	}
}

// TestGuardRenews goes over the end of an epoch, with frames that overtake each other.
func TestGuardRenews(t *testing.T) {
	a, b := guards()
	frames := [][]byte{sealed(a, "0"), nil, nil, nil, nil}
	b.Open(frames[0], 0)
	a.Renew()
	frames[1] = sealed(a, "1")
	if n := binary.LittleEndian.Uint64(frames[1][1:]); n != 1<<epochBits {
		t.Fatalf("the first number after a renewal is %d", n)
	}
	frames[2] = sealed(a, "2")
	for _, n := range []int{2, 1} {
		if _, v := b.Open(frames[n], 5); v != Genuine {
			t.Errorf("frame %d of the second epoch: %v", n, v)
		}
	}
	a.Renew()
	a.Renew() // again, before anything was sent: the same epoch
	if a.Sealed() != 2<<epochBits {
		t.Fatalf("two renewals in a row lead to number %d", a.Sealed())
	}
	third := sealed(a, "3")
	a.Renew()
	fourth := sealed(a, "4")
	if _, v := b.Open(fourth, 6); v != Forged {
		t.Errorf("a frame of the epoch after the next: %v", v)
	}
	for _, f := range [][]byte{third, fourth} {
		if _, v := b.Open(f, 7); v != Genuine {
			t.Errorf("a frame of the next epoch: %v", v)
		}
	}
}

// TestGuardRenewsNoEpochThatHasJustBegun has the numbers run into an epoch whose first frame gets
// lost, before a renewal: the peer knows the key of this epoch, and not of the one after.
func TestGuardRenewsNoEpochThatHasJustBegun(t *testing.T) {
	a, b := guards()
	a.out.number = 1<<epochBits - 1
	b.Open(sealed(a, "last"), 0)
	sealed(a, "lost")
	a.Renew()
	if _, v := b.Open(sealed(a, "arrives"), 0); v != Genuine {
		t.Fatalf("the frame after the renewal: %v", v)
	}
	a.Renew()
	next := sealed(a, "next")
	if n := binary.LittleEndian.Uint64(next[4:]); n != 2<<epochBits {
		t.Errorf("the number after the next renewal is %d", n)
	}
	if _, v := b.Open(next, 0); v != Genuine {
		t.Errorf("the frame after the next renewal: %v", v)
	}
}

// TestGuardForgetsFormerKeys shows that late frames of the former epoch are accepted for a
// while, and then no more.
func TestGuardForgetsFormerKeys(t *testing.T) {
	a, b := guards()
	a.out.number = 1<<epochBits - 2
	late, later, next := sealed(a, "late"), sealed(a, "later"), sealed(a, "next")
	if _, v := b.Open(next, 100); v != Genuine {
		t.Fatal(v)
	}
	if _, v := b.Open(late, 100+keepFormer); v != Genuine {
		t.Errorf("a late frame within the limit: %v", v)
	}
	if _, v := b.Open(later, 101+keepFormer); v != Forged {
		t.Errorf("a late frame after the limit: %v", v)
	}
	if b.in.former != nil {
		t.Error("the former key is kept")
	}
}

// TestForgedEpochsCostOneKey shows that frames that claim to be of the next epoch have its key
// derived once, and move nothing.
func TestForgedEpochsCostOneKey(t *testing.T) {
	a, b := guards()
	b.Open(sealed(a, "0"), 0)
	forged := make([]byte, 40)
	binary.LittleEndian.PutUint64(forged[16:], 1<<epochBits)
	b.Open(forged, 0)
	key := b.in.next
	if got := testing.AllocsPerRun(100, func() { b.Open(forged, 0) }); got != 0 || b.in.next != key || b.in.epoch != 0 {
		t.Errorf("%v allocations a forged frame, epoch %d", got, b.in.epoch)
	}
}

// TestWindowAgainstASet compares the window with a set of all numbers that have come.
func TestWindowAgainstASet(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var w window
		came, largest := map[uint64]bool{}, uint64(0)
		for range 20000 {
			number := largest + r.Uint64N(200)
			switch r.IntN(20) {
			case 0:
				number = largest + r.Uint64N(10*Span)
			case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12:
				number = largest - min(largest, r.Uint64N(2*Span))
			}
			fresh := w.fresh(number)
			if came[number] && fresh {
				t.Fatalf("seed %d: number %d is fresh twice", seed, number)
			}
			if !came[number] && !fresh && largest-number < Span {
				t.Fatalf("seed %d: number %d is not fresh, and the largest is %d", seed, number, largest)
			}
			if fresh {
				w.mark(number)
				came[number] = true
				largest = max(largest, number)
			}
		}
	}
}

func TestExpressKeys(t *testing.T) {
	c := Chains{Send: [32]byte{1}, Receive: [32]byte{2}}
	mine := c.Express()
	other := Chains{Send: c.Receive, Receive: c.Send}
	theirs := other.Express()
	if mine.Requests.Sent != theirs.Requests.Received || mine.Answers.Received != theirs.Answers.Sent {
		t.Error("the ends have different keys")
	}
	all := [][16]byte{mine.Requests.Sent, mine.Requests.Received, mine.Answers.Sent, mine.Answers.Received}
	for i := range all {
		for j := range i {
			if all[i] == all[j] {
				t.Errorf("keys %d and %d are the same", i, j)
			}
		}
	}
}

func TestGuardAllocatesNothing(t *testing.T) {
	a, b := guards()
	frame := make([]byte, 1400)
	if n := testing.AllocsPerRun(1000, func() {
		a.Seal(frame)
		if _, v := b.Open(frame, 0); v != Genuine {
			t.Fatal(v)
		}
	}); n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

//fuzz:inputs 100000
func FuzzGuard(f *testing.F) {
	a, _ := guards()
	genuine := sealed(a, "genuine")
	f.Add(genuine)
	f.Add(genuine[:TrailerLen])
	f.Fuzz(func(t *testing.T, frame []byte) {
		_, b := guards()
		if _, v := b.Open(frame, 0); (v == Genuine) != bytes.Equal(frame, genuine) {
			t.Errorf("%x: %v", frame, v)
		}
	})
}

func BenchmarkGuard(b *testing.B) {
	for _, n := range []int{104, 1400, 8900} {
		b.Run(fmt.Sprintf("seal-%d", n), func(b *testing.B) {
			g, _ := guards()
			frame := make([]byte, n)
			for b.Loop() {
				g.Seal(frame)
			}
		})
		b.Run(fmt.Sprintf("seal-open-%d", n), func(b *testing.B) {
			g, h := guards()
			frame := make([]byte, n)
			for b.Loop() {
				g.Seal(frame)
				h.Open(frame, 0)
			}
		})
	}
}
