// Package archtest holds the repository to its architecture: which package may
// import which, which are pure, where unsafe may stand, that exported names are
// explained and show what users can name, that files stay short, and which may look at
// what is of the whole machine.
package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module   = "github.com/xdprma/xdprma/"
	root     = "../../.."
	maxLines = 600
)

// mayImport lists, for each package, the packages of this module that it may
// import outside its tests. It is the picture in docs/architecture.md.
var mayImport = map[string][]string{
	"mpierr":             {},
	"internal/openfiles": {},
	"internal/attribute": {},
	"internal/spelling":  {},
	"internal/lastwords": {},
	"datatype":           {"internal/words", "mpierr"},
	"internal/words":     {},
	"internal/elements":  {"datatype", "internal/words"},
	"stats":              {},
	"buffer":             {"datatype", "mpierr"},
	"window":             {"datatype", "mpierr"},

	"internal/protocol/engine/windows": {"datatype", "internal/elements", "internal/spelling", "internal/words", "mpierr", "window"},

	"internal/protocol/siphash":       {},
	"internal/protocol/wire":          {"datatype", "internal/protocol/secure", "internal/protocol/siphash", "window"},
	"internal/protocol/secure":        {},
	"internal/protocol/link/reliable": {},
	"internal/protocol/link/express":  {"internal/protocol/link/reliable", "internal/protocol/siphash", "internal/protocol/wire"},
	"internal/protocol/link": {"internal/protocol/link/express", "internal/protocol/link/reliable", "internal/protocol/secure", "internal/protocol/siphash",
		"internal/protocol/wire", "mpierr", "stats"},
	"internal/protocol/engine/line":       {},
	"internal/protocol/engine/membership": {"internal/protocol/link", "internal/protocol/wire", "mpierr"},
	"internal/protocol/engine/message":    {"internal/protocol/engine/line", "internal/protocol/link", "internal/protocol/wire", "mpierr", "stats"},
	"internal/protocol/engine/onesided": {"datatype", "internal/protocol/engine/line", "internal/protocol/engine/windows", "internal/protocol/link",
		"internal/protocol/link/express", "internal/protocol/wire", "internal/words", "mpierr", "stats", "window"},
	"internal/protocol/engine": {"internal/lastwords", "internal/protocol/engine/membership", "internal/protocol/engine/message", "internal/protocol/engine/onesided",
		"internal/protocol/engine/windows", "internal/protocol/link", "internal/protocol/link/reliable",
		"internal/protocol/secure", "internal/protocol/wire", "mpierr", "window"},
	"internal/protocol/calls/epochs":     {"datatype", "internal/protocol/engine/onesided", "internal/protocol/engine/windows", "mpierr", "window"},
	"internal/protocol/calls/collective": {"datatype", "internal/elements", "internal/protocol/engine", "mpierr"},

	"bpf":                   {},
	"bpf/faults":            {},
	"bpf/floor":             {},
	"bpf/slot":              {},
	"afxdp":                 {},
	"loader":                {"bpf", "internal/openfiles", "mpierr"},
	"userspace":             {"loader"},
	"internal/device/seat":  {},
	"internal/device/tier":  {"internal/openfiles", "internal/protocol/link/express", "loader", "mpierr", "stats"},
	"internal/device/agent": {"internal/protocol/wire", "loader", "mpierr"},
	"internal/device": {"afxdp", "internal/device/agent", "internal/device/seat", "internal/device/tier", "internal/launch/hostaddr", "internal/protocol/engine",
		"internal/protocol/link/express", "internal/protocol/siphash", "internal/protocol/wire", "loader", "mpierr", "stats", "userspace"},
	"internal/device/poller": {"internal/device", "internal/device/seat", "internal/protocol/engine", "mpierr", "stats"},

	"internal/launch/pmi":       {},
	"internal/launch/hostaddr":  {},
	"internal/launch/hostmem":   {},
	"internal/launch/lent":      {"loader", "userspace"},
	"internal/launch/bootstrap": {"internal/lastwords", "internal/launch/hostaddr", "internal/launch/lent", "internal/launch/pmi", "internal/protocol/secure", "internal/spelling", "userspace"},

	"internal/launch/capability": {},
	"internal/launch/job": {"internal/device", "internal/device/poller", "internal/lastwords", "internal/launch/bootstrap", "internal/launch/capability", "internal/protocol/calls/collective", "internal/protocol/engine",
		"internal/protocol/engine/windows", "internal/protocol/link/express", "internal/protocol/secure", "internal/protocol/siphash", "internal/protocol/wire", "loader", "mpierr", "userspace", "window"},
	"internal/inside": {"internal/device/poller", "internal/launch/job"},

	"comm": {"buffer", "datatype", "internal/attribute", "internal/device/poller", "internal/inside", "internal/launch/job",
		"internal/protocol/calls/collective", "internal/protocol/engine", "mpierr"},
	"rma": {"buffer", "comm", "datatype", "internal/attribute", "internal/device/poller", "internal/device/tier", "internal/inside", "internal/lastwords", "internal/launch/bootstrap",
		"internal/launch/hostmem", "internal/launch/job", "internal/protocol/calls/epochs", "internal/protocol/engine/onesided",
		"internal/protocol/engine/windows", "internal/protocol/link/express", "internal/protocol/secure", "internal/protocol/wire", "mpierr", "stats", "userspace", "window"},

	"internal/device/memnet":     {"internal/device", "internal/protocol/engine", "internal/protocol/wire", "mpierr", "stats"},
	"internal/device/devicetest": {"internal/device", "internal/lab/testenv", "internal/protocol/wire", "loader", "stats"},
	"rmatest": {"internal/device", "internal/device/memnet", "internal/inside", "internal/launch/bootstrap", "internal/protocol/engine/windows", "rma",
		"userspace"},

	"internal/lab/testenv":        {},
	"internal/lab/ci":             {"internal/lab/testenv"},
	"internal/lab/apicheck":       {},
	"internal/lab/codes":          {"datatype", "internal/protocol/wire", "window"},
	"internal/lab/progress":       {},
	"internal/lab/logs":           {},
	"internal/lab/lossy":          {"internal/lab/testenv", "rma", "rmatest"},
	"internal/lab/foreign":        {},
	"internal/lab/netlab":         {},
	"internal/lab/netlab/labtest": {"internal/lab/netlab", "internal/lab/testenv"},
	"internal/lab/testjob":        {"internal/launch/bootstrap", "internal/protocol/secure", "rma", "userspace"},
	"internal/lab/fabric":         {"internal/protocol/link"},
	"internal/lab/credentials":    {"internal/protocol/link", "internal/protocol/secure", "internal/protocol/siphash", "internal/protocol/wire"},
	"internal/lab/program":        {"datatype", "internal/elements", "window"},
	"internal/lab/program/live":   {"buffer", "comm", "datatype", "internal/lab/program", "rma", "window"},
	"internal/lab/twin": {"datatype", "internal/elements", "internal/protocol/engine/onesided", "internal/protocol/engine/windows", "internal/protocol/link/express",
		"internal/protocol/wire", "internal/words", "window"},
	"internal/lab/sim": {"datatype", "internal/elements", "internal/lab/credentials", "internal/lab/program", "internal/lab/twin", "internal/protocol/calls/collective",
		"internal/protocol/calls/epochs", "internal/protocol/engine", "internal/protocol/engine/onesided", "internal/protocol/engine/windows",
		"internal/protocol/link/express", "internal/protocol/secure", "internal/protocol/wire", "mpierr", "window"},
}

