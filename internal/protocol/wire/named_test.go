package wire

import "testing"

// sent writes r, with n bytes of data that put fills, and reads it again.
func sent(t *testing.T, r Record, n int, put func([]byte)) (back Record) {
	t.Helper()
	b := make([]byte, RecordSize(n))
	if data := PutRecord(b, &r, n); put != nil {
		put(data)
	}
	if NextRecord(b, &back) != len(b) || back.Code != r.Code {
		t.Fatalf("%v comes back as %v", r, back)
	}
	return back
}

// TestNamedRecordsComeBack writes and reads a record of each code that gives the common
// fields a meaning of its own.
func TestNamedRecordsComeBack(t *testing.T) {
	const big = 1<<40 + 3
	for _, want := range []Lock{
		{Window: 1, Token: 2}, {Window: 1, Token: 2, Exclusive: true}, {Window: 1, Token: 2, Passing: true, Age: big},
	} {
		r := sent(t, want.Record(), 0, nil)
		if got, ok := r.Lock(); !ok || got != want {
			t.Errorf("%+v comes back as %+v, %v", want, got, ok)
		}
	}
	if _, ok := (&Record{Code: CodeLock, Flags: FlagPassing + 1}).Lock(); ok {
		t.Error("a lock of no type is one")
	}
	message := Message{Context: 1 << 31, Tag: 2, Follow: 8000}
	if r := sent(t, message.Record(), 5, nil); r.Message() != message {
		t.Errorf("%+v comes back as %+v", message, r.Message())
	}
	offer := Offer{Context: 1 << 31, Tag: 2, Length: big, ID: 1<<31 | 5}
	r := sent(t, offer.Record(), OfferLen, offer.Put)
	if got, ok := r.Offer(); !ok || got != offer {
		t.Errorf("%+v comes back as %+v, %v", offer, got, ok)
	}
	if _, ok := (&Record{Code: CodeOffer}).Offer(); ok {
		t.Error("an offer without an id is one")
	}
	revocation := Revocation{Context: 7, Failed: big}
	if r := sent(t, revocation.Record(), 0, nil); r.Revocation() != revocation {
		t.Errorf("%+v comes back as %+v", revocation, r.Revocation())
	}
	gone := Gone{By: 7, Rank: 8, Life: big}
	if r := sent(t, gone.Record(), 0, nil); r.Gone() != gone {
		t.Errorf("%+v comes back as %+v", gone, r.Gone())
	}
	credit := Credit{Kind: 1, Total: big}
	if r := sent(t, credit.Record(), 0, nil); r.Credit() != credit {
		t.Errorf("%+v comes back as %+v", credit, r.Credit())
	}
	for _, last := range []bool{false, true} {
		piece := TypePiece{Window: 9, Type: 255, Offset: 64 << 10, Last: last}
		if r := sent(t, piece.Record(), 5, nil); r.TypePiece() != piece {
			t.Errorf("%+v comes back as %+v", piece, r.TypePiece())
		}
	}
	refusal := Refusal{Code: CodeType, Window: 3, Token: 4, Disp: 200<<32 | 5, Class: 45}
	r = sent(t, refusal.Record(), RefusalLen, refusal.Put)
	if got, ok := r.Refusal(); !ok || got != refusal || got.DefinedType() != 200 {
		t.Errorf("%+v comes back as %+v, %v", refusal, got, ok)
	}
	for _, r := range []Record{{Code: CodeRefused}, {Code: CodeResult, Data: make([]byte, RefusalLen)}} {
		if _, ok := r.Refusal(); ok {
			t.Errorf("%v is a refusal", r)
		}
	}
}
