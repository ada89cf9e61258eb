package wire

import "encoding/binary"

// Some codes store values in fields of a Record that have another name. The types of
// this file give the values their own names. The method Record of each type makes the
// Record, and the method of Record with the type's name reads it.

// Lock is a CodeLock.
type Lock struct {
	Window, Token uint32
	Exclusive     bool
	Passing       bool   // shared, and goes before requests that wait
	Age           uint64 // of the epoch of a passing one, in nanoseconds
}

// Record returns l as a record.
func (l Lock) Record() Record {
	r := Record{Code: CodeLock, Window: l.Window, Token: l.Token, Disp: l.Age}
	switch {
	case l.Exclusive:
		r.Flags = FlagExclusive
	case l.Passing:
		r.Flags = FlagPassing
	}
	return r
}

// Lock reads what Lock.Record wrote. It returns false if the flags are of no type of lock.
func (r *Record) Lock() (Lock, bool) {
	return Lock{
		Window: r.Window, Token: r.Token, Exclusive: r.Flags == FlagExclusive, Passing: r.Flags == FlagPassing, Age: r.Disp,
	}, r.Flags <= FlagPassing
}

// Message is a CodeMessage, whose data is that of the message, or its start.
type Message struct {
	Context uint32
	Tag     uint32
	Follow  uint64 // bytes that follow in records of CodeRest
}

// Record returns m as a record.
func (m Message) Record() Record {
	return Record{Code: CodeMessage, Window: m.Context, Token: m.Tag, Disp: m.Follow}
}

// Message reads what Message.Record wrote.
func (r *Record) Message() Message { return Message{Context: r.Window, Tag: r.Token, Follow: r.Disp} }

// OfferLen is the length of the data of a CodeOffer.
const OfferLen = 4

// Offer is a CodeOffer.
type Offer struct {
	Context uint32
	Tag     uint32
	Length  uint64 // of the message
	ID      uint32 // the window that the receiver may get it from
}

// Record returns o as a record, without its data, which Put writes.
func (o Offer) Record() Record {
	return Record{Code: CodeOffer, Window: o.Context, Token: o.Tag, Disp: o.Length}
}

// Put writes o's data to the start of b.
func (o Offer) Put(b []byte) { binary.LittleEndian.PutUint32(b, o.ID) }

// Offer reads what Offer.Record and Put wrote. It returns false if there is no ID.
func (r *Record) Offer() (Offer, bool) {
	if len(r.Data) != OfferLen {
		return Offer{}, false
	}
	return Offer{Context: r.Window, Tag: r.Token, Length: r.Disp, ID: binary.LittleEndian.Uint32(r.Data)}, true
}

// Revocation is a CodeRevoke.
type Revocation struct {
	Context uint32
	Failed  uint64 // rank in the job
}

// Record returns v as a record.
func (v Revocation) Record() Record {
	return Record{Code: CodeRevoke, Window: v.Context, Disp: v.Failed}
}

// Revocation reads what Revocation.Record wrote.
func (r *Record) Revocation() Revocation { return Revocation{Context: r.Window, Failed: r.Disp} }

// Gone is a CodeGone. A rank says it of its own loss; or it asks the rank that is said to
// be lost, with the name of another that says so, for a sign of life.
type Gone struct {
	By   uint32 // the rank of the job that has lost the other
	Rank uint32 // the other
	Life uint64 // the incarnation of the other that was lost; 0: not known
}

// Record returns g as a record.
func (g Gone) Record() Record {
	return Record{Code: CodeGone, Window: g.Rank, Token: g.By, Disp: g.Life}
}

// Gone reads what Gone.Record wrote.
func (r *Record) Gone() Gone { return Gone{By: r.Token, Rank: r.Window, Life: r.Disp} }

// Credit is a CodeCredit.
type Credit struct {
	Kind  uint32 // of messages
	Total uint64 // that the receiver may spend on them, all in all
}

// Record returns c as a record.
func (c Credit) Record() Record { return Record{Code: CodeCredit, Window: c.Kind, Disp: c.Total} }

// Credit reads what Credit.Record wrote.
func (r *Record) Credit() Credit { return Credit{Kind: r.Window, Total: r.Disp} }

// TypePiece is a CodeType, whose data is a piece of a datatype's encoding.
type TypePiece struct {
	Window uint32
	Type   uint32 // the datatype's id
	Offset uint32 // of the piece in the encoding
	Last   bool
}

// Record returns p as a record.
func (p TypePiece) Record() Record {
	r := Record{Code: CodeType, Window: p.Window, Disp: uint64(p.Type)<<32 | uint64(p.Offset)}
	if p.Last {
		r.Flags = FlagLast
	}
	return r
}

// TypePiece reads what TypePiece.Record wrote.
func (r *Record) TypePiece() TypePiece {
	return TypePiece{Window: r.Window, Type: uint32(r.Disp >> 32), Offset: uint32(r.Disp), Last: r.Flags&FlagLast != 0}
}

// RefusalLen is the length of the data of a CodeRefused.
const RefusalLen = 4

// Refusal is a CodeRefused.
type Refusal struct {
	Code   Code   // of what was refused
	Window uint32 // as asked
	Token  uint32 // as asked, or 0 if no answer was due
	Disp   uint64 // as asked
	Class  uint32 // why
}

// Record returns f as a record, without its data, which Put writes.
func (f Refusal) Record() Record {
	return Record{Code: CodeRefused, Op: uint8(f.Code), Window: f.Window, Token: f.Token, Disp: f.Disp}
}

// Put writes f's data to the start of b.
func (f Refusal) Put(b []byte) { binary.LittleEndian.PutUint32(b, f.Class) }

// Refusal reads what Refusal.Record and Put wrote. It returns false if r is none.
func (r *Record) Refusal() (Refusal, bool) {
	if r.Code != CodeRefused || len(r.Data) != RefusalLen {
		return Refusal{}, false
	}
	return Refusal{
		Code: Code(r.Op), Window: r.Window, Token: r.Token, Disp: r.Disp, Class: binary.LittleEndian.Uint32(r.Data),
	}, true
}

// DefinedType returns the id of the datatype whose definition was refused.
func (f Refusal) DefinedType() uint32 { return uint32(f.Disp >> 32) }