// The trees that use the library, as a user does: they may import anything.
var users = []string{"cmd/", "deploy/", "examples/", "vmtests/"}

// layers are the folders of internal/protocol, the highest first, which is the order in which
// a listing shows them. A layer uses itself and those after it.
var layers = []string{"calls", "engine", "link", "wire", "secure", "siphash"}

// pure are the packages, or the trees of them, that have no input or output, no clock and no
// goroutine.
var pure = []string{"datatype", "window", "internal/words", "internal/elements", "internal/protocol", "internal/lab/fabric", "internal/lab/program", "internal/lab/sim", "internal/lab/twin",
	"internal/launch/pmi", "internal/device/seat"}

// impureBelow are packages that stand below a pure one and are not pure.
var impureBelow = []string{"internal/lab/program/live"}

func isPure(dir string) bool { return under(dir, pure) && !slices.Contains(impureBelow, dir) }

// Packages that pure packages must not import, with all packages below them.
var impure = []string{"net", "os", "syscall", "time", "crypto/rand", "math/rand", "log", "golang.org/x/sys", "context"}

// impureAllowed lists the exceptions: file, then import.
var impureAllowed = [][2]string{
	{"internal/protocol/engine/windows/memory.go", "os"}, // the page size
	{"internal/protocol/engine/windows/memory.go", "golang.org/x/sys/unix"},
	{"internal/protocol/secure/key.go", "crypto/rand"},  // a new key, which launchers draw
	{"internal/protocol/secure/ticket.go", "net/netip"}, // which is pure
}

