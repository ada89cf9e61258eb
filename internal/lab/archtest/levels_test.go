package archtest

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/secure"
)

var (
	levels = regexp.MustCompile(`, | or `).Split(secure.LevelNames, -1)
	either = "(" + strings.Join(levels, "|") + ")"
	// markedLevel matches a level in quotes or marks, alone or as the value of a variable or an option.
	markedLevel = regexp.MustCompile("[`\"*](?:[A-Z_]+=|--[a-z]+ )?" + either + "[`\"*]")
	// choice matches levels of which somebody chooses one. "The levels none and sign" are chosen already.
	choice = regexp.MustCompile(either + "(?:, | or )" + either + `\b`)
	// atLevel matches where something begins to hold that the higher levels have, too.
	atLevel = regexp.MustCompile(`[Aa]t\s+the\s+level\s+sign\b`)
)

// missingLevels returns the levels that a paragraph leaves out, if it lists levels.
func missingLevels(paragraph string) (missing []string) {
	marked := map[string]bool{}
	for _, m := range markedLevel.FindAllStringSubmatch(paragraph, -1) {
		marked[m[1]] = true
	}
	var must []string
	switch {
	case len(marked) > 1 || choice.MatchString(paragraph):
		must = levels
	case atLevel.MatchString(paragraph):
		must = levels[secure.Sign:]
	}
	for _, level := range must {
		if !regexp.MustCompile(`\b(?i:` + level + `)\b`).MatchString(paragraph) {
			missing = append(missing, level)
		}
	}
	return missing
}

// paragraphs cuts a page, a row of a table being a paragraph.
func paragraphs(text string) []string { return regexp.MustCompile(`\n\s*\n|\n\|`).Split(text, -1) }

// texts returns the comments and the literals of f.
func texts(f *file) (all []string) {
	for _, group := range f.ast.Comments {
		all = append(all, group.Text())
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			all = append(all, l.Value[1:len(l.Value)-1])
		}
		return true
	})
	return all
}

// A page, a comment or a help text that lists levels of security lists them all.
func TestLevelsAreAllListed(t *testing.T) {
	held := func(name, text string) {
		for _, p := range paragraphs(text) {
			if missing := missingLevels(p); len(missing) > 0 {
				t.Errorf("%s leaves out the level %q: %s", name, missing, p)
			}
		}
	}
	pages, _ := filepath.Glob(filepath.Join(root, "docs", "*.md")) // the pattern is right
	for _, page := range slices.Concat(pages, []string{filepath.Join(root, "README.md"), filepath.Join(root, "SECURITY.md")}) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		held(page, string(text))
	}
	eachSource(t, func(f *file) {
		if f.ast != nil && !f.test && !f.generated {
			for _, text := range texts(f) {
				held(f.name, text)
			}
		}
	})
}

func TestMissingLevelsAreFound(t *testing.T) {
	for text, missing := range map[string]string{
		"It is `none` or `seal`.":            "sign",
		"`XDPRMA_SECURITY=sign`, or `none`.": "seal",
		`"none", "sign", or "auto"`:          "seal",
		"a level: none, sign":                "seal",
		"none or sign. It is sealed.":        "seal",
		"At the level\nsign a frame":         "seal",
		"`none`, `sign` or seal":             "",
		"`sign` is the default":              "",
		"At the levels none and sign":        "",
		"At the levels sign and seal":        "",
		"At the level sign, and at seal":     "",
		"none of them is a sign of life":     "",
	} {
		if got := strings.Join(missingLevels(text), " "); got != missing {
			t.Errorf("%q leaves out %q, want %q", text, got, missing)
		}
	}
}
