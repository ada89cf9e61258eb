package archtest

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// apart are pure packages whose tests do several runs at once, each with all that it needs
// made anew.
var apart = []string{"internal/device/seat", "internal/lab/sim"}

// self is this package.
const self = "internal/lab/archtest"

// concurrent reports whether f starts anything beside what is running.
func concurrent(f *file) (yes bool) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			yes = true
		case *ast.SelectorExpr:
			yes = yes || slices.Contains([]string{"Go", "Parallel", "RunParallel", "AfterFunc"}, n.Sel.Name)
		}
		return !yes
	})
	return yes
}

// The race detector has nothing to find in a pure package whose tests run in one goroutine,
// nor here. The step of CI that uses it leaves out these packages, and no other ones.
func TestRaceLeavesOutWhatRunsAlone(t *testing.T) {
	at := map[string]bool{} // packages that are pure, and whether something runs at once there
	eachSource(t, func(f *file) {
		if f.ast != nil && (isPure(f.dir()) || f.dir() == self) {
			at[f.dir()] = at[f.dir()] || f.test && concurrent(f) && !slices.Contains(apart, f.dir())
		}
	})
	var want []string
	for dir, busy := range at {
		if !busy {
			want = append(want, dir)
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^ALONE := ((?:.*\\\n)*.*)$`).FindSubmatch(text)
	if m == nil {
		t.Fatal("the Makefile has no list ALONE")
	}
	got := strings.Fields(strings.ReplaceAll(string(m[1]), "\\\n", " "))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("make race leaves out %q, want %q", got, want)
	}
}
