package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// TestExamples runs the programs that people copy as processes, over each transport.
func TestExamples(t *testing.T) {
	dir := t.TempDir()
	testenv.ForAll(t, dir)
	for _, example := range []struct {
		name string
		args []string
		want string
	}{
		{"hello", nil, "counter: 3"},
		{"histogram", []string{"-numbers", "20000"}, "histogram: OK, 60000 numbers"},
		{"steal", []string{"-branches", "600"}, "steal: 18409 nodes"},
		{"halo", []string{"-rows", "30", "-columns", "20", "-steps", "200", "-o", "/dev/null"}, ""},
		{"paramserver", []string{"-rounds", "30"}, "round 29, 3 ranks: the loss is "},
		{"kv", []string{"-visits", "500"}, "kv: OK, 1500 visits"},
	} {
		program := filepath.Join(dir, example.name)
		if err := testenv.Build(filepath.Join("../../examples", example.name), program); err != nil {
			t.Fatal(err)
		}
		for _, transport := range []string{"udp", "xdp-native", "xdp-generic"} {
			t.Run(example.name+", "+transport, func(t *testing.T) {
				c := command(t, append([]string{"run", "-n", "3", "--transport", transport, "--", program}, example.args...)...)
				if transport == "udp" {
					nobody(c)
				} else {
					testenv.NeedsRoot(t)
				}
				if status := c.run(t); status != 0 || !strings.Contains(c.stdout.String(), example.want) {
					t.Errorf("status %d, want 0 and %q\n%s%s", status, example.want, &c.stdout, &c.stderr)
				}
			})
		}
	}
}
