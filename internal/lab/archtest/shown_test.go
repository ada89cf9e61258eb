package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// unpromised are public packages that promise nothing to users, as their comments say.
var unpromised = []string{"bpf"}

// isPublic reports whether users may import a package of the library.
func isPublic(dir string) bool {
	return !under(dir, unpromised) && !isInternal(module+dir) &&
		!slices.ContainsFunc(users, func(u string) bool { return strings.HasPrefix(dir+"/", u) })
}

// isInternal reports whether a path is that of a package that users of this module cannot import.
func isInternal(path string) bool {
	own, ok := strings.CutPrefix(path, module)
	return ok && strings.Contains("/"+own+"/", "/internal/")
}

// page looks for what a package shows of internal packages.
type page struct {
	pkg    *types.Package
	seen   map[types.Type]bool
	faults []string
}

// shown finds what exported names of pkg show of internal packages, and variables that a
// user could assign to by mistake.
func shown(pkg *types.Package) []string {
	p := &page{pkg: pkg, seen: map[types.Type]bool{}}
	for _, name := range pkg.Scope().Names() {
		o := pkg.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		p.look(name, o.Type())
		if v, ok := o.(*types.Var); ok && !isConstant(v) {
			p.faults = append(p.faults, fmt.Sprintf("%s.%s is a variable, which any program could assign to; make it a constant or a function", pkg.Path(), name))
		}
	}
	return p.faults
}

// isConstant reports whether everybody takes a variable for a constant. Go has no constants of
// these types: errors called Err, as in the standard library, and the predefined datatypes,
// which are compared by pointer.
func isConstant(v *types.Var) bool {
	isError := types.Identical(v.Type(), types.Universe.Lookup("error").Type())
	return isError && strings.HasPrefix(v.Name(), "Err") || v.Type().String() == "*"+module+"datatype.Type"
}

// look goes through what users see of t, which stands in the declaration that at names.
func (p *page) look(at string, t types.Type) {
	if p.seen[t] {
		return
	}
	p.seen[t] = true
	switch t := t.(type) {
	case *types.Basic, *types.TypeParam: // a constraint is looked at where its parameter is declared
	case *types.Alias:
		p.named(at, t.Obj())
		p.parameters(at, t.TypeParams())
		p.arguments(at, t.TypeArgs())
		p.look(at, t.Rhs())
	case *types.Named:
		p.named(at, t.Obj())
		p.arguments(at, t.TypeArgs())
		if t.Obj().Pkg() != p.pkg || t.Origin() != t {
			return // the page of another package, or of the type that this one was made of
		}
		p.parameters(at, t.TypeParams())
		p.look(at, t.Underlying())
		methods := types.NewMethodSet(types.NewPointer(t)) // with those of embedded types
		for m := range methods.Methods() {
			if m.Obj().Exported() {
				p.look(at+"."+m.Obj().Name(), m.Type())
			}
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() || f.Embedded() { // the exported names of either are the struct's
				p.look(at+"."+f.Name(), f.Type())
			}
		}
	case *types.Interface:
		for m := range t.Methods() {
			if m.Exported() {
				p.look(at+"."+m.Name(), m.Type())
			}
		}
		for e := range t.EmbeddedTypes() {
			p.look(at, e)
		}
	case *types.Union:
		for term := range t.Terms() {
			p.look(at, term.Type())
		}
	case *types.Signature:
		p.parameters(at, t.TypeParams())
		p.look(at, t.Params())
		p.look(at, t.Results())
	case *types.Tuple:
		for v := range t.Variables() {
			p.look(at, v.Type())
		}
	case *types.Map:
		p.look(at, t.Key())
		p.look(at, t.Elem())
	case interface{ Elem() types.Type }: // pointers, slices, arrays and channels
		p.look(at, t.Elem())
	default:
		panic(fmt.Sprintf("%s: a type of a kind that this test does not know: %T", at, t))
	}
}

func (p *page) parameters(at string, list *types.TypeParamList) {
	for t := range list.TypeParams() {
		p.look(at, t.Constraint())
	}
}

func (p *page) arguments(at string, list *types.TypeList) {
	for t := range list.Types() {
		p.look(at, t)
	}
}

// named notes that the declaration at names a type.
func (p *page) named(at string, o *types.TypeName) {
	if o.Pkg() != nil && isInternal(o.Pkg().Path()) {
		p.faults = append(p.faults, fmt.Sprintf("%s.%s shows %s.%s, which users cannot name; show a type of a public package",
			p.pkg.Path(), at, o.Pkg().Path(), o.Name()))
	}
}

