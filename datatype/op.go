package datatype

import "github.com/xdprma/xdprma/mpierr"

// Op is a reduction operator of the accumulate calls (section 11.3.4). It goes
// on the wire, so its values never change; the zero value is no operator.
type Op uint8

// The operators. With a the value in the window and b the operand, the window
// becomes:
const (
	Sum     Op = 1  // a + b; integers wrap around
	Prod    Op = 2  // a * b; integers wrap around
	Min     Op = 3  // the smaller; NaN if either is NaN, and -0 is smaller than +0
	Max     Op = 4  // the larger; NaN if either is NaN, and +0 is larger than -0
	LAnd    Op = 5  // 1 if both differ from zero, else 0
	LOr     Op = 6  // 1 if either differs from zero, else 0
	LXor    Op = 7  // 1 if exactly one differs from zero, else 0
	BAnd    Op = 8  // a & b
	BOr     Op = 9  // a | b
	BXor    Op = 10 // a ^ b
	Replace Op = 11 // b
	NoOp    Op = 12 // a: an atomic read, for the calls that return the old value
	MinLoc  Op = 13 // the pair with the smaller value; of equal values, that with the lower index
	MaxLoc  Op = 14 // the pair with the larger value; of equal values, that with the lower index
)

const opCount = 15

var opNames = [opCount]string{
	Sum: "sum", Prod: "prod", Min: "min", Max: "max", LAnd: "land", LOr: "lor", LXor: "lxor",
	BAnd: "band", BOr: "bor", BXor: "bxor", Replace: "replace", NoOp: "no_op",
	MinLoc: "minloc", MaxLoc: "maxloc",
}

// Valid reports whether o is an operator.
func (o Op) Valid() bool { return o-1 < opCount-1 }

// String returns the operator's name, or "invalid".
func (o Op) String() string {
	if !o.Valid() {
		return "invalid"
	}
	return opNames[o]
}

// defined has, for each operator, a bit for each datatype that it is defined for.
var defined = func() (d [opCount]uint32) {
	set := func(first, last Basic) uint32 { return 1<<(last+1) - 1<<first }
	integers := set(BasicInt8, BasicUint64)
	reals := integers | set(BasicFloat32, BasicFloat64)
	numbers := reals | set(BasicComplex64, BasicComplex128)
	pairs := set(BasicFloat32Int32, BasicInt16Int32)
	logical, bytes := uint32(1<<BasicBool), uint32(1<<BasicByte)
	d[Sum], d[Prod], d[Min], d[Max] = numbers, numbers, reals, reals
	d[LAnd], d[LOr], d[LXor] = integers|logical, integers|logical, integers|logical
	d[BAnd], d[BOr], d[BXor] = integers|bytes, integers|bytes, integers|bytes
	d[MinLoc], d[MaxLoc] = pairs, pairs
	d[Replace], d[NoOp] = numbers|logical|bytes|pairs, numbers|logical|bytes|pairs
	return d
}()

// Check reports whether o can be applied to elements of type b: mpierr.Success,
// mpierr.Type if b is no datatype, or mpierr.Op if o is no operator or not
// defined for b. It is Defined for the data path: it allocates nothing.
//
// Sum and Prod are defined for numbers, Min and Max for real numbers, LAnd, LOr
// and LXor for integers and Bool, BAnd, BOr and BXor for integers and Byte,
// MinLoc and MaxLoc for pairs, and Replace and NoOp for every datatype.
func (o Op) Check(b Basic) mpierr.Class {
	switch {
	case !b.Valid():
		return mpierr.Type
	case !o.Valid() || defined[o]>>b&1 == 0:
		return mpierr.Op
	}
	return mpierr.Success
}

// Defined returns nil if o can be applied to elements of type b, and otherwise
// an error with the class that Check returns.
func (o Op) Defined(b Basic) error {
	switch class := o.Check(b); class {
	case mpierr.Success:
		return nil
	case mpierr.Type:
		return mpierr.New("accumulate", class, mpierr.NoRank, "%d is not the code of a datatype", uint8(b))
	default:
		return mpierr.New("accumulate", class, mpierr.NoRank, "operator %s (%d) is not defined for %s", o, uint8(o), b)
	}
}
