package datatype_test

import (
	"context"
	"fmt"
	"log"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

// A block of a matrix has a halo: the first and the last column are copies of the neighbours'
// columns. Column 3 is the last of its own, which the right neighbour needs.
func Example() {
	const rows, columns = 3, 5
	block := []int32{
		0, 1, 2, 3, 0,
		0, 4, 5, 6, 0,
		0, 7, 8, 9, 0,
	}
	column, err := datatype.Vector(rows, 1, columns, datatype.Int32) // one element a row
	if err != nil {
		log.Fatal(err)
	}
	if err := column.Commit(); err != nil {
		log.Fatal(err)
	}
	packed := make([]byte, column.Size())
	last := rma.BytesOf(block[3:])
	if _, err := datatype.Pack(packed, last, 0, column, 1, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Println(rma.Slice[int32](packed))
	// buffer.Typed(block[3:], 1, column) is the same data for a call.
	// Output: [3 6 9]
}

// The datatype of a struct has its fields, and not the padding between them.
func ExampleFromGo() {
	type particle struct {
		Charge   int8
		Position [3]float64
	}
	t, err := datatype.FromGo[particle]()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("data:", t.Size(), "of", t.Extent(), "bytes")

	_, err = datatype.FromGo[struct{ Name string }]()
	fmt.Println(err)
	// Output:
	// data: 25 of 32 bytes
	// type from go: invalid datatype: struct { Name string }.Name: no datatype holds a string
}

// Two blocks of two elements, the starts of which are three elements apart.
func ExampleVector() {
	t, err := datatype.Vector(2, 2, 3, datatype.Float64)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t, "has", t.Size(), "bytes of data in", t.Extent())
	// Output: vector(2, 2, 3, float64) has 32 bytes of data in 40
}

// A part of a matrix of 4 rows and 4 columns: two rows and two columns, from row 1 and column 2 on.
func ExampleSubarray() {
	t, err := datatype.Subarray([]int{4, 4}, []int{2, 2}, []int{1, 2}, datatype.OrderC, datatype.Uint8)
	if err != nil {
		log.Fatal(err)
	}
	if err := t.Commit(); err != nil {
		log.Fatal(err)
	}
	matrix := []byte("abcd" + "efgh" + "ijkl" + "mnop")
	part := make([]byte, t.Size())
	if _, err := datatype.Pack(part, matrix, 0, t, 1, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", part)
	// Output: ghkl
}

// An entry of a file that another program has laid out: a number of 4 bytes, and at byte 6 two of
// 2 bytes. Resized says that the next entry follows after 10 bytes.
func ExampleStruct() {
	fields, err := datatype.Struct([]int{1, 2}, []int{0, 6}, []*datatype.Type{datatype.Uint32, datatype.Uint16})
	if err != nil {
		log.Fatal(err)
	}
	entry, err := datatype.Resized(fields, 0, 10)
	if err != nil {
		log.Fatal(err)
	}
	if err := entry.Commit(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(entry.Size(), "bytes of data, an entry every", entry.Extent())
	for basic, count := range entry.Signature() {
		fmt.Println(count, "of", basic)
	}
	// Output:
	// 8 bytes of data, an entry every 10
	// 1 of uint32
	// 2 of uint16
}

// Pack and Unpack move data piece by piece: from is how much of it came before.
func ExamplePack() {
	t, err := datatype.Vector(3, 1, 2, datatype.Uint8) // every second byte
	if err != nil {
		log.Fatal(err)
	}
	if err := t.Commit(); err != nil {
		log.Fatal(err)
	}
	from, to := []byte("a-b-c"), []byte("_____")
	piece := make([]byte, 2)
	for done := int64(0); done < int64(t.Size()); {
		n, err := datatype.Pack(piece, from, 0, t, 1, done)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := datatype.Unpack(to, 0, t, 1, done, piece[:n]); err != nil {
			log.Fatal(err)
		}
		done += int64(n)
	}
	fmt.Printf("%s\n", to)
	// Output: a_b_c
}

// Three ranks find the smallest of their values, and which of them has it.
func ExamplePair() {
	err := rmatest.Job(3, func(ctx context.Context, node *rma.Node) error {
		rank := node.Rank()
		mine := []datatype.Pair[float64]{{Value: []float64{2.5, -1, 4}[rank], Index: int32(rank)}}
		least := make([]datatype.Pair[float64], 1)
		if err := comm.Allreduce(ctx, node.World(), mine, least, datatype.MinLoc); err != nil {
			return err
		}
		if rank == 0 {
			fmt.Printf("%v at rank %d\n", least[0].Value, least[0].Index)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: -1 at rank 1
}
