package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTroubleshootingQuotesWhatIsSaid looks for each text of docs/troubleshooting.md's tables in the
// sources.
func TestTroubleshootingQuotesWhatIsSaid(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		sources.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	joined := regexp.MustCompile(`"\s*\+\s*\n\s*"`).ReplaceAllString(sources.String(), "")
	texts := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(string(page), -1)
	if len(texts) < 20 {
		t.Errorf("the page has %d texts", len(texts))
	}
	for _, text := range texts {
		if !strings.Contains(joined, text[1]) {
			t.Errorf("nothing says %q", text[1])
		}
	}
}
