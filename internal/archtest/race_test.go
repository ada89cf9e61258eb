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
var apart = []string{"internal/seat", "internal/sim"}

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
	want := []string{"internal/archtest"}
	for _, dir := range pure {
		if strings.HasPrefix(dir, "internal/") {
			want = append(want, dir)
		}
	}
	eachSource(t, func(f *file) {
		if f.test && concurrent(f) && !slices.Contains(apart, f.dir()) {
			want = slices.DeleteFunc(want, func(dir string) bool { return dir == f.dir() })
		}
	})
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^ALONE := (.*)$`).FindSubmatch(text)
	if m == nil {
		t.Fatal("the Makefile has no list ALONE")
	}
	got := strings.Fields(string(m[1]))
	for i := range got {
		got[i] = "internal/" + got[i]
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("make race leaves out %q, want %q", got, want)
	}
}
