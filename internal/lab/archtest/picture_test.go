package archtest

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// everywhere are packages that so many others import that an arrow to them says nothing.
var everywhere = []string{"mpierr"}

// arrows returns the imports between the library's packages, without those that follow
// from others: where a imports b and b imports c, an arrow from a to c says nothing.
func arrows(imports map[string][]string) []string {
	var reaches func(from, to string) bool
	reaches = func(from, to string) bool {
		return slices.ContainsFunc(imports[from], func(p string) bool { return p == to || reaches(p, to) })
	}
	var found []string
	for from, list := range imports {
		for _, to := range list {
			if !slices.ContainsFunc(list, func(p string) bool { return p != to && reaches(p, to) }) {
				found = append(found, from+" --> "+to)
			}
		}
	}
	slices.Sort(found)
	return found
}

// The picture in docs/architecture.md has an arrow for each import of the library's
// packages, and no other one.
func TestThePictureShowsTheImports(t *testing.T) {
	imports := map[string]map[string]bool{}
	eachSource(t, func(f *file) {
		if _, library := mayImport[f.dir()]; !library || f.ast == nil || f.test {
			return
		}
		for _, p := range f.imports() {
			own, ok := strings.CutPrefix(p, module)
			if !ok || slices.Contains(everywhere, own) {
				continue
			}
			if imports[f.dir()] == nil {
				imports[f.dir()] = map[string]bool{}
			}
			imports[f.dir()][own] = true
		}
	})
	lists := map[string][]string{}
	for dir, set := range imports {
		lists[dir] = slices.Sorted(maps.Keys(set))
	}
	want := arrows(lists)

	page, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	drawn := regexp.MustCompile(`(?m)^ *([a-z/]+ --> [a-z/]+)$`).FindAllStringSubmatch(string(page), -1)
	var got []string
	for _, arrow := range drawn {
		got = append(got, arrow[1])
	}
	for _, arrow := range want {
		if !slices.Contains(got, arrow) {
			t.Errorf("docs/architecture.md lacks the arrow %q", arrow)
		}
	}
	for i, arrow := range got {
		if !slices.Contains(want, arrow) {
			t.Errorf("docs/architecture.md draws the arrow %q, which no import stands for", arrow)
		}
		if slices.Contains(got[:i], arrow) {
			t.Errorf("docs/architecture.md draws the arrow %q twice", arrow)
		}
	}
}

// The list of folders at the head of docs/architecture.md has each package of the table.
func TestTheFoldersAreListed(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "## Folders\n\n```\n")
	list, _, _ = strings.Cut(list, "```")
	for dir := range mayImport {
		if name := path.Base(dir); !regexp.MustCompile(`(?m)^.*\b`+name+`/.*  `).MatchString(list) && path.Dir(dir) != "bpf" {
			t.Errorf("the folders in docs/architecture.md lack %s", dir)
		}
	}
}

// A package that the table allows and nothing imports would let the next one in unseen.
func TestTheTableAllowsNoMoreThanIsImported(t *testing.T) {
	imported := map[string]bool{}
	eachSource(t, func(f *file) {
		if f.ast == nil || f.test {
			return
		}
		for _, p := range f.imports() {
			if own, ok := strings.CutPrefix(p, module); ok {
				imported[f.dir()+" "+own] = true
			}
		}
	})
	for dir, list := range mayImport {
		for _, p := range list {
			if !imported[dir+" "+p] {
				t.Errorf("mayImport lets %s import %s, which it does not", dir, p)
			}
		}
	}
}

func TestArrowsThatFollowFromOthersAreLeftOut(t *testing.T) {
	got := arrows(map[string][]string{"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}})
	if want := []string{"a --> b", "b --> c", "c --> d"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
