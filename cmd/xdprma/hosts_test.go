package main

import (
	"net/netip"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestHostsAreRead(t *testing.T) {
	for list, want := range map[string][]host{
		"a":                       {{"a", 1, ""}},
		"a,b:2":                   {{"a", 1, ""}, {"b", 2, ""}},
		"a:2, u@b ,a":             {{"a", 3, ""}, {"u@b", 1, ""}},
		"[fd00::1],[fe80::1%e]:4": {{"fd00::1", 1, ""}, {"fe80::1%e", 4, ""}},
		"10.0.0.1:1":              {{"10.0.0.1", 1, ""}},
		"root@[fd77::2]":          {{"root@fd77::2", 1, ""}},
		"root@[fd77::2]:4,a":      {{"root@fd77::2", 4, ""}, {"a", 1, ""}},
		"[fe80::2%eth0]:2":        {{"fe80::2%eth0", 2, ""}},
		"root@[fe80::2%eth0]":     {{"root@fe80::2%eth0", 1, ""}},
	} {
		if got, err := parseHosts(list); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, %v; want %v", list, got, err, want)
		}
	}
	for list, problem := range map[string]string{
		"":           `"" is not the name`,
		"a,,b":       `"" is not the name`,
		"a:":         `"none" slots`,
		"a:0":        `"0" slots`,
		"a:x":        `"x" slots`,
		"a:70000":    `1 to 65536`,
		"fd00::1":    "in brackets",
		"[fd00::1":   "[address]",
		"[fd00::1]2": "[address]",
		"[fd00::1]:": `"none" slots`,
		"[a]":        "no IPv6 address",

		"root@fd77::2":     "or root@[fd00::1]",
		"root[fd77::2]":    "user@[address]",
		"root@[fd77::2":    "user@[address]",
		"root@[fd77::2]:":  `"none" slots`,
		"root@[10.0.0.1]":  "no IPv6 address",
		"root@[fd77::2]:x": `"x" slots`,
		"-o@[fd77::2]":     "not the name",
		"-oProxy=x":        "not the name",
		"a b":              "not the name",
		":3":               "not the name",
	} {
		if got, err := parseHosts(list); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%q: %v, %v; want %q", list, got, err, problem)
		}
	}
}

func TestHostfileIsRead(t *testing.T) {
	got, err := readHostfile(strings.NewReader("# ours\na slots=2 # big\n\n b:3\n[fd00::1] slots=4\na\n" +
		"a interface=eth1\nc interface=eth0 slots=2\nd:2 interface=eth0\na:3 interface=eth1"))
	if want := []host{{"a", 3, ""}, {"b", 3, ""}, {"fd00::1", 4, ""}, {"a", 4, "eth1"}, {"c", 2, "eth0"}, {"d", 2, "eth0"}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for file, problem := range map[string]string{
		"":                  "no host",
		"# nothing":         "no host",
		"a\nb 2":            `line 2 is "b 2"`,
		"a slots=":          "line 1",
		"a slots=x":         `"x" slots`,
		"a slots=2 max=3":   "line 1",
		"a slots=2 slots=3": "line 1",
		"a interface=":      `write name, name:slots or name slots=2 interface=eth0`,
		"a interface":       "line 1",
		"a:2 slots=2":       "twice",
	} {
		if got, err := readHostfile(strings.NewReader(file)); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%q: %v, %v; want %q", file, got, err, problem)
		}
	}
}

func TestRanksFillHosts(t *testing.T) {
	hosts := []host{{"a", 2, ""}, {"b", 1, "eth0"}, {"b", 1, "eth1"}}
	all := []place{{"a", 0, ""}, {"a", 1, ""}, {"b", 0, "eth0"}, {"b", 1, "eth1"}}
	for ranks, want := range map[int][]place{0: all, 4: all, 3: all[:3], 1: all[:1]} {
		if got, err := spread(hosts, ranks); err != nil || !slices.Equal(got, want) {
			t.Errorf("%d ranks: %v, %v; want %v", ranks, got, err, want)
		}
	}
	if _, err := spread(hosts, 5); err == nil || !strings.Contains(err.Error(), "5 ranks do not fit: the hosts have 4 slots") {
		t.Errorf("%v", err)
	}
}

// TestZonesAreOfTheHost serves the rendezvous at addresses that mean something on one link, or anywhere.
func TestZonesAreOfTheHost(t *testing.T) {
	for _, test := range []struct {
		address, served string
		ifname, line    string // of all hosts, of this one
		want            string // empty: it is refused
	}{
		{"10.0.0.1:0", "tcp:10.0.0.1:7000", "", "", "tcp:10.0.0.1:7000"},
		{"[fd77::1]:0", "tcp:[fd77::1]:7000", "eth0", "eth1", "tcp:[fd77::1]:7000"},
		{"[fe80::1%veth3]:0", "tcp:[fe80::1]:7000", "eth0", "", "tcp:[fe80::1%eth0]:7000"},
		{"[fe80::1%veth3]:0", "tcp:[fe80::1]:7000", "eth0", "eth1", "tcp:[fe80::1%eth1]:7000"},
		{"[fe80::1%veth3]:0", "tcp:[fe80::1]:7000", "", "", ""},
	} {
		f := &far{ifname: test.ifname, address: netip.MustParseAddrPort(test.address)}
		got, err := f.rendezvousOf(place{host: "n1", ifname: test.line}, test.served)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%+v: %q, %v", test, got, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "--address") || !strings.Contains(err.Error(), "host n1") || startStatus(err) != statusUsage) {
			t.Errorf("%v", err)
		}
	}
}

