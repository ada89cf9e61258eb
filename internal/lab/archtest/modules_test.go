package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// modules are the folders of the repository's modules; the library's comes first.
var modules = []string{".", "cmd", "deploy", "tools"}

// required finds the requirements of a go.mod file: module and version.
var required = regexp.MustCompile(`(?m)^(?:require )?\s*(\S+\.\S+/\S+) (v\S+)`)

// requirements returns the versions of the modules that the text of a go.mod file requires.
func requirements(text string) map[string]string {
	versions := map[string]string{}
	for _, m := range required.FindAllStringSubmatch(text, -1) {
		versions[m[1]] = m[2]
	}
	return versions
}

// stated returns what the text of a go.mod file says after a word at the start of a line.
func stated(text, word string) []string {
	var found []string
	for _, m := range regexp.MustCompile(`(?m)^`+word+`\s+(.*)$`).FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

// The modules are of one Go version. None replaces another module, which go install refuses.
// The commands and the recipes are built with the versions that the library is tested with.
func TestModulesAgree(t *testing.T) {
	var library string
	for _, dir := range modules {
		text, err := os.ReadFile(filepath.Join(root, dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if dir == "." {
			library = string(text)
		}
		if got, want := stated(string(text), "go"), stated(library, "go"); !slices.Equal(got, want) {
			t.Errorf("%s/go.mod is of Go %v, and the library of %v", dir, got, want)
		}
		if found := stated(string(text), "replace"); len(found) > 0 {
			t.Errorf("%s/go.mod replaces %v: go install refuses that", dir, found)
		}
		if dir == "." || dir == "tools" {
			continue
		}
		ours := requirements(library)
		if len(ours) < 5 {
			t.Fatalf("go.mod requires %v; it was not read", ours)
		}
		for m, version := range requirements(string(text)) {
			if want := ours[m]; want != "" && version != want {
				t.Errorf("%s/go.mod requires %s %s, and the library %s", dir, m, version, want)
			}
		}
	}
}
