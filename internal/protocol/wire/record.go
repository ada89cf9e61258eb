package wire

import "encoding/binary"

// Code says what a record asks or answers. The table of codes has a Row for each.
type Code uint8

// Codes of requests.
const (
	CodePut           Code = 1  // data goes to the window at Disp
	CodeGet           Code = 2  // a Part follows; answered by results
	CodeAccumulate    Code = 3  // data is combined into the window at Disp
	CodeGetAccumulate Code = 4  // a Part follows, then the operand; answered by the old values
	CodeCompareSwap   Code = 5  // compare value, then the new one; answered by the old value
	CodeLock          Code = 6  // first of its bundle: the rest runs once the lock is held; answered by CodeGranted; see Lock
	CodeUnlock        Code = 7  // releases the lock
	CodeMessage       Code = 8  // message between two ranks, or its start; see Message
	CodePing          Code = 9  // asks only to be acknowledged
	CodeBye           Code = 10 // the sender will issue nothing more; with data, because its program has failed, as the data says in words
	CodeType          Code = 11 // a piece of a datatype's encoding, for the typed requests that follow; see TypePiece
	CodeOffer         Code = 15 // message that the receiver may get as from a window; see Offer
	CodeTaken         Code = 16 // the offer Window is over: the sender has the message, or wants no more of it
	CodeWithdrawn     Code = 18 // the offer Window is given up: the sender wants to hear that it is over
	CodeRest          Code = 19 // more of the data of the last CodeMessage
	CodeRevoke        Code = 17 // a context is over, because a rank failed; see Revocation
	CodeGone          Code = 20 // a rank has lost another, which has failed or left the job; see Gone
	CodeNotify        Code = 21 // the window's counter Token counts up
	CodeMark          Code = 24 // checking mode: the sender has completed what it issued before on the window
	CodeInquiry       Code = 25 // asks whether the lock request Token waits; without a token, for an answer once all before is answered
	CodePost          Code = 12 // the sender's window is exposed to the receiver
	CodeComplete      Code = 13 // the sender's access epoch at the receiver's window is over
	CodeGiven         Code = 14 // the sender has given up a lock by a word that both share
)

// Codes of responses.
const (
	CodeResult  Code = 32 // data for the operation Token, at offset Disp of its result
	CodeGranted Code = 33 // the lock bundle of operation Token has run
	CodeRefused Code = 34 // a request was refused; see Refusal
	CodeCredit  Code = 35 // what the receiver may spend on messages; see Credit
	CodeWaits   Code = 36 // to CodeInquiry: the lock request Token waits; without a token, all before is answered
)

// Flags of records.
const (
	FlagExclusive uint8 = 1  // of CodeLock: the lock is exclusive
	FlagPassing   uint8 = 2  // of CodeLock: the lock is shared, and passes requests that wait
	FlagLast      uint8 = 1  // of CodeType: the encoding ends with this piece
	FlagTyped     uint8 = 2  // of what communicates: the data starts with a Layout
	FlagReads     uint8 = 1  // of CodeMark: only what changes nothing has completed
	FlagNotify    uint8 = 8  // of CodePut and CodeAccumulate: then the window's counter Token counts up
	FlagIfDone    uint8 = 1  // of CodeNotify: only if the record before it was not refused
	FlagFollowed  uint8 = 4  // of what changes nothing, in checking mode: no CodeMark will tell that it has completed
	FlagInOrder   uint8 = 16 // of what communicates, in checking mode: all of its origin that have the flag take effect in the order issued
)

// RecordLen is the length of a record's fixed part; data follows and is padded
// to a multiple of 8 bytes.
const RecordLen = 24

// PartLen is the length of the Part that starts the data of CodeGet and
// CodeGetAccumulate: which bytes of the operation's result this record asks for.
const PartLen = 8

// MaxPart is how many bytes one CodeGet may ask for, which bounds the work that a record
// makes for the target.
const MaxPart = 32 << 10

// LayoutLen is the length of the Layout that starts the data of a typed request.
const LayoutLen = 24

// MaxTypes is how many datatypes a rank may have defined at another; their ids
// are below it.
const MaxTypes = 256

