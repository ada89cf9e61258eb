package bootstrap

import (
	"fmt"
	"strings"

	"github.com/xdprma/xdprma/internal/spelling"
)

// ours begins the names of this library's variables. Its own tests have some that go on with "TEST_".
const ours = "XDPRMA_"

// misspelled returns warnings of variables in an environment that have no meaning, and are so
// like one that has that it may be meant.
func misspelled(environ []string) (warnings []string) {
	names := make([]string, len(Contract))
	for i, v := range Contract {
		names[i] = v.Name
	}
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(strings.ToUpper(name), ours) || strings.HasPrefix(name, ours+"TEST_") {
			continue
		}
		if near, like := spelling.Nearest(strings.ToUpper(name), names); like && near != name {
			warnings = append(warnings, fmt.Sprintf("%s has no meaning: is %s meant?", name, near))
		}
	}
	return warnings
}
