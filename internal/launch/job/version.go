package job

import (
	"runtime/debug"
	"strings"
)

const library = "github.com/xdprma/xdprma"

// version returns the library's version in this program, as the build list has it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return versionIn(info)
}

// versionIn returns the library's version in a program. The commands and examples of a checkout have
// the program's, which names the commit.
func versionIn(info *debug.BuildInfo) string {
	for _, m := range append(info.Deps, &info.Main) {
		switch {
		case m.Path != library:
		case m.Replace != nil:
			return strings.TrimSpace(m.Replace.Path + " " + m.Replace.Version)
		case m.Version != "(devel)":
			return m.Version
		}
	}
	if strings.HasPrefix(info.Main.Path+"/", library+"/") {
		return info.Main.Version
	}
	return "(devel)"
}
