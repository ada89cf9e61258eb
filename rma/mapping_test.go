package rma_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
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

// TestMapping checks every row of the mapping that says that something is there.
func TestMapping(t *testing.T) {
	text, err := os.ReadFile("../docs/mpi-mapping.md")
	if err != nil {
		t.Fatal(err)
	}
	names, tests := declared(t, ".", "../comm", "../window", "../datatype", "../internal/engine")
	code, test := regexp.MustCompile("`([a-zA-Z.]+)`"), regexp.MustCompile(`\bTest[A-Z]\w+`)
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 || strings.TrimSpace(cells[1]) == "MPI" || strings.HasPrefix(cells[1], " ---") {
			continue
		}
		mpi, golang, there, remark := strings.TrimSpace(cells[1]), cells[2], strings.TrimSpace(cells[3]), cells[4]
		found := code.FindAllStringSubmatch(golang, -1)
		switch there {
		case "yes":
			rows++
			for _, m := range found {
				if !names[m[1]] {
					t.Errorf("%s: there is no %s", mpi, m[1])
				}
			}
			named := test.FindAllString(remark, -1)
			if len(found) == 0 || len(named) == 0 {
				t.Errorf("%s: a row says yes without a name and a test", mpi)
			}
			for _, name := range named {
				if !tests[name] {
					t.Errorf("%s: there is no test %s", mpi, name)
				}
			}
		case "planned":
			if len(found) == 0 {
				t.Errorf("%s: planned without a name", mpi)
			}
		case "no":
		default:
			t.Errorf("%s: %q is none of yes, planned and no", mpi, there)
		}
	}
	if rows < 60 {
		t.Errorf("only %d rows are there: was the table changed in form?", rows)
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
	_, tests := declared(t, ".", "../comm", "../window", "../datatype", "../examples/chapter")
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