// file is one source file, its name relative to the repository's root.
type file struct {
	name      string
	text      []byte
	ast       *ast.File // nil unless Go
	fset      *token.FileSet
	test      bool
	generated bool
}

func (f *file) dir() string { return path.Dir(f.name) }

func parse(name string, text []byte) (*file, error) {
	f := &file{name: name, text: text, test: strings.HasSuffix(name, "_test.go"), fset: token.NewFileSet()}
	if strings.HasSuffix(name, ".go") {
		var err error
		if f.ast, err = parser.ParseFile(f.fset, name, text, parser.ParseComments); err != nil {
			return nil, err
		}
		f.generated = ast.IsGenerated(f.ast)
	}
	return f, nil
}

// imports returns the paths that f imports.
func (f *file) imports() []string {
	var paths []string
	for _, i := range f.ast.Imports {
		p, _ := strconv.Unquote(i.Path.Value) // the parser has checked it
		paths = append(paths, p)
	}
	return paths
}

func under(p string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return p == root || strings.HasPrefix(p, root+"/") })
}

// direction checks that imports point the way of the architecture.
func direction(f *file) (faults []string) {
	isUser := slices.ContainsFunc(users, func(u string) bool { return strings.HasPrefix(f.name, u) })
	if f.test || isUser {
		return nil
	}
	allowed, known := mayImport[f.dir()]
	if !known {
		return []string{fmt.Sprintf("%s: package %s has no place in the architecture; give it one in mayImport", f.name, f.dir())}
	}
	for _, p := range f.imports() {
		if own, ok := strings.CutPrefix(p, module); ok && !slices.Contains(allowed, own) {
			faults = append(faults, fmt.Sprintf("%s: %s must not import %s", f.name, f.dir(), own))
		}
	}
	return faults
}

// layered checks that a layer of the protocol uses itself and those below it, and that what
// makes a layer's parts does not know the layer as a whole.
func layered(f *file) (faults []string) {
	const protocol = "internal/protocol/"
	layer := func(dir string) int {
		name, _, _ := strings.Cut(strings.TrimPrefix(dir, protocol), "/")
		return slices.Index(layers, name)
	}
	if f.test || !strings.HasPrefix(f.dir(), protocol) {
		return nil
	}
	if layer(f.dir()) < 0 {
		faults = append(faults, fmt.Sprintf("%s: %s is in no layer of the protocol; they are %v", f.name, f.dir(), layers))
	}
	for _, p := range f.imports() {
		own, ok := strings.CutPrefix(p, module)
		switch {
		case !ok:
		case under(own, []string{"internal/launch", "internal/lab"}):
			faults = append(faults, fmt.Sprintf("%s: the protocol must not import %s, which stands beside it", f.name, own))
		case strings.HasPrefix(own, protocol) && layer(own) < layer(f.dir()):
			faults = append(faults, fmt.Sprintf("%s: %s is a layer above: %s must not import it", f.name, own, f.dir()))
		case strings.HasPrefix(f.dir(), own+"/"):
			faults = append(faults, fmt.Sprintf("%s: %s is put together from %s, which must not import it", f.name, own, f.dir()))
		}
	}
	return faults
}

