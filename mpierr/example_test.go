package mpierr_test

import (
	"errors"
	"fmt"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/mpierr"
)

// errors.Is finds the class of an error, and errors.As its parts.
func Example() {
	_, err := datatype.Vector(-1, 1, 1, datatype.Int32)
	err = fmt.Errorf("describe the halo: %w", err)

	fmt.Println(errors.Is(err, mpierr.Count), errors.Is(err, datatype.ErrCount), errors.Is(err, mpierr.Type))
	var e *mpierr.Error
	if errors.As(err, &e) {
		fmt.Printf("%s, class %d, of no rank: %v\n", e.Op, e.Class, e.Rank == mpierr.NoRank)
	}
	// Output:
	// true true false
	// type vector, class 2, of no rank: true
}

// A program may treat its errors by class.
func ExampleClassOf() {
	lost := mpierr.New("get", mpierr.ProcFailed, 3, "it was not heard of for %d seconds", 5)
	for _, err := range []error{nil, fmt.Errorf("step 7: %w", lost), errors.New("no idea")} {
		switch class := mpierr.ClassOf(err); class {
		case mpierr.Success:
			fmt.Println("go on")
		case mpierr.ProcFailed:
			fmt.Println("go on without it:", err)
		default:
			fmt.Println(int(class), "is of no class of the library:", class == mpierr.Intern)
		}
	}
	// Output:
	// go on
	// go on without it: step 7: get (rank 3): process failed: it was not heard of for 5 seconds
	// 17 is of no class of the library: true
}
