package main

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/xdprma/xdprma/internal/launch/bootstrap"
)

// host is one machine of a job, as the user calls it.
type host struct {
	name   string // as ssh takes it, such as n1, user@n1 or fd00::1
	slots  int    // most ranks that run there
	ifname string // of these ranks; empty: what holds for all
}

// place is where one rank runs.
type place struct {
	host   string
	slot   int // number of the rank among those of its host
	ifname string
}

// parseHosts reads the value of --hosts.
func parseHosts(list string) (hosts []host, err error) {
	for _, item := range strings.Split(list, ",") {
		if hosts, err = addHost(hosts, strings.TrimSpace(item), "", ""); err != nil {
			return nil, err
		}
	}
	return hosts, nil
}

// readHostfile reads a host a line.
func readHostfile(r io.Reader) (hosts []host, err error) {
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		said := map[string]string{}
		for _, word := range words[1:] {
			name, value, _ := strings.Cut(word, "=")
			if name != "slots" && name != "interface" || value == "" || said[name] != "" {
				return nil, fmt.Errorf("line %d is %q: write name, name:slots or name slots=2 interface=eth0", n, strings.TrimSpace(text))
			}
			said[name] = value
		}
		if hosts, err = addHost(hosts, words[0], said["slots"], said["interface"]); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("it names no host")
	}
	return hosts, nil
}

// loadHostfile reads the file of --hostfile.
func loadHostfile(path string) ([]host, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	hosts, err := readHostfile(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return hosts, nil
}

// addHost adds what item names, name or name:slots, where slots does not say their number. The
// slots of a host that is named twice add up; with another interface they are others.
func addHost(hosts []host, item, slots, ifname string) ([]host, error) {
	name, said := item, ""
	if user, rest, ok := strings.Cut(item, "["); ok {
		address, after, closed := strings.Cut(rest, "]")
		if !closed || after != "" && after[0] != ':' || user != "" && !strings.HasSuffix(user, "@") {
			return nil, fmt.Errorf("the host %q is not [address], [address]:slots or user@[address]:slots", item)
		}
		if a, err := netip.ParseAddr(address); err != nil || !a.Is6() {
			return nil, fmt.Errorf("the host %q has no IPv6 address in its brackets", item)
		}
		name = user + address // as ssh takes it
		if said = strings.TrimPrefix(after, ":"); after == ":" {
			said = "none"
		}
	} else if strings.Count(item, ":") > 1 {
		return nil, fmt.Errorf("the host %q: write an IPv6 address in brackets, such as [fd00::1]:2 or root@[fd00::1]", item)
	} else if before, after, found := strings.Cut(item, ":"); found {
		if name, said = before, after; said == "" {
			said = "none"
		}
	}
	if said != "" && slots != "" {
		return nil, fmt.Errorf("the host %q says its slots twice", item)
	}
	if said == "" {
		said = slots
	}
	n := 1
	if said != "" {
		var err error
		if n, err = strconv.Atoi(said); err != nil || n < 1 || n > bootstrap.MaxRanks {
			return nil, fmt.Errorf("the host %q has %q slots, it must be a number from 1 to %d", item, said, bootstrap.MaxRanks)
		}
	}
	// A name that begins with a dash would be an option of ssh.
	if name == "" || name[0] == '-' || strings.ContainsFunc(name, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }) {
		return nil, fmt.Errorf("%q is not the name of a host", name)
	}
	for i := range hosts {
		if hosts[i].name == name && hosts[i].ifname == ifname {
			hosts[i].slots += n
			return hosts, nil
		}
	}
	return append(hosts, host{name, n, ifname}), nil
}

// spread gives each rank a place: the slots of a host are filled before those of the next. With
// 0 ranks all slots are.
func spread(hosts []host, ranks int) (places []place, err error) {
	total := 0
	for _, h := range hosts {
		total += h.slots
	}
	if ranks == 0 {
		ranks = total
	}
	if ranks > total || ranks > bootstrap.MaxRanks {
		return nil, fmt.Errorf("%d ranks do not fit: the hosts have %d slots, and a job has at most %d ranks; name more hosts, or more slots as in name:slots", ranks, total, bootstrap.MaxRanks)
	}
	used := map[string]int{} // slots of each host
	for _, h := range hosts {
		for slot := 0; slot < h.slots && len(places) < ranks; slot++ {
			places = append(places, place{h.name, used[h.name], h.ifname})
			used[h.name]++
		}
	}
	return places, nil
}

// splitWords splits a command line into words, as a shell does. It knows single and double
// quotes and the backslash, and expands nothing.
func splitWords(line string) (words []string, err error) {
	var word strings.Builder
	begun, quote, escaped := false, rune(0), false
	for _, c := range line {
		switch {
		case escaped:
			if quote == '"' && c != '"' && c != '\\' {
				word.WriteRune('\\')
			}
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			begun, escaped = true, true
		case c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			begun, quote = true, c
		case unicode.IsSpace(c):
			if begun {
				words = append(words, word.String())
			}
			begun = false
			word.Reset()
		default:
			begun = true
			word.WriteRune(c)
		}
	}
	switch {
	case escaped:
		return nil, fmt.Errorf("%q ends with a backslash", line)
	case quote != 0:
		return nil, fmt.Errorf("%q has a quote %c without its end", line, quote)
	case begun:
		words = append(words, word.String())
	}
	return words, nil
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// parseVariables reads the values of --env, NAME or NAME=value, into NAME=value. The value of a
// bare name is that which lookup finds.
func parseVariables(said []string, lookup func(string) (string, bool)) (env []string, err error) {
	for _, s := range said {
		name, _, valued := strings.Cut(s, "=")
		if !variableName.MatchString(name) {
			return nil, fmt.Errorf("%q is neither NAME nor NAME=value", s)
		}
		if len(bootstrap.Inherited([]string{name + "="})) == 0 {
			return nil, fmt.Errorf("%s is what xdprma run itself tells each rank: set it in the environment of xdprma run, or use an option", name)
		}
		if !valued {
			value, ok := lookup(name)
			if !ok {
				return nil, fmt.Errorf("%s is not set: write %s=value", name, name)
			}
			s = name + "=" + value
		}
		env = append(env, s)
	}
	return env, nil
}