// MaxTypeBytes is how long the encodings of the datatypes that a rank has defined
// at another may be together.
const MaxTypeBytes = 128 << 10

// MessageWindow is what a rank may spend on messages of a kind to a peer before it is
// granted more.
const MessageWindow = 64 << 10

// MessageCost returns what a CodeMessage or CodeOffer with n bytes of data costs.
func MessageCost(n int) int { return 64 + n }

// Record is one decoded record. Data aliases the frame.
type Record struct {
	Code   Code
	Basic  uint8 // element type, see package datatype
	Op     uint8 // reduction operator, see package datatype
	Flags  uint8
	Window uint32
	Token  uint32 // names the operation at its origin; 0 where no answer is due; of a notification: a counter
	Disp   uint64 // byte displacement in the target's window
	Data   []byte
}

// padded returns n rounded up to a multiple of 8.
func padded(n int) int { return (n + 7) &^ 7 }

// RecordSize returns the bytes that a record with n bytes of data takes.
func RecordSize(n int) int { return RecordLen + padded(n) }

// PutRecord writes the fixed part of r with dataLen bytes of data to follow, and
// zeroes the padding. b must have room for RecordSize(dataLen). It returns the
// place where the data goes.
func PutRecord(b []byte, r *Record, dataLen int) []byte {
	size := RecordSize(dataLen)
	_ = b[size-1]
	le := binary.LittleEndian
	if dataLen&7 != 0 {
		le.PutUint64(b[size-8:], 0)
	}
	le.PutUint64(b[0:], uint64(r.Code)|uint64(r.Basic)<<8|uint64(r.Op)<<16|uint64(r.Flags)<<24|uint64(uint32(dataLen))<<32)
	le.PutUint64(b[8:], uint64(r.Window)|uint64(r.Token)<<32)
	le.PutUint64(b[16:], r.Disp)
	return b[RecordLen : RecordLen+dataLen]
}

// NextRecord decodes the record at the start of b into r and returns the bytes
// it takes, or 0 if there is no well-formed record.
func NextRecord(b []byte, r *Record) int {
	if len(b) < RecordLen {
		return 0
	}
	le := binary.LittleEndian
	n := le.Uint32(b[4:])
	if uint64(n) > uint64(len(b)-RecordLen) {
		return 0
	}
	size := RecordSize(int(n))
	if size > len(b) {
		return 0
	}
	r.Code, r.Basic, r.Op, r.Flags = Code(b[0]), b[1], b[2], b[3]
	r.Window = le.Uint32(b[8:])
	r.Token = le.Uint32(b[12:])
	r.Disp = le.Uint64(b[16:])
	r.Data = b[RecordLen : RecordLen+int(n) : RecordLen+int(n)]
	return size
}

// PutPart writes which bytes of a result are asked for: want of them, at offset.
func PutPart(b []byte, offset, want uint32) {
	binary.LittleEndian.PutUint32(b[0:], offset)
	binary.LittleEndian.PutUint32(b[4:], want)
}

// Part reads what PutPart wrote.
func Part(b []byte) (offset, want uint32) {
	return binary.LittleEndian.Uint32(b[0:]), binary.LittleEndian.Uint32(b[4:])
}

// Layout says which memory a typed request means: count entries of the datatype
// with the given id, displacement 0 at the record's Disp, and of their packed
// data what starts at position.
type Layout struct {
	Type     uint32
	Count    uint64
	Position uint64
}

// Put writes l to the start of b and returns what follows it.
func (l Layout) Put(b []byte) []byte {
	le := binary.LittleEndian
	le.PutUint64(b[0:], uint64(l.Type))
	le.PutUint64(b[8:], l.Count)
	le.PutUint64(b[16:], l.Position)
	return b[LayoutLen:]
}

// Get reads l from the start of b and returns what follows it. It returns false
// if b has no Layout.
func (l *Layout) Get(b []byte) (rest []byte, ok bool) {
	if len(b) < LayoutLen {
		return nil, false
	}
	le := binary.LittleEndian
	*l = Layout{Type: le.Uint32(b[0:]), Count: le.Uint64(b[8:]), Position: le.Uint64(b[16:])}
	return b[LayoutLen:], le.Uint32(b[4:]) == 0
}
