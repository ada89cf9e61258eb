package secure

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
)

// clearBytes is how much of a frame of these tests is never encrypted.
const clearBytes = 3

// suites are all that there are.
var suites = []Suite{
	{Level: Sign, Cipher: AES, Header: clearBytes}, {Level: Sign, Cipher: ChaCha, Header: clearBytes},
	{Level: Seal, Cipher: AES, Header: clearBytes}, {Level: Seal, Cipher: ChaCha, Header: clearBytes},
}

// guards returns both ends of a session.
func (s Suite) guards() (a, b *Guard) {
	c := Chains{Send: [32]byte{1}, Receive: [32]byte{2}}
	return NewGuard(&c, s), NewGuard(&Chains{Send: c.Receive, Receive: c.Send}, s)
}

// guards returns both ends of a session that signs.
func guards() (a, b *Guard) { return suites[0].guards() }

func eachSuite(t *testing.T, test func(t *testing.T, s Suite)) {
	for _, s := range suites {
		t.Run(fmt.Sprint(s.Level, s.Cipher), func(t *testing.T) { test(t, s) })
	}
}

func sealed(g *Guard, payload string) []byte {
	frame := append([]byte(payload), make([]byte, TrailerLen)...)
	g.Seal(frame)
	return frame
}

func TestGuardOpensWhatItsPeerSealed(t *testing.T) {
	eachSuite(t, func(t *testing.T, s Suite) {
		a, b := s.guards()
		for n := range 3 {
			text := fmt.Sprint("frame ", n)
			if got, v := b.Open(sealed(a, text), 0); v != Genuine || string(got) != text {
				t.Fatalf("frame %d: %q, %v", n, got, v)
			}
		}
		if got, v := a.Open(sealed(b, "back"), 0); v != Genuine || string(got) != "back" {
			t.Fatalf("back: %q, %v", got, v)
		}
	})
}

func TestGuardRefuses(t *testing.T) {
	eachSuite(t, func(t *testing.T, s Suite) {
		a, b := s.guards()
		first, frame := sealed(a, "first"), sealed(a, "a frame that is to be altered")
		for bit := range 8 * len(frame) {
			if _, v := b.Open(flipped(frame, bit), 0); v == Genuine {
				t.Fatalf("the frame is taken with bit %d flipped", bit)
			}
		}
		for n := range frame {
			if _, v := b.Open(bytes.Clone(frame[:n]), 0); v == Genuine {
				t.Fatalf("%d bytes of the frame are taken", n)
			}
		}
		if _, v := a.Open(bytes.Clone(frame), 0); v != Forged {
			t.Errorf("a frame that comes back: %v", v)
		}
		for _, f := range [][]byte{frame, first} { // in whatever order
			if _, v := b.Open(bytes.Clone(f), 0); v != Genuine {
				t.Fatalf("the genuine frame after all those: %v", v)
			}
			if _, v := b.Open(f, 0); v != Replayed {
				t.Errorf("the frame once more: %v", v)
			}
		}
	})
}

