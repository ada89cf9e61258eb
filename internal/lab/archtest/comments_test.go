package archtest

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// identifier matches names, and mixed those that cannot be words of the language.
	identifier = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)
	mixed      = regexp.MustCompile(`\b[A-Za-z][a-z0-9]+[A-Z][A-Za-z0-9]*\b|\b[a-z][A-Z][A-Za-z0-9]*\b`)
	opening    = regexp.MustCompile(`^(?:An? |The )?(\w+)`)
)

// foreignNames are names in comments that nothing here has: units, ciphers, and others' names.
var foreignNames = []string{"KiB", "MiB", "GiB", "RoCE", "ChaCha8", "ChaCha20", "SymmetricState", "CipherState", "SipRound", "MaxStartups", "TestCounter"}

// names adds the names that f has to known.
func names(f *file, known map[string]bool) {
	if f.ast == nil {
		for _, name := range identifier.FindAllString(string(f.text), -1) {
			known[name] = true
		}
		return
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			known[id.Name] = true
		}
		return true
	})
}

// misnamed finds names in the comments of f that nothing has, and docs of functions and types that do not
// begin with their name, or have it twice in place of a word.
func misnamed(f *file, known map[string]bool) (faults []string) {
	if f.ast == nil || f.generated {
		return nil
	}
	fault := func(at ast.Node, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("%v: %s", f.fset.Position(at.Pos()), fmt.Sprintf(format, args...)))
	}
	for _, group := range f.ast.Comments {
		for _, name := range mixed.FindAllString(group.Text(), -1) {
			if !known[name] && !slices.Contains(foreignNames, name) {
				fault(group, "nothing is called %s: name what there is, or add it to foreignNames", name)
			}
		}
	}
	if f.test {
		return faults
	}
	doc := func(name *ast.Ident, group *ast.CommentGroup) {
		text := group.Text()
		if first := opening.FindStringSubmatch(text); first != nil && first[1] != name.Name {
			fault(name, "the comment of %s begins with %s", name.Name, first[1])
		}
		if len(wordsOf(name.Name)) > 1 && strings.Contains(text, " the "+name.Name+" ") {
			fault(name, "the comment of %s explains it by its own name", name.Name)
		}
	}
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			doc(d.Name, d.Doc)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if t, ok := s.(*ast.TypeSpec); ok && soleDoc(d) != nil {
					doc(t.Name, soleDoc(d))
				} else if ok {
					doc(t.Name, t.Doc)
				}
			}
		}
	}
	return faults
}

func TestCommentsNameWhatThereIs(t *testing.T) {
	known, files := map[string]bool{}, []*file{}
	eachSource(t, func(f *file) {
		names(f, known)
		files = append(files, f)
	})
	for _, f := range files {
		for _, fault := range misnamed(f, known) {
			t.Error(fault)
		}
	}
}

// TestContributingNamesWhatThereIs looks up the tests, functions and files that the page says are to be
// touched.
func TestContributingNamesWhatThereIs(t *testing.T) {
	known := map[string]bool{}
	eachSource(t, func(f *file) { names(f, known) })
	page, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, word := range regexp.MustCompile("`[^`\\n]+`").FindAllString(string(page), -1) {
		word = strings.Trim(word, "`")
		switch {
		case mixed.FindString(word) == word:
			if n++; !known[word] {
				t.Errorf("CONTRIBUTING.md: nothing is called %s", word)
			}
		case strings.Contains(word, "/") && !strings.ContainsAny(word, " *"):
			if _, err := os.Stat(filepath.Join(root, word)); err != nil && !strings.HasPrefix(word, "cmd/vN") && word != ".ci/run" {
				t.Errorf("CONTRIBUTING.md: %v", err)
			}
		}
	}
	if n < 20 {
		t.Errorf("%d names were looked up", n)
	}
}

func TestMisnamedCommentsAreFound(t *testing.T) {
	for _, test := range []struct {
		text, want string // want is part of the one fault; empty: none
	}{
		{"// It is like mayOpen.\nvar a int", "nothing is called mayOpen"},
		{"// It is like a MayOpen.\nvar a int", "nothing is called MayOpen"},
		{"// It is like mayShut, of 3 KiB, XDP and a UMEM's.\nvar mayShut int", ""},
		{"// g does.\nfunc f() {}", "begins with g"},
		{"// f does.\nfunc f() {}", ""},
		{"// A pair is two.\ntype pair struct{}", ""},
		{"// Two are a pair.\ntype pair struct{}", "begins with Two"},
		{"type (\n// Two are a pair.\npair struct{}\n)", "begins with Two"},
		{"// byID returns the byID of it.\nfunc byID() {}", "by its own name"},
		{"// path returns the path of it.\nfunc path() {}", ""},
		{"func f() {}", ""},
	} {
		f, err := parse("p/a.go", []byte("package p\n"+test.text))
		if err != nil {
			t.Fatal(err)
		}
		known := map[string]bool{}
		names(f, known)
		switch faults := misnamed(f, known); {
		case test.want == "" && len(faults) > 0:
			t.Errorf("%q: %q", test.text, faults)
		case test.want != "" && (len(faults) != 1 || !strings.Contains(faults[0], test.want)):
			t.Errorf("%q: %q, want %q", test.text, faults, test.want)
		}
	}
}
