package link

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestPartsKeepTheirFields looks at what the sources select: a field of a part is selected in the
// file of the part alone. The parts of other packages need no such test.
func TestPartsKeepTheirFields(t *testing.T) {
	parts := map[string][]reflect.Type{
		"exchange.go": {reflect.TypeFor[pace]()},
		"served.go":   {reflect.TypeFor[served](), reflect.TypeFor[serving]()},
		"life.go":     {reflect.TypeFor[debts]()},
	}
	home := map[string]string{}
	for file, types := range parts {
		for _, part := range types {
			for i := range part.NumField() {
				home[part.Field(i).Name] = file
			}
		}
	}
	delete(home, "place") // Session.place, and answered's
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && home[s.Sel.Name] != "" {
				if seen[name] = true; home[s.Sel.Name] != name {
					t.Errorf("%s selects %s, a field of a part in %s", name, s.Sel.Name, home[s.Sel.Name])
				}
			}
			return true
		})
	}
	for file := range parts {
		if !seen[file] {
			t.Errorf("%s selects no field of its parts: nothing was looked at", file)
		}
	}
}