// purity checks that the protocol is free of input, output, time and goroutines.
func purity(f *file) (faults []string) {
	if f.test || !isPure(f.dir()) {
		return nil
	}
	for _, p := range f.imports() {
		seeded := (f.dir() == "internal/lab/sim" || f.dir() == "internal/lab/program") && p == "math/rand/v2" // its random numbers come from a seed
		if under(p, impure) && !seeded && !slices.Contains(impureAllowed, [2]string{f.name, p}) {
			faults = append(faults, fmt.Sprintf("%s: %s is pure and must not import %s", f.name, f.dir(), p))
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType, *ast.SendStmt:
			faults = append(faults, fmt.Sprintf("%v: %s is pure and must not use goroutines or channels", f.fset.Position(n.Pos()), f.dir()))
		}
		return true
	})
	return faults
}

// safety checks that unsafe and cgo stand only where they may.
func safety(f *file) (faults []string) {
	named := strings.HasSuffix(strings.TrimSuffix(strings.TrimSuffix(f.name, ".go"), "_test"), "_unsafe")
	for _, p := range f.imports() {
		if p == "C" || p == "unsafe" && !named && !f.generated {
			faults = append(faults, fmt.Sprintf("%s: imports %s; unsafe belongs in *_unsafe.go, C nowhere", f.name, p))
		}
	}
	return faults
}

// complete checks that no test is skipped but by testenv, which fails it in CI.
func complete(f *file) (faults []string) {
	if f.dir() == "internal/lab/testenv" || f.name == "rmatest/run.go" { // which passes on what a rank says
		return nil
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if s, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, s.Sel.Name) {
				faults = append(faults, fmt.Sprintf("%v: %s would go unnoticed in CI; use testenv.Lacks", f.fset.Position(n.Pos()), s.Sel.Name))
			}
		}
		return true
	})
	return faults
}

// counted is how many inputs make fuzz tries a target with.
var counted = regexp.MustCompile(`^//fuzz:inputs [1-9][0-9]*$`)

// sized checks that each fuzz target follows the number of inputs that it is tried
// with: a target without one would be left out. A number and not a time: Go's fuzzer now and
// then fails at the end of its time, without an input that fails (golang/go 75804).
func sized(f *file) (faults []string) {
	if !f.test {
		return nil
	}
	for _, d := range f.ast.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Fuzz") {
			if fn.Doc == nil || !counted.MatchString(fn.Doc.List[len(fn.Doc.List)-1].Text) {
				faults = append(faults, fmt.Sprintf("%v: the line before %s must say for how many inputs it runs: //fuzz:inputs N", f.fset.Position(fn.Pos()), fn.Name.Name))
			}
		}
	}
	return faults
}

// wellKnown are methods whose meaning their interfaces state.
var wellKnown = []string{"String", "Error", "Unwrap", "Is", "As", "Len", "Less", "Swap"}

// documented checks that every exported name has a doc comment.
func documented(f *file) (faults []string) {
	if f.test || f.generated || f.ast.Name.Name == "main" {
		return nil
	}
	need := func(name *ast.Ident, comments ...*ast.CommentGroup) {
		if name.IsExported() && !slices.ContainsFunc(comments, func(c *ast.CommentGroup) bool { return c != nil }) {
			faults = append(faults, fmt.Sprintf("%v: %s has no doc comment", f.fset.Position(name.Pos()), name.Name))
		}
	}
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || receiverExported(d) && !slices.Contains(wellKnown, d.Name.Name) {
				need(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					need(s.Name, s.Doc, s.Comment, soleDoc(d))
				case *ast.ValueSpec: // a group's comment speaks for its members
					for _, name := range s.Names {
						need(name, s.Doc, s.Comment, d.Doc)
					}
				}
			}
		}
	}
	return faults
}

