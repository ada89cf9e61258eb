package onesided

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestPartsLeaveEachOthersFieldsAlone looks at the methods of the parts: what one selects is
// no field of another, nor of what that keeps about a peer.
func TestPartsLeaveEachOthersFieldsAlone(t *testing.T) {
	fields := map[string][]reflect.Type{
		"Locks":  {reflect.TypeFor[Locks]()},
		"Origin": {reflect.TypeFor[Origin](), reflect.TypeFor[originSide]()},
		"Target": {reflect.TypeFor[Target](), reflect.TypeFor[targetSide]()},
	}
	part, shared := map[string]string{}, map[string]bool{"base": true, "locks": true, "origin": true}
	for name, types := range fields {
		for _, s := range types {
			for i := range s.NumField() {
				if f := s.Field(i).Name; !shared[f] {
					part[f] = name
				}
			}
		}
	}
	// Fields of an Access or an op that are called as one of a part.
	for _, f := range []string{"waiting", "pending", "asked", "mark", "granted"} {
		delete(part, f)
	}
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			method, ok := d.(*ast.FuncDecl)
			if !ok || method.Recv == nil {
				continue
			}
			star, ok := method.Recv.List[0].Type.(*ast.StarExpr)
			if !ok {
				continue
			}
			own := star.X.(*ast.Ident).Name
			if fields[own] == nil {
				continue
			}
			ast.Inspect(method, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && part[s.Sel.Name] != "" {
					if seen[own]++; part[s.Sel.Name] != own {
						t.Errorf("%s.%s selects %s, a field of %s", own, method.Name.Name, s.Sel.Name, part[s.Sel.Name])
					}
				}
				return true
			})
		}
	}
	for name := range fields {
		if seen[name] == 0 {
			t.Errorf("no method of %s selects a field of it: none was looked at", name)
		}
	}
}