// compiled returns an importer of what the go command has compiled of the module's public
// packages and of all that they import, and the paths of these packages.
func compiled(t *testing.T) (imports types.Importer, public []string) {
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./...")
	list.Dir = root
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
		if dir, ok := strings.CutPrefix(path, module); ok && isPublic(dir) {
			public = append(public, path)
		}
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(files[path])
	}), public
}

// A user can name every type that a public package shows.
func TestPublicPackagesShowPublicTypes(t *testing.T) {
	imports, public := compiled(t)
	if !slices.Contains(public, module+"rma") {
		t.Fatalf("the public packages are %q; rma was not found", public)
	}
	for _, path := range public {
		pkg, err := imports.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range shown(pkg) {
			t.Error(fault)
		}
	}
}

// inMemory imports packages from their source in memory.
type inMemory map[string]string

func (m inMemory) Import(path string) (*types.Package, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path+".go", m[path], 0)
	if err != nil {
		return nil, err
	}
	config := types.Config{Importer: m}
	return config.Check(path, fset, []*ast.File{f}, nil)
}

func TestShownTypesAreFound(t *testing.T) {
	const hidden = `package hidden
type T struct { Field int }
func (T) Method() {}
type Number interface { ~int }
type Generic[V any] struct{}
const C T2 = 1
type T2 int
`
	for _, test := range []struct {
		text, want string // want is part of the one fault; empty: none
	}{
		{"func F(hidden.T) {}", "p.F shows"},
		{"func F() (int, *hidden.T) { return 0, nil }", "p.F shows"},
		{"func F(map[string][]chan func(hidden.T)) {}", "p.F shows"},
		{"func F[V hidden.Number](V) {}", "hidden.Number"},
		{"func F() hidden.Generic[int] { panic(0) }", "hidden.Generic"},
		{"type S struct { Field hidden.T }", "p.S.Field shows"},
		{"type S struct { hidden.T }", "p.S.T shows"},
		{"type S struct { Field struct { Inner [2]hidden.T } }", "p.S.Field.Inner shows"},
		{"type s struct { Field hidden.T }; type S struct { s }", "p.S.s.Field shows"},
		{"type inner = hidden.T; type S struct { inner }", "p.S.inner shows"},
		{"type s struct{}; func (s) M() hidden.T { panic(0) }; type S struct { s }", "p.S.s.M shows"},
		{"type s struct{}; func (s) M() hidden.T { panic(0) }; func F() s { return s{} }", "p.F.M shows"},
		{"type S int; func (*S) M(hidden.T) {}", "p.S.M shows"},
		{"type S[V hidden.Number] int", "hidden.Number"},
		{"type G[V any] struct{}; func F() G[hidden.T] { panic(0) }", "p.F shows"},
		{"type I interface { M(hidden.T) }", "p.I.M shows"},
		{"type I interface { string | hidden.T2 }", "hidden.T2"},
		{"type A = hidden.T", "p.A shows"},
		{"type A = []hidden.T", "p.A shows"},
		{"type D hidden.T", ""}, // users see the fields of D alone
		{"const C = hidden.C", "p.C shows"},
		{"func F(error, G[int]) {}; type G[V any] struct { next *G[V]; held hidden.T }", ""},
		{"type S struct { field hidden.T }; func (S) m(hidden.T) {}; func f(hidden.T) {}; var v hidden.T", ""},
		{"var V int", "p.V is a variable"},
		{"var V = struct{ error }{}", "p.V is a variable"},
		{"var Failure error", "p.Failure is a variable"},
		{"var ErrLost error; var v int", ""},
	} {
		pkg, err := inMemory{
			module + "internal/hidden": hidden,
			module + "p":               "package p\nimport \"" + module + "internal/hidden\"\nvar _ hidden.T\n" + test.text,
		}.Import(module + "p")
		if err != nil {
			t.Fatalf("%s: %v", test.text, err)
		}
		switch faults := shown(pkg); {
		case test.want == "" && len(faults) > 0:
			t.Errorf("%s: %q", test.text, faults)
		case test.want != "" && (len(faults) != 1 || !strings.Contains(faults[0], test.want)):
			t.Errorf("%s: %q, want %q", test.text, faults, test.want)
		}
	}
}