// TestGuardRenews goes over the end of an epoch, with frames that overtake each other.
func TestGuardRenews(t *testing.T) {
	eachSuite(t, func(t *testing.T, s Suite) {
		a, b := s.guards()
		frames := [][]byte{sealed(a, "0"), nil, nil, nil, nil}
		b.Open(frames[0], 0)
		a.Renew()
		frames[1] = sealed(a, "1")
		if n := Number(frames[1]); n != 1<<epochBits {
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
		if _, v := b.Open(bytes.Clone(fourth), 6); v != Forged {
			t.Errorf("a frame of the epoch after the next: %v", v)
		}
		for _, f := range [][]byte{third, fourth} {
			if _, v := b.Open(f, 7); v != Genuine {
				t.Errorf("a frame of the next epoch: %v", v)
			}
		}
	})
}

// TestGuardRenewsNoEpochThatHasJustBegun has the numbers run into an epoch whose first frame gets
// lost, before a renewal: the peer knows the key of this epoch, and not of the one after.
func TestGuardRenewsNoEpochThatHasJustBegun(t *testing.T) {
	eachSuite(t, func(t *testing.T, s Suite) {
		a, b := s.guards()
		a.out.number = 1<<epochBits - 1
		b.Open(sealed(a, "last"), 0)
		sealed(a, "lost")
		a.Renew()
		if _, v := b.Open(sealed(a, "arrives"), 0); v != Genuine {
			t.Fatalf("the frame after the renewal: %v", v)
		}
		a.Renew()
		next := sealed(a, "next")
		if n := Number(next); n != 2<<epochBits {
			t.Errorf("the number after the next renewal is %d", n)
		}
		if _, v := b.Open(next, 0); v != Genuine {
			t.Errorf("the frame after the next renewal: %v", v)
		}
	})
}

// TestGuardForgetsFormerKeys shows that late frames of the former epoch are accepted for a
// while, and then no more.
func TestGuardForgetsFormerKeys(t *testing.T) {
	eachSuite(t, func(t *testing.T, s Suite) {
		a, b := s.guards()
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
	})
}

// TestForgedEpochsCostOneKey shows that frames that claim to be of the next epoch have its key
// derived once, and move nothing.
func TestForgedEpochsCostOneKey(t *testing.T) {
	eachSuite(t, func(t *testing.T, s Suite) {
		a, b := s.guards()
		b.Open(sealed(a, "0"), 0)
		forged := make([]byte, 40)
		binary.LittleEndian.PutUint64(forged[32:], 1<<epochBits)
		b.Open(forged, 0)
		key := b.in.next
		if got := testing.AllocsPerRun(100, func() { b.Open(forged, 0) }); got != 0 || b.in.next != key || b.in.epoch != 0 {
			t.Errorf("%v allocations a forged frame, epoch %d", got, b.in.epoch)
		}
	})
}

// TestChainsAreWiped looks for chains where they were.
func TestChainsAreWiped(t *testing.T) {
	eachSuite(t, func(t *testing.T, s Suite) {
		a, b := s.guards()
		b.Open(sealed(a, "0"), 0)
		was := a.out.chain
		if a.Renew(); a.out.chain == was || a.Encrypts() != (len(a.out.former) == 1) {
			t.Error("a chain is there after its epoch")
		}
		b.Open(sealed(a, "1"), 0)
		genuine := sealed(a, "2")
		if b.in.chain != a.out.chain {
			t.Error("the ends have different chains")
		}
		for _, g := range []*Guard{a, b} {
			g.Close()
			if zero := [32]byte{}; g.out.chain != zero || g.in.chain != zero || g.in.former != nil || g.in.present != nil || g.in.next != nil || g.out.former != nil {
				t.Error("keys are there after the session")
			}
			if _, v := g.Open(bytes.Clone(genuine), 0); v == Genuine {
				t.Error("a frame is taken after the session")
			}
			if frame := sealed(g, "late"); g.Encrypts() && g.Unseal(frame) {
				t.Error("a frame is opened after the session")
			}
		}
	})
}

// TestForgedFramesWearKeysOut counts frames with wrong tags over several epochs, and none of those that are refused
// without a look at their tags.
func TestForgedFramesWearKeysOut(t *testing.T) {
	eachSuite(t, func(t *testing.T, s Suite) {
		if most := s.mostForged(); most != map[Cipher]uint64{AES: 1 << 52, ChaCha: 1 << 36}[s.Cipher] {
			t.Errorf("%d frames may be forged", most)
		}
		const most = 10
		s.Bounds.Forged = most
		a, b := s.guards()
		for n := range most {
			frame := sealed(a, fmt.Sprint("frame ", n))
			replayed, unknown := bytes.Clone(frame), bytes.Clone(frame)
			binary.LittleEndian.PutUint64(unknown[len(frame)-numberLen:], 1<<60)
			want := Forged
			if n == most-1 {
				want = Worn
			}
			if _, v := b.Open(flipped(frame, 0), 0); v != want {
				t.Fatalf("forged frame %d: %v", n, v)
			}
			if want == Worn {
				if _, v := b.Open(frame, 0); v == Genuine {
					t.Error("a frame is taken under keys that are worn out")
				}
				a.Renew()
				if _, v := b.Open(sealed(a, "next"), 0); v == Genuine {
					t.Error("a frame is taken under the key that follows one that is worn out")
				}
				return
			}
			if _, v := b.Open(frame, 0); v != Genuine {
				t.Fatalf("genuine frame %d: %v", n, v)
			}
			if _, v := b.Open(replayed, 0); v != Replayed {
				t.Fatalf("replayed frame %d: %v", n, v)
			}
			if _, v := b.Open(unknown, 0); v != Forged {
				t.Fatalf("frame %d of an epoch without a key: %v", n, v)
			}
			a.Renew()
		}
	})
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
	eachSuite(t, func(t *testing.T, s Suite) {
		a, b := s.guards()
		frame := make([]byte, 1400)
		if n := testing.AllocsPerRun(1000, func() {
			a.Seal(frame)
			if _, v := b.Open(frame, 0); v != Genuine {
				t.Fatal(v)
			}
		}); n != 0 {
			t.Errorf("%v allocations a frame", n)
		}
	})
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

// TestFormerKeyIsDropped drops the key of a former epoch before its time, and after.
func TestFormerKeyIsDropped(t *testing.T) {
	eachSuite(t, func(t *testing.T, s Suite) {
		s.Bounds.EpochBits = 4 // late frames are not too old to know
		a, b := s.guards()
		late := [2][]byte{sealed(a, "late"), sealed(a, "too late")}
		if b.Open(sealed(a, "of the first key"), 5); b.FormerUntil() != 0 {
			t.Error("there is a former key in the first epoch")
		}
		a.Renew()
		if b.Open(sealed(a, "of the second key"), 7); b.FormerUntil() != 7+keepFormer {
			t.Errorf("the former key counts until %d", b.FormerUntil())
		}
		if _, v := b.Open(late[0], 8); v != Genuine {
			t.Errorf("a frame under the former key: %v", v)
		}
		b.DropFormer()
		if _, v := b.Open(late[1], 8); v != Forged || b.FormerUntil() != 0 {
			t.Errorf("a frame under a key that was dropped: %v", v)
		}
	})
}

func BenchmarkGuard(b *testing.B) {
	for _, s := range suites {
		for _, n := range []int{104, 1400, 8900} {
			name := fmt.Sprint(s.Level, s.Cipher, "-", n)
			b.Run(name, func(b *testing.B) {
				g, _ := s.guards()
				frame := make([]byte, n)
				for b.Loop() {
					g.Seal(frame)
				}
			})
			b.Run(name+"-and-open", func(b *testing.B) {
				g, h := s.guards()
				frame := make([]byte, n)
				for b.Loop() {
					g.Seal(frame)
					h.Open(frame, 0)
				}
			})
		}
	}
}

// TestUnseal opens frames again that wait to be sent once more, of this epoch and of former ones, until
// they are forgotten.
func TestUnseal(t *testing.T) {
	eachSuite(t, func(t *testing.T, s Suite) {
		a, b := s.guards()
		const text = "clear, and what is not"
		var frames [4][]byte
		for i := range frames {
			frames[i] = sealed(a, text)
			if hidden := !bytes.Contains(frames[i], []byte(text[clearBytes:])); hidden != a.Encrypts() || hidden != (s.Level == Seal) {
				t.Fatalf("the text is hidden: %t, in %q", hidden, frames[i])
			}
			if string(frames[i][:clearBytes]) != text[:clearBytes] {
				t.Fatalf("the start of the frame is %q", frames[i][:clearBytes])
			}
			if i < 2 {
				if _, v := b.Open(bytes.Clone(frames[i]), 0); v != Genuine {
					t.Fatal(v)
				}
				a.Renew()
			}
		}
		if s.Level != Seal {
			return // nothing is to be opened
		}
		if a.Forget(Number(frames[1])); len(a.out.former) != 1 {
			t.Errorf("%d former keys are kept", len(a.out.former))
		}
		damaged := flipped(frames[1], 8*clearBytes)
		if a.Unseal(damaged) || a.Unseal(frames[0]) {
			t.Error("a damaged frame is opened, or one of a forgotten key")
		}
		for i, frame := range frames[1:] {
			before := Number(frame)
			if !a.Unseal(frame) || string(frame[:len(text)]) != text {
				t.Fatalf("frame %d: %q", i, frame)
			}
			a.Seal(frame)
			if Number(frame) <= before {
				t.Errorf("frame %d is sealed with number %d again", i, Number(frame))
			}
			if got, v := b.Open(bytes.Clone(frame), 0); v != Genuine || string(got) != text {
				t.Errorf("frame %d arrives as %q, %v", i, got, v)
			}
		}
		if a.Forget(a.Sealed()); len(a.out.former) != 0 {
			t.Error("former keys are kept for good")
		}
	})
}
