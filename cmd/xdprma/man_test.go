package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// The manual page has the commands with their flags and descriptions, and no macro but those
// that are meant as such.
func TestManual(t *testing.T) {
	c := command(t, "man")
	if status := c.run(t); status != 0 {
		t.Fatalf("status %d: %s", status, &c.stderr)
	}
	page := c.stdout.String()
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "'") || strings.HasPrefix(line, ".") && !regexp.MustCompile(`^\.(TH|SH|SS|PP|TP|B|I)\b`).MatchString(line) {
			t.Errorf("%q is taken for a macro", line)
		}
	}
	for _, make := range []func() *cli.Command{runCommand, lendCommand, agentCommand, keyCommand, infoCommand, perfCommand, manCommand} {
		c := make()
		_, section, found := strings.Cut(page, "\n.SS xdprma "+c.Name+" ")
		if !found {
			t.Errorf("the command %s is missing in\n%s", c.Name, page)
		}
		section, _, _ = strings.Cut(section, "\n.SS ")
		for _, f := range c.VisibleFlags() {
			name := strings.Repeat("-", min(len(f.Names()[0]), 2)) + f.Names()[0]
			if !strings.Contains(section, "\n.TP\n.B "+roff(name)) {
				t.Errorf("%s: the flag %s is missing in\n%s", c.Name, name, section)
			}
		}
		for word := range strings.FieldsSeq(c.Description) {
			if !strings.Contains(section, roff(word)) {
				t.Errorf("%s: %q is missing in\n%s", c.Name, word, section)
			}
		}
	}
	for _, want := range []string{"\n.TP\n.B XDPRMA_PORT *\nthe UDP port,", "\n.TP\n.B put\\-latency\nput and flush\n", "\n.TP\n.B compare\\-and\\-swap\\-latency\ncompare_and_swap"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is missing in\n%s", want, page)
		}
	}
	if strings.Contains(page, `perf\-rank`) {
		t.Error("the page has a hidden command")
	}
}

func TestManualQuotes(t *testing.T) {
	for text, want := range map[string]string{".so x": `\&.so x`, "'x": `\&'x`, `a\b`: `a\eb`, "--n": `\-\-n`, "a.b": "a.b"} {
		if got := roff(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// TestCompletion has a bash complete command lines.
func TestCompletion(t *testing.T) {
	testenv.NeedsCommand(t, "bash", "bash")
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	// Readline fills COMP_WORDS and COMP_CWORD, and the function of bash-completion, which may be
	// missing here, words that the script has too.
	const script = `
		source <(xdprma completion bash) || exit
		_get_comp_words_by_ref() { :; }
		COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9
		$(complete -p xdprma | sed 's/.* -F \([^ ]*\) .*/\1/') && printf '%s\n' "${COMPREPLY[@]}"`
	for _, test := range []struct {
		words []string
		want  []string // that are offered
		not   []string // that are not
	}{
		{[]string{"xdprma", ""}, []string{"run", "info", "perf", "man", "completion"}, []string{"perf-rank"}},
		{[]string{"xdprma", "r"}, []string{"run"}, []string{"info"}},
		{[]string{"xdprma", "run", "--ran"}, []string{"--ranks-per-host"}, []string{"--mtu"}},
		{[]string{"xdprma", "run", "-n", "2", "--t"}, []string{"--transport", "--timeout"}, []string{"--transports"}},
		{[]string{"xdprma", "perf", "put-l"}, []string{"put-latency"}, []string{"get-latency"}},
		{[]string{"xdprma", "run", "--", "prog", "--t"}, nil, []string{"--transport"}}, // bash goes on with files
		{[]string{"xdprma", "completion", ""}, []string{"bash", "zsh", "fish"}, nil},
	} {
		c := command(t)
		c.Path, c.Args = bash, append([]string{"bash", "--norc", "-c", script, "bash"}, test.words...)
		c.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
		status := c.run(t)
		offered := strings.Fields(c.stdout.String())
		lacks := slices.ContainsFunc(test.want, func(w string) bool { return !slices.Contains(offered, w) })
		if status != 0 || lacks || slices.ContainsFunc(test.not, func(w string) bool { return slices.Contains(offered, w) }) {
			t.Errorf("%q: status %d, offers %q, want %q and not %q\n%s", test.words, status, offered, test.want, test.not, &c.stderr)
		}
	}
	for _, shell := range []string{"zsh", "fish"} {
		c := command(t, "completion", shell)
		if status := c.run(t); status != 0 || !strings.Contains(c.stdout.String(), "--generate-shell-completion") {
			t.Errorf("%s: status %d\n%s%s", shell, status, &c.stdout, &c.stderr)
		}
	}
}
