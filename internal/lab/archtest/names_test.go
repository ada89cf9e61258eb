package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// scope is where a name has one meaning: a package, or a type of it with its methods and
// fields.
type scope struct{ dir, owner string }

// named is one declaration: its name, and the functions that its body calls.
type named struct {
	name  string
	calls []string
}

// declared lists what f declares, by scope.
func declared(f *file) map[scope][]named {
	found := map[scope][]named{}
	add := func(owner, name string, body *ast.BlockStmt) {
		d := named{name: name}
		if body != nil {
			ast.Inspect(body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					d.calls = append(d.calls, id.Name)
				}
				return true
			})
		}
		at := scope{f.dir(), owner}
		found[at] = append(found[at], d)
	}
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			owner := ""
			if d.Recv != nil {
				owner = typeName(d.Recv.List[0].Type)
			}
			add(owner, d.Name.Name, d.Body)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					add("", s.Name.Name, nil)
					if t, ok := s.Type.(*ast.StructType); ok {
						for _, field := range t.Fields.List {
							for _, name := range field.Names {
								add(s.Name.Name, name.Name, nil)
							}
						}
					}
				case *ast.ValueSpec:
					for _, name := range s.Names {
						add("", name.Name, nil)
					}
				}
			}
		}
	}
	return found
}

// twins finds pairs of names in one scope that differ by case alone. They are in order
// where one of them is the body of the other, which then uses it.
func twins(declarations map[scope][]named) (faults []string) {
	for at, names := range declarations {
		for i, a := range names {
			for _, b := range names[:i] {
				if a.name != b.name && strings.EqualFold(a.name, b.name) &&
					!slices.Contains(a.calls, b.name) && !slices.Contains(b.calls, a.name) {
					faults = append(faults, fmt.Sprintf("%s: %s and %s of %q differ by case alone, and neither is the body of the other; name one for what it does",
						at.dir, a.name, b.name, at.owner))
				}
			}
		}
	}
	slices.Sort(faults)
	return faults
}

func TestNamesDifferByMoreThanCase(t *testing.T) {
	all := map[scope][]named{}
	eachSource(t, func(f *file) {
		if f.ast == nil || f.test || f.generated {
			return
		}
		for at, names := range declared(f) {
			all[at] = append(all[at], names...)
		}
	})
	for _, fault := range twins(all) {
		t.Error(fault)
	}
}

func TestTwinsAreFound(t *testing.T) {
	for _, test := range []struct {
		text   string
		faults int
	}{
		{"func F() { f() }; func f() {}", 0},
		{"func F() {}; func f() {}", 1},
		{"type T int; func t() {}", 1},
		{"type T struct { held int }; func (t *T) Held() bool { return t.held > 0 }", 0},
		{"type T struct { held int }; func (t *T) Held() bool { return false }", 1},
		{"type T int; func (T) M() {}; type U int; func (U) m() {}", 0},
	} {
		f, err := parse("p/a.go", []byte("package p\n"+test.text))
		if err != nil {
			t.Fatal(err)
		}
		if faults := twins(declared(f)); len(faults) != test.faults {
			t.Errorf("%s: %q", test.text, faults)
		}
	}
}

// forbidden reads the words that docs/glossary.md rules out, each with what to say
// instead: the rows of its table of words that are not used.
func forbidden(page string) map[string]string {
	_, table, _ := strings.Cut(page, "## Words that names do not use")
	words := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| `+"`([a-z]+)`"+` \| (.+) \|$`).FindAllStringSubmatch(table, -1) {
		words[row[1]] = row[2]
	}
	return words
}

// places reads the folders in which names may have a word: the rows of the glossary's table
// of words that keep to their places.
func places(page string) map[string][]string {
	_, table, _ := strings.Cut(page, "## Words that names keep to their places")
	table, _, _ = strings.Cut(table, "\n## ")
	folders := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z]+)` \\| (.+) \\|$").FindAllStringSubmatch(table, -1) {
		for _, folder := range regexp.MustCompile("`([a-z/]+)`").FindAllStringSubmatch(row[2], -1) {
			folders[row[1]] = append(folders[row[1]], folder[1])
		}
	}
	return folders
}

// isForm reports whether w is a word, or a form of it: its plural, or a form of the verb.
func isForm(w, word string) bool {
	stem := strings.TrimSuffix(word, "e")
	return w == word || slices.Contains([]string{word + "s", word + "es", stem + "ed", stem + "ing"}, w)
}

// A word of the glossary's table stands in names where it has its meaning, and each folder of
// the table has such a name.
func TestNamesHaveWordsInTheirPlaces(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/glossary.md"))
	if err != nil {
		t.Fatal(err)
	}
	folders := places(string(page))
	if len(folders) < 5 {
		t.Fatalf("docs/glossary.md has places for %v; its table was not read", slices.Sorted(maps.Keys(folders)))
	}
	used := map[[2]string]bool{}
	eachSource(t, func(f *file) {
		if f.ast == nil || f.test || f.generated {
			return
		}
		for _, names := range declared(f) {
			for _, d := range names {
				for _, w := range wordsOf(d.name) {
					for word, in := range folders {
						if !isForm(w, word) {
							continue
						}
						at := slices.IndexFunc(in, func(folder string) bool { return under(f.dir(), []string{folder}) })
						if at < 0 {
							t.Errorf("%s: %s: by the glossary, names have %q only in %v", f.name, d.name, word, in)
							continue
						}
						used[[2]string{word, in[at]}] = true
					}
				}
			}
		}
	})
	for word, in := range folders {
		for _, folder := range in {
			if !used[[2]string{word, folder}] {
				t.Errorf("docs/glossary.md: no name in %s has %q any more", folder, word)
			}
		}
	}
}

func TestFormsOfWordsAreKnown(t *testing.T) {
	for w, want := range map[string]bool{"reach": true, "reached": true, "reaching": true, "quiesced": true, "quiescing": true, "fences": true, "reacher": false, "meter": false} {
		got := slices.ContainsFunc([]string{"reach", "quiesce", "fence", "met"}, func(word string) bool { return isForm(w, word) })
		if got != want {
			t.Errorf("%q is a form: %v", w, got)
		}
	}
}

// wordsOf cuts a Go name into its words, in small letters.
func wordsOf(name string) []string {
	var words []string
	for _, w := range regexp.MustCompile(`[A-Z]+[a-z0-9]*|[a-z0-9]+`).FindAllString(name, -1) {
		words = append(words, strings.ToLower(w))
	}
	return words
}

func TestExportedNamesAreOfTheGlossary(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/glossary.md"))
	if err != nil {
		t.Fatal(err)
	}
	words := forbidden(string(page))
	if len(words) < 5 {
		t.Fatalf("docs/glossary.md rules out %v; its table was not read", slices.Sorted(maps.Keys(words)))
	}
	eachSource(t, func(f *file) {
		if f.ast == nil || f.test || f.generated || f.ast.Name.Name == "main" {
			return
		}
		for _, names := range declared(f) {
			for _, d := range names {
				for _, w := range wordsOf(d.name) {
					if instead, bad := words[w]; bad && ast.IsExported(d.name) {
						t.Errorf("%s: %s: the glossary rules out %q; say %s", f.name, d.name, w, instead)
					}
				}
			}
		}
	})
}

func TestNamesAreCutIntoWords(t *testing.T) {
	for name, want := range map[string]string{"LockAll": "lock all", "UDPPath": "udppath", "MaxTypeBytes": "max type bytes", "rttOf": "rtt of"} {
		if got := strings.Join(wordsOf(name), " "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
