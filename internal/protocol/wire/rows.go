package wire

import (
	"cmp"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/window"
)

// Row is what the table of codes says of one. Package onesided derives from it which rights a
// record needs, and what the XDP program makes of it; internal/lab/codes tells the program in C.
type Row struct {
	Name    string // by which a user knows it; empty: there is no such code
	TakenBy Taker
	Answer  Code // of what it is answered by; 0: by nothing
	Data    Data
	Flags   uint8 // that it may have

	Call     window.CallKind // of what communicates
	Combines bool            // elements of the type Basic, by the operator Op
	Rights   window.Rights   // that its origin needs at the window; of what combines, besides that of the operator

	Tier      bool  // the XDP program of the target executes it
	TierFlags uint8 // with no other flags
}

// Taker is what takes a record in, at the rank that it is sent to.
type Taker uint8

// The takers.
const (
	ByNobody     Taker = iota // there is no such code
	ByWindow                  // the target, for the window that the record names, by the rights of its origin
	ByTarget                  // the target, otherwise
	ByOrigin                  // whoever has sent requests: it travels as an answer
	ByMessages                // package message
	ByMembership              // package membership, and the engine for a peer that leaves
)

// Data is what the data of a record consists of.
type Data uint8

// The data of records. From DataOperand on it is that of requests that communicate.
const (
	DataOwn         Data = iota // what its taker reads there
	DataNone                    // nothing
	DataOperand                 // what is put or combined
	DataPart                    // a Part
	DataPartOperand             // a Part, then what is combined, which NoOp goes without
	DataPair                    // the value to compare with, then the new one
)

// MaxElements is how many elements of one record the XDP program combines at most.
const MaxElements = 16

const (
	moves    = FlagTyped | FlagInOrder
	notifies = moves | FlagNotify
	fetches  = moves | FlagFollowed
)

// rows is the table of codes.
var rows = [256]Row{
	CodePut: {Name: "put", TakenBy: ByWindow, Data: DataOperand, Flags: notifies, Call: window.CallPut,
		Rights: window.MayWrite, Tier: true, TierFlags: FlagNotify},
	CodeGet: {Name: "get", TakenBy: ByWindow, Answer: CodeResult, Data: DataPart, Flags: fetches, Call: window.CallGet,
		Rights: window.MayRead, Tier: true},
	CodeAccumulate: {Name: "accumulate", TakenBy: ByWindow, Data: DataOperand, Flags: notifies, Call: window.CallAccumulate,
		Combines: true, Tier: true, TierFlags: FlagNotify},
	CodeGetAccumulate: {Name: "get_accumulate", TakenBy: ByWindow, Answer: CodeResult, Data: DataPartOperand, Flags: fetches, Call: window.CallGetAccumulate,
		Combines: true, Rights: window.MayRead, Tier: true},
	CodeCompareSwap: {Name: "compare_and_swap", TakenBy: ByWindow, Answer: CodeResult, Data: DataPair, Flags: FlagInOrder, Call: window.CallCompareSwap,
		Rights: window.MayRead | window.MayWrite, Tier: true},
	CodeLock: {Name: "lock", TakenBy: ByWindow, Answer: CodeGranted, Data: DataNone, Flags: FlagExclusive | FlagPassing,
		Rights: window.MayLock, Tier: true, TierFlags: FlagExclusive},
	CodeUnlock: {Name: "unlock", TakenBy: ByWindow, Data: DataNone, Tier: true},
	CodeNotify: {Name: "notify", TakenBy: ByWindow, Data: DataNone, Flags: FlagIfDone, Tier: true, TierFlags: FlagIfDone},

	CodePing:     {Name: "ping", TakenBy: ByTarget, Data: DataNone},
	CodeType:     {Name: "type", TakenBy: ByTarget, Flags: FlagLast},
	CodePost:     {Name: "post", TakenBy: ByTarget, Data: DataNone},
	CodeComplete: {Name: "complete", TakenBy: ByTarget, Data: DataNone},
	CodeGiven:    {Name: "given", TakenBy: ByTarget, Data: DataNone},
	CodeMark:     {Name: "mark", TakenBy: ByTarget, Data: DataNone, Flags: FlagReads},
	CodeInquiry:  {Name: "inquiry", TakenBy: ByTarget, Answer: CodeWaits, Data: DataNone},

	CodeMessage:   {Name: "message", TakenBy: ByMessages},
	CodeRest:      {Name: "rest", TakenBy: ByMessages},
	CodeOffer:     {Name: "offer", TakenBy: ByMessages},
	CodeTaken:     {Name: "taken", TakenBy: ByMessages, Data: DataNone},
	CodeWithdrawn: {Name: "withdrawn", TakenBy: ByMessages, Data: DataNone},

	CodeBye:    {Name: "bye", TakenBy: ByMembership},
	CodeRevoke: {Name: "revoke", TakenBy: ByMembership, Data: DataNone},
	CodeGone:   {Name: "gone", TakenBy: ByMembership, Data: DataNone},

	CodeResult:  {Name: "result", TakenBy: ByOrigin},
	CodeGranted: {Name: "granted", TakenBy: ByOrigin, Data: DataNone},
	CodeRefused: {Name: "refused", TakenBy: ByOrigin},
	CodeWaits:   {Name: "waits", TakenBy: ByOrigin, Data: DataNone},
	CodeCredit:  {Name: "credit", TakenBy: ByOrigin, Data: DataNone},
}

// Row returns the row of c. It must not be changed.
func (c Code) Row() *Row { return &rows[c] }

// String returns the code's name.
func (c Code) String() string { return cmp.Or(rows[c].Name, "unknown") }

// Communicates reports whether c is the request of a communication call.
func (c Code) Communicates() bool { return rows[c].Data >= DataOperand }

// Accumulates reports whether c is that of an accumulate call, compare and swap among them.
func (c Code) Accumulates() bool { return rows[c].Call >= window.CallAccumulate }

// Fetches reports whether c asks for a result.
func (c Code) Fetches() bool { return rows[c].Answer == CodeResult }

// Notifies reports whether a counter counts up with r.
func (r *Record) Notifies() bool {
	return r.Code == CodeNotify || r.Flags&FlagNotify&rows[r.Code].Flags != 0
}

// tierElements has how many elements of one record the XDP program combines by an operator: by
// one that is a single instruction many, by others one.
var tierElements = [256]uint8{
	datatype.Sum: MaxElements, datatype.Prod: 1, datatype.Min: 1, datatype.Max: 1, datatype.LAnd: 1, datatype.LOr: 1, datatype.LXor: 1,
	datatype.BAnd: MaxElements, datatype.BOr: MaxElements, datatype.BXor: MaxElements, datatype.Replace: MaxElements, datatype.NoOp: 1,
}

// TierElements returns how many elements of a size the XDP program combines by an operator in
// one record: 0 if it does not execute the operator.
func TierElements(op datatype.Op, size int) int {
	n := int(tierElements[op])
	if size < 4 { // no instruction is for these
		return min(n, 1)
	}
	return n
}

// TierSize returns the size of the elements of a type, and 0 if the XDP program combines none
// of these: it combines integers.
func TierSize(b datatype.Basic) int {
	if b < datatype.BasicInt8 || b > datatype.BasicUint64 {
		return 0
	}
	return b.Size()
}
