// Command peers prints the figures of MPI libraries beside those of xdprma: the
// medians over rounds, and the ratios. run.sh calls it.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/xdprma/xdprma/internal/perf"
)

// row is one line of the table: a test at one setting, and its figures by library.
type row struct {
	name, unit string
	figures    map[string][]float64
}

// rows are what both rma.c and xdprma perf measure, in the order of the table.
// Key is how a figure of either names the row.
var rows = []struct{ key, name, unit string }{
	{"put-latency 8", "put + flush, 8 B", "us"},
	{"get-latency 8", "get + flush, 8 B", "us"},
	{"fetch-and-op-latency 8", "fetch_and_op + flush", "us"},
	{"compare-and-swap-latency 8", "compare_and_swap + flush", "us"},
	{"lock-put-unlock 8", "lock, put, unlock, 8 B", "us"},
	{"put-rate 64", "8-byte puts, 64 outstanding", "Mop/s"},
	{"put-rate 1024", "8-byte puts, 1024 outstanding", "Mop/s"},
	{"fetch-and-op-rate 64", "fetch_and_op, 64 outstanding", "Mop/s"},
	{"put-bandwidth 1048576", "puts of 1 MiB", "MB/s"},
	{"get-bandwidth 1048576", "gets of 1 MiB", "MB/s"},
	{"progress 8", "fetch_and_op, computing target", "us"},
	{"all-to-all 8", "8 ranks: puts to all, flush, barrier", "us"},
}

const ours = "xdprma"

type table map[string]*row

func newTable() table {
	t := table{}
	for _, r := range rows {
		t[r.key] = &row{name: r.name, unit: r.unit, figures: map[string][]float64{}}
	}
	return t
}

func (t table) add(key, library string, value float64) {
	if r := t[key]; r != nil {
		r.figures[library] = append(r.figures[library], value)
	}
}

// readPeers reads lines of rma.c with the library's name in front.
func (t table) readPeers(in io.Reader) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var library, test, unit string
		var bytes, window int
		var value float64
		if _, err := fmt.Sscan(lines.Text(), &library, &test, &bytes, &window, &value, &unit); err != nil {
			return fmt.Errorf("%q is no figure: %w", lines.Text(), err)
		}
		key := fmt.Sprintf("%s %d", test, bytes)
		if strings.HasSuffix(test, "-rate") {
			key = fmt.Sprintf("%s %d", test, window)
		}
		t.add(key, library, value)
	}
	return lines.Err()
}

// readOurs reads what xdprma perf --json printed. A turn of the all-to-all is a
// pass of scale-put and one of scale-barrier.
func (t table) readOurs(in io.Reader) error {
	puts := 0.0
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var r perf.Result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("%q is no result: %w", lines.Text(), err)
		}
		switch {
		case strings.HasSuffix(r.Test, "-rate"):
			t.add(fmt.Sprintf("%s %d", r.Test, r.Window), ours, r.MopsPerS)
		case strings.HasSuffix(r.Test, "-bandwidth"):
			t.add(fmt.Sprintf("%s %d", r.Test, r.Bytes), ours, r.MBPerS)
		case r.Test == "progress-1-busy-paced":
			t.add("progress 8", ours, r.P50)
		case r.Test == "scale-put" && r.Ranks == 8:
			puts = r.P50
		case r.Test == "scale-barrier" && r.Ranks == 8:
			t.add("all-to-all 8", ours, puts+r.P50)
		default:
			t.add(fmt.Sprintf("%s %d", r.Test, r.Bytes), ours, r.P50)
		}
	}
	return lines.Err()
}

// median returns the middle of values, false if there are none.
func median(values []float64) (float64, bool) {
	if len(values) == 0 {
		return 0, false
	}
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2], true
}

// print writes the table. A ratio is how many times better xdprma is.
func (t table) print(out io.Writer, mtu int) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "MTU %d\tunit\txdprma\tMPICH\tOpen MPI\t× MPICH\t× Open MPI\n", mtu)
	for _, k := range rows {
		r := t[k.key]
		mine, ok := median(r.figures[ours])
		cells := []string{r.name, r.unit, cell(mine, ok)}
		var ratios []string
		for _, library := range []string{"mpich", "openmpi"} {
			theirs, there := median(r.figures[library])
			cells = append(cells, cell(theirs, there))
			better := theirs / mine
			if r.unit != "us" {
				better = mine / theirs
			}
			ratios = append(ratios, cell(better, ok && there))
		}
		fmt.Fprintln(w, strings.Join(append(cells, ratios...), "\t"))
	}
	return w.Flush()
}

func cell(v float64, ok bool) string {
	if !ok {
		return "failed"
	}
	return fmt.Sprintf("%.3g", v)
}

func run(mtu int, peers, mine string) error {
	t := newTable()
	for _, f := range []struct {
		name string
		read func(io.Reader) error
	}{{peers, t.readPeers}, {mine, t.readOurs}} {
		in, err := os.Open(f.name)
		if err != nil {
			return err
		}
		err = f.read(in)
		in.Close()
		if err != nil {
			return err
		}
	}
	return t.print(os.Stdout, mtu)
}

func main() {
	mtu := flag.Int("mtu", 1500, "of the interfaces that were used")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: peers [-mtu B] FIGURES-OF-PEERS RESULTS-OF-XDPRMA; see bench/peers/run.sh")
		os.Exit(2)
	}
	if err := run(*mtu, flag.Arg(0), flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}
