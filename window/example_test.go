package window_test

import (
	"errors"
	"fmt"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// A function like this, as rma.Config.OnConflict, treats a conflict as an error.
func ExampleConflict_Err() {
	onConflict := func(c window.Conflict) {
		err := c.Err()
		fmt.Println(errors.Is(err, mpierr.RMAConflict))
		fmt.Println(err)
	}
	onConflict(window.Conflict{ // the library makes it
		Name:   "table",
		Target: 2,
		First:  window.Access{Origin: 0, Call: window.CallPut},
		Second: window.Access{Origin: 1, Call: window.CallAccumulate, Op: datatype.Sum, Basic: datatype.BasicInt64},
		Start:  16, End: 24,
	})
	// Output:
	// true
	// check (rank 2): conflicting accesses: window "table", bytes 16 to 24: put by rank 0 and accumulate with sum of int64 by rank 1 are not ordered by synchronisation
}