// A host that nobody knows is named.
func TestUnknownHostIsNamed(t *testing.T) {
	f := &far{places: []place{{host: "127.0.0.1"}, {host: "root@a..b"}}}
	if a, err := f.findAddress(); err == nil || !strings.Contains(err.Error(), "the host a..b is not known here") || !strings.Contains(err.Error(), "--address") {
		t.Errorf("%v, %v", a, err)
	}
}

func TestWordsAreSplit(t *testing.T) {
	for line, want := range map[string][]string{
		"":                            nil,
		" ssh  -p 22 ":                {"ssh", "-p", "22"},
		`ssh -o 'A=b c' "d \"e\\ \f"`: {"ssh", "-o", "A=b c", `d "e\ \f`},
		`a\ b '' c"d"'e'`:             {"a b", "", "cde"},
		`'\'`:                         {`\`},
	} {
		if got, err := splitWords(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", line, got, err, want)
		}
	}
	for _, line := range []string{`a "b`, `a 'b`, `a \`} {
		if got, err := splitWords(line); err == nil {
			t.Errorf("%q: %q", line, got)
		}
	}
}

func TestVariablesAreRead(t *testing.T) {
	set := func(name string) (string, bool) { return "there", name == "SET" }
	got, err := parseVariables([]string{"SET", "A=", "B=x=y\nz"}, set)
	if want := []string{"SET=there", "A=", "B=x=y\nz"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	for said, problem := range map[string]string{"MISSING": "not set", "": "NAME", "1A=x": "NAME", "A B=x": "NAME", "XDPRMA_RANK=1": "itself", "XDPRMA_CHECK=1": "itself"} {
		if got, err := parseVariables([]string{said}, set); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%q: %q, %v; want %q", said, got, err, problem)
		}
	}
}

// A word that is quoted comes out of a shell as it went in, in one line.
func TestShellsTakeQuotedWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOf(rapid.RuneFrom([]rune("ab \n\t'\"\\$`!*?~#;&|<>(){}[]=ä"))).Draw(t, "word")
		line := `_n=$(echo; echo x) _n=${_n%x}; printf %s ` + quote(word)
		if strings.Contains(line, "\n") {
			t.Fatalf("%q has several lines", line)
		}
		out, err := exec.Command("sh", "-c", line).Output()
		if err != nil || string(out) != word {
			t.Fatalf("%q becomes %q: %v", word, out, err)
		}
	})
}

// The script is one line for any values, and shells can parse it.
func TestScriptIsOneLine(t *testing.T) {
	r := remoteRank{mark: "m:", key: "00", folder: "/a b\n'c'", env: []string{"A=x\ny", "B='"}, args: []string{"p q", "\n", "{key}"}, input: true, bind: true, slot: 1}
	s := r.script()
	if strings.Contains(s, "\n") || strings.Contains(strings.ReplaceAll(s, "{key}", ""), "{key") {
		t.Errorf("%q", s)
	}
	if out, err := exec.Command("sh", "-n", "-c", s).CombinedOutput(); err != nil {
		t.Errorf("%v: %s\n%s", err, out, s)
	}
	if n := strings.Count(s, "kill "); n != 1 || !strings.Contains(s, `kill -s "$s" 0`) {
		t.Errorf("%d commands kill processes, and not the one alone that kills its own group", n)
	}
	for _, m := range regexp.MustCompile(`(?:^|[ ({;])(?:for |read -r )?(_[a-z])(?:=| in|\b)`).FindAllStringSubmatch(s, -1) {
		if !strings.Contains(sshCommand, m[1]+" ") && !strings.Contains(sshCommand, m[1]+";") {
			t.Errorf("%s is not unset", m[1])
		}
	}
	for _, c := range []string{"\n", "\\", "!"} { // the C shell takes these apart even in quotes
		if strings.Contains(sshCommand, c) {
			t.Errorf("the command for the login shell has %q", c)
		}
	}
}

// However output is cut into writes, the marks are taken out of it, and nothing else is.
func TestMarksAreTakenOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const mark = "aab:"
		parts := rapid.SliceOf(rapid.StringMatching(`[ab\n]{0,6}`)).Draw(t, "parts")
		var whole, want string
		var words []string
		for i, p := range parts {
			want += p
			whole += p
			if i%2 == 1 {
				whole += mark + "end 3 why\n"
				words = append(words, "end 3 why")
			}
		}
		var got collected
		var heard []string
		m := &markReader{to: &got, mark: []byte(mark), heard: func(w string) { heard = append(heard, w) }}
		for len(whole) > 0 {
			n := rapid.IntRange(1, len(whole)).Draw(t, "n")
			m.Write([]byte(whole[:n]))
			whole = whole[n:]
		}
		m.Flush()
		if got.String() != want || !slices.Equal(heard, words) {
			t.Fatalf("passed on %q and heard %q, want %q and %q", got.String(), heard, want, words)
		}
	})
}

type collected struct{ strings.Builder }

func (*collected) Flush() {}