// soleDoc is the comment of a declaration of one type.
func soleDoc(d *ast.GenDecl) *ast.CommentGroup {
	if d.Lparen.IsValid() {
		return nil
	}
	return d.Doc
}

func receiverExported(d *ast.FuncDecl) bool { return ast.IsExported(typeName(d.Recv.List[0].Type)) }

// typeName returns the name of the type that a receiver is of.
func typeName(t ast.Expr) string {
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// selfEvident are fields whose names are words of the standard that say all.
var selfEvident = []string{"comm.Status.Tag"}

// explained checks that every exported field of a public type is spoken of: by a comment of
// its own, by one above it and the fields next to it, or by the comment of its type.
func explained(f *file) (faults []string) {
	if f.test || f.generated || f.ast.Name.Name == "main" || !isPublic(f.dir()) {
		return nil
	}
	line := func(p token.Pos) int { return f.fset.Position(p).Line }
	for _, d := range f.ast.Decls {
		d, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range d.Specs {
			t, ok := s.(*ast.TypeSpec)
			if !ok || !t.Name.IsExported() {
				continue
			}
			fields, ok := t.Type.(*ast.StructType)
			if !ok {
				continue
			}
			said, last := false, 0 // whether a comment above speaks for the fields that follow each other, and where the last one ends
			for _, field := range fields.Fields.List {
				said = field.Doc != nil || said && line(field.Pos()) == last+1
				last = line(field.End())
				for _, name := range field.Names {
					ofType := regexp.MustCompile(`\b` + name.Name + `\b`).MatchString(t.Doc.Text() + soleDoc(d).Text())
					full := f.ast.Name.Name + "." + t.Name.Name + "." + name.Name
					if name.IsExported() && !said && field.Comment == nil && !ofType && !slices.Contains(selfEvident, full) {
						faults = append(faults, fmt.Sprintf("%v: no comment says what the field %s is", f.fset.Position(name.Pos()), full))
					}
				}
			}
		}
	}
	return faults
}

// relative finds a sentence that opens with a relative clause.
var relative = regexp.MustCompile(`(?:^|[.:;?!]\s+|\n\n\s*|- )((?:What|Who|Those) \S+)`)

// openings checks that the sentences of comments begin with the thing that they speak of.
func openings(f *file) (faults []string) {
	if f.generated {
		return nil
	}
	for _, group := range f.ast.Comments {
		for _, m := range relative.FindAllStringSubmatch(group.Text(), -1) {
			faults = append(faults, fmt.Sprintf("%s: a sentence opens with %q: begin it with the thing that it speaks of", f.fset.Position(group.Pos()), m[1]))
		}
	}
	return faults
}

// short checks the length of a file.
func short(f *file) []string {
	if n := bytes.Count(f.text, []byte("\n")); n > maxLines && !f.generated {
		return []string{fmt.Sprintf("%s: %d lines, more than %d", f.name, n, maxLines)}
	}
	return nil
}

// check applies every rule.
func check(f *file) []string {
	faults := short(f)
	if f.ast != nil {
		for _, rule := range []func(*file) []string{direction, layered, purity, safety, complete, sized, documented, explained, openings, shared, guarded, ticked} {
			faults = append(faults, rule(f)...)
		}
	}
	return faults
}

// eachSource calls visit with each source file of the repository.
func eachSource(t *testing.T, visit func(*file)) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "bin" || name != "." && strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !slices.Contains([]string{".go", ".c", ".h"}, path.Ext(name)):
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		f, err := parse(name, text)
		if err != nil {
			return err
		}
		visit(f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestArchitecture(t *testing.T) {
	seen := map[string]bool{}
	eachSource(t, func(f *file) {
		seen[f.dir()] = true
		for _, fault := range check(f) {
			t.Error(fault)
		}
	})
	for dir := range mayImport {
		if !seen[dir] {
			t.Errorf("mayImport names package %s, which does not exist", dir)
		}
	}
}
