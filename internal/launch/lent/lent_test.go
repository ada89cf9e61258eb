package lent

import (
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/userspace"
)

const whole = "xdprma-xsks:xdprma-sessions:xdprma-counters:xdprma-config_map:xdprma-hello_map:xdprma-link:xdprma-queue"

func lookupOf(pid, count, names string) func(string) string {
	return func(name string) string {
		return map[string]string{EnvPID: pid, EnvCount: count, EnvNames: names}[name]
	}
}

// The descriptors of a loan are found among others, all of them, or the error names what is wrong.
func TestDescriptors(t *testing.T) {
	self := strconv.Itoa(os.Getpid())
	for name, test := range map[string]struct {
		pid, count, names string
		queues            []int
		err               string
	}{
		"none":             {self, "", "", nil, ""},
		"of others":        {self, "2", "web:web", nil, ""},
		"of a parent":      {"1", "7", whole, nil, ""},
		"one queue":        {self, "7", whole, []int{9}, ""},
		"among others":     {self, "10", "web:" + whole + ":log:xdprma-queue", []int{10, 12}, ""},
		"wrong count":      {self, "6", whole, nil, `LISTEN_FDS="6", and LISTEN_FDNAMES has 7 names`},
		"no queue":         {self, "6", strings.TrimSuffix(whole, ":xdprma-queue"), nil, "no xdprma-queue"},
		"no link":          {self, "6", strings.Replace(whole, "xdprma-link:", "", 1), nil, "xdprma-link 0 times"},
		"two maps":         {self, "8", whole + ":xdprma-sessions", nil, "xdprma-sessions 2 times"},
		"of a later build": {self, "8", whole + ":xdprma-windows", nil, `"xdprma-windows", which is none of`},
	} {
		named, err := descriptors(lookupOf(test.pid, test.count, test.names))
		switch {
		case test.err == "" && err != nil, test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%s: got %v, want %q", name, err, test.err)
		case !reflect.DeepEqual(named[queue], test.queues):
			t.Errorf("%s: queues %v, want %v", name, named[queue], test.queues)
		}
	}
}

// The mode of the program has to be said.
func TestBorrowWantsTheMode(t *testing.T) {
	lookup := lookupOf(strconv.Itoa(os.Getpid()), "7", whole)
	for _, transport := range []userspace.Transport{userspace.Auto, userspace.XDP, userspace.UDP} {
		c := userspace.Config{Transport: transport}
		if err := Borrow(&c, lookup); err == nil || !strings.Contains(err.Error(), "say by xdp-native or xdp-generic") {
			t.Errorf("%s: got %v", transport, err)
		}
	}
}
