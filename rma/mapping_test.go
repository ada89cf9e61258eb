package rma_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// declared returns the exported names of the packages in dirs as package.Name or
// package.Type.Method, and the names of the tests.
func declared(t *testing.T, dirs ...string) (names, tests map[string]bool) {
	names, tests = map[string]bool{}, map[string]bool{}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			test := strings.HasSuffix(file, "_test.go")
			for _, d := range f.Decls {
				for _, name := range namesOf(d) {
					if test {
						tests[name] = true
					} else {
						names[f.Name.Name+"."+name] = true
					}
				}
			}
		}
	}
	return names, tests
}

func namesOf(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			base := d.Recv.List[0].Type
			if star, ok := base.(*ast.StarExpr); ok {
				base = star.X
			}
			if generic, ok := base.(*ast.IndexExpr); ok {
				base = generic.X
			}
			if id, ok := base.(*ast.Ident); ok {
				name = id.Name + "." + name
			}
		}
		return []string{name}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, spec.Name.Name)
			case *ast.ValueSpec:
				for _, id := range spec.Names {
					names = append(names, id.Name)
				}
			}
		}
	}
	return names
}

// A use is what the body of a test refers to: an identifier as "Put", a selector as
// ".Put" and, of a package, "rma.Put", and a string as it is quoted.
type uses map[string]bool

// testFiles is the test files of a package: what their functions and variables use.
type testFiles struct {
	internal map[string]bool // functions of the package itself, not of the one beside it
	uses     map[string]uses
}

func parseTests(t *testing.T, dir string) *testFiles {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	p := &testFiles{map[string]bool{}, map[string]uses{}}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			u := uses{}
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					u["."+n.Sel.Name] = true
					if x, ok := n.X.(*ast.Ident); ok {
						u[x.Name+"."+n.Sel.Name] = true
					}
				case *ast.Ident:
					u[n.Name] = true
				case *ast.BasicLit:
					u[n.Value] = true
				}
				return true
			})
			for _, name := range namesOf(d) {
				name = name[strings.LastIndex(name, ".")+1:]
				if p.uses[name] == nil {
					p.uses[name] = uses{}
				}
				maps.Copy(p.uses[name], u)
				p.internal[name] = p.internal[name] || !strings.HasSuffix(f.Name.Name, "_test")
			}
		}
	}
	return p
}

// all returns what a test uses, by itself or by what it calls in its package.
func (p *testFiles) all(test string) uses {
	all, done := uses{}, map[string]bool{}
	var add func(name string)
	add = func(name string) {
		if done[name] || name != test && strings.HasPrefix(name, "Test") {
			return
		}
		done[name] = true
		maps.Copy(all, p.uses[name])
		for used := range p.uses[name] {
			add(strings.TrimPrefix(used, "."))
		}
	}
	add(test)
	return all
}

// has reports whether the uses of a test of package in are of a name of the library:
// "rma.Put", or "rma.Win.Put". A class may go by its name in mpierr.
func (u uses) has(name, in string, classes map[string]string) bool {
	part := strings.Split(name, ".")
	if len(part) == 3 {
		return u["."+part[2]]
	}
	return u[name] || u[classes[name]] || part[0] == in && u[part[1]]
}

