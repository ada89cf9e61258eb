package job

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	const commit = "v0.1.1-0.20261129084033-dc2db203a813+dirty"
	module := func(path, version string) debug.Module { return debug.Module{Path: path, Version: version} }
	published, checkout := module(library, "v0.1.0"), module(library, "(devel)")
	replaced, fork := published, published
	replaced.Replace, fork.Replace = &debug.Module{Path: "../xdprma"}, &debug.Module{Path: "example.org/fork", Version: "v0.2.0"}
	for _, test := range []struct {
		name string
		main debug.Module
		dep  *debug.Module
		want string
	}{
		{"a program", module("prog", commit), &published, "v0.1.0"},
		{"a program beside a checkout", module("prog", "(devel)"), &replaced, "../xdprma"},
		{"a program with a fork", module("prog", "(devel)"), &fork, "example.org/fork v0.2.0"},
		{"a program in a workspace", module("prog", commit), &checkout, "(devel)"},
		{"an example", module(library, commit), nil, commit},
		{"a command", module(library+"/cmd", commit), &checkout, commit},
		{"another module", module(library+"2", commit), nil, "(devel)"},
	} {
		info := &debug.BuildInfo{Main: test.main}
		if test.dep != nil {
			info.Deps = []*debug.Module{{Path: "other", Version: "v1.0.0"}, test.dep}
		}
		if got := versionIn(info); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