// classNames returns the names of package mpierr for the classes of package rma.
func classNames(t *testing.T) map[string]string {
	text, err := os.ReadFile("errors.go")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\t(Err\w+) += (mpierr\.\w+)`).FindAllStringSubmatch(string(text), -1) {
		names["rma."+m[1]] = m[2]
	}
	return names
}

// TestMapping checks every row of the mapping that says "yes" against the tests that the
// row names, and the page against the names of the chapter. One of a row's tests must
// use each of the row's names, and each test must use one of the names. In rows of info
// keys, the keys are the names.
func TestMapping(t *testing.T) {
	text, err := os.ReadFile("../docs/mpi-mapping.md")
	if err != nil {
		t.Fatal(err)
	}
	dirs := []string{".", "../comm", "../buffer", "../internal/protocol/engine/windows", "../window", "../datatype", "../internal/protocol/engine"}
	names, _ := declared(t, dirs...)
	classes := classNames(t)
	tests := map[string]*testFiles{} // by package
	for _, dir := range dirs {
		path, err := filepath.Abs(dir)
		if err != nil {
			t.Fatal(err)
		}
		tests[filepath.Base(path)] = parseTests(t, dir)
	}
	code, test := regexp.MustCompile("`([a-zA-Z0-9.]+)`"), regexp.MustCompile(`\bTest[A-Z]\w+`)
	word := regexp.MustCompile(`\w+`)
	rows, mapped := 0, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 || strings.TrimSpace(cells[1]) == "MPI" || strings.HasPrefix(cells[1], " ---") {
			continue
		}
		mpi, golang, there, remark := strings.TrimSpace(cells[1]), cells[2], strings.TrimSpace(cells[3]), cells[4]
		for _, m := range word.FindAllString(mpi, -1) {
			mapped[strings.ToUpper(m)] = true
		}
		var wanted []string
		for _, m := range code.FindAllStringSubmatch(golang, -1) {
			if wanted = append(wanted, m[1]); !names[m[1]] {
				t.Errorf("%s: there is no %s", mpi, m[1])
			}
		}
		named := test.FindAllString(remark, -1)
		switch there {
		case "yes":
			rows++
		case "no":
			if len(wanted) > 0 || len(strings.TrimSpace(remark)) == 0 {
				t.Errorf("%s: a row says no with a name, or without a reason", mpi)
			}
			continue
		default:
			t.Errorf("%s: %q is neither yes nor no", mpi, there)
		}
		if len(wanted) == 0 || len(named) == 0 {
			t.Errorf("%s: a row says yes without a name and a test", mpi)
		}
		if strings.Contains(golang, "`rma.Info`") && mpi == strings.ToLower(mpi) {
			wanted = nil
			for _, key := range word.FindAllString(mpi, -1) {
				wanted = append(wanted, strconv.Quote(key))
			}
		}
		used := map[string]bool{}
		for _, name := range named {
			found, useful := false, false
			for in, p := range tests {
				if p.uses[name] == nil {
					continue
				}
				found = true
				if !p.internal[name] {
					in = ""
				}
				all := p.all(name)
				for _, w := range wanted {
					if all.has(w, in, classes) {
						used[w], useful = true, true
					}
				}
			}
			if !found {
				t.Errorf("%s: there is no test %s", mpi, name)
			} else if !useful {
				t.Errorf("%s: %s uses none of %v", mpi, name, wanted)
			}
		}
		for _, w := range wanted {
			if !used[w] {
				t.Errorf("%s: none of %v uses %s", mpi, named, w)
			}
		}
	}
	if rows < 150 {
		t.Errorf("only %d rows are there: was the table changed in form?", rows)
	}
	chapter, err := os.ReadFile("testdata/chapter-names.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(string(chapter)) {
		if !mapped[strings.ToUpper(name)] {
			t.Errorf("%s has no row", name)
		}
	}
}

// TestExamplesOfChapter checks the table of the chapter's examples: every one is
// there, with the function and the file that has it.
func TestExamplesOfChapter(t *testing.T) {
	const dir = "../examples/chapter/"
	text, err := os.ReadFile("../docs/mpi-mapping.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| 11\\.(\\d+) \\| .+ \\| `(\\w+)` in `(\\w+\\.go)` \\|$")
	rows := row.FindAllStringSubmatch(string(text), -1)
	if len(rows) != 23 {
		t.Fatalf("%d examples, want 23", len(rows))
	}
	for i, m := range rows {
		if m[1] != strconv.Itoa(i+1) {
			t.Fatalf("row %d is of example 11.%s", i+1, m[1])
		}
		file, err := os.ReadFile(dir + m[3])
		if err != nil {
			t.Errorf("example 11.%s: %v", m[1], err)
		}
		comment := fmt.Sprintf("// %s is example 11.%s", m[2], m[1])
		found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(comment) + `\b(.*\n)(//.*\n)*func ` + m[2] + `\(`)
		if !found.Match(file) {
			t.Errorf("%s has no function %s whose comment starts with %q", m[3], m[2], comment)
		}
	}
	for _, tests := range []struct{ dir, name string }{{dir, "TestChapter"}, {"../vmtests", "TestChapterProgram"}} {
		if _, there := declared(t, tests.dir); !there[tests.name] || !strings.Contains(string(text), tests.name) {
			t.Errorf("%s of %s is not there, or not named", tests.name, tests.dir)
		}
	}
}

// TestMemoryModelPage checks that every promise of docs/memory-model.md names tests
// that are there.
func TestMemoryModelPage(t *testing.T) {
	text, err := os.ReadFile("../docs/memory-model.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tests := declared(t, ".", "../comm", "../internal/protocol/engine/windows", "../window", "../datatype", "../internal/elements", "../internal/words", "../examples/chapter")
	name := regexp.MustCompile(`\bTest[A-Z]\w+`)
	rows, header := 0, true
	for line := range strings.Lines(string(text)) {
		named := name.FindAllString(line, -1)
		for _, n := range named {
			if !tests[n] {
				t.Errorf("there is no test %s", n)
			}
		}
		if !strings.HasPrefix(line, "|") {
			header = true
			continue
		}
		if header = header && !strings.HasPrefix(line, "| ---"); header || strings.HasPrefix(line, "| ---") {
			continue
		}
		if rows++; len(named) == 0 {
			t.Errorf("no test beside %q", line)
		}
	}
	if rows < 35 {
		t.Errorf("only %d rows: was the page changed in form?", rows)
	}
}
