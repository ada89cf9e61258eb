package loader

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/openfiles"
	"github.com/xdprma/xdprma/mpierr"
)

// failure is what is known about the circumstances of an error.
type failure struct {
	ifname   string
	driver   string
	mtu      int
	rxQueues int
	mode     Mode
	caps     Caps
}

// veth refuses programs beyond the first limit unless they take multi-buffer
// frames; hardware drivers without multi-buffer are near it.
const singleBufferMTU = 3498

// explain turns the kernel's error into one that says what to do. It is a pure
// function of its arguments.
func explain(op string, err error, f failure) error {
	err = plain{err}
	var absent netlink.LinkNotFoundError
	class, advice := mpierr.Unsupported, ""
	switch {
	case errors.As(err, &absent) || errors.Is(err, unix.ENODEV):
		class, advice = mpierr.Arg, fmt.Sprintf("this network namespace has no interface %q; `ip link` lists those it has", f.ifname)
	case refusal(err) != "":
		advice = fmt.Sprintf("kernel %s loads other programs and not this one, which is a fault of this library: report it, and use the UDP transport meanwhile", f.caps.Kernel)
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES):
		advice = permissionAdvice(f.caps)
	case errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE):
		return mpierr.New(op, class, mpierr.NoRank, "interface %s: %w", f.ifname, openfiles.Explain(err))
	case errors.Is(err, unix.ENOSYS):
		advice = fmt.Sprintf("kernel %s has no BPF: use the UDP transport", f.caps.Kernel)
	case errors.Is(err, ebpf.ErrNotSupported):
		advice = fmt.Sprintf("kernel %s is too old for multi-buffer XDP programs, Linux 5.18 has them: use the UDP transport", f.caps.Kernel)
	case errors.Is(err, unix.ENOMEM):
		class, advice = mpierr.NoMem, "the kernel has no memory for the program's maps"
	case errors.Is(err, unix.ENOSPC):
		advice = fmt.Sprintf("interface %s has %d receive queues, which is too few for native mode: "+
			"a veth needs as many as its peer has transmit queues (ip link add ... numrxqueues N, or ethtool -L), "+
			"other drivers a spare queue for each CPU; or use generic mode", f.ifname, f.rxQueues)
	case errors.Is(err, unix.ERANGE), errors.Is(err, unix.EINVAL) && f.mtu > singleBufferMTU:
		advice = fmt.Sprintf("the MTU of interface %s (%d), or that of its veth peer, is too large for native mode with driver %s: "+
			"lower it (%d always fits one buffer), or use generic mode", f.ifname, f.mtu, orUnknown(f.driver), singleBufferMTU)
	case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL):
		advice = fmt.Sprintf("driver %s of interface %s refuses %v mode: use generic mode, or the UDP transport",
			orUnknown(f.driver), f.ifname, f.mode)
	default:
		return mpierr.New(op, class, mpierr.NoRank, "interface %s: %w", f.ifname, err)
	}
	return mpierr.New(op, class, mpierr.NoRank, "%s: %w", advice, err)
}

// plain is an error of the BPF library in words for operators.
type plain struct{ error }

// inPlainWords are parts of the BPF library's texts, and what stands in their place. Its advice to
// programmers does not hold for the kernels that are supported, which do not count the memory of
// maps and programs against the limit on locked memory.
var inPlainWords = []struct {
	part *regexp.Regexp
	text string
}{
	{regexp.MustCompile(` \(MEMLOCK may be too low[^)]*\)`), ""},
	{regexp.MustCompile(`^assign values: field \w+: `), ""},
	{regexp.MustCompile(`^program (\w+): map (\w+): map create: `), "the kernel does not make the map $2 of the XDP program $1: "},
	{regexp.MustCompile(`^program (\w+): load program: `), "the kernel does not load the XDP program $1: "},
}

// Error returns the error's text in plain words, and of a refusal by the verifier the
// line that says why.
func (p plain) Error() string {
	if why := refusal(p.error); why != "" {
		return "the kernel's verifier refuses the program: " + why
	}
	text := p.error.Error()
	for _, w := range inPlainWords {
		text = w.part.ReplaceAllString(text, w.text)
	}
	return text
}

// Unwrap returns the error as it was.
func (p plain) Unwrap() error { return p.error }

// refusal returns the last line of the verifier's log that says why it refuses a program,
// and the line before it if the last says no more than what is wrong with a register. It
// returns "" if err is no such refusal.
func refusal(err error) string {
	var refused *ebpf.VerifierError
	if !errors.As(err, &refused) {
		return ""
	}
	log := refused.Log
	for len(log) > 0 && isStatistics(log[len(log)-1]) {
		log = log[:len(log)-1]
	}
	if len(log) == 0 {
		return ""
	}
	last := strings.TrimSpace(log[len(log)-1])
	if len(log) > 1 && len(last) > 1 && last[0] == 'R' && last[1] >= '0' && last[1] <= '9' {
		return strings.TrimSpace(log[len(log)-2]) + ": " + last
	}
	return last
}

// isStatistics reports whether a line of the verifier's log is of those that end it whatever
// came of the program.
func isStatistics(line string) bool {
	for _, begin := range []string{"processed ", "verification time ", "stack depth ", "subprog "} {
		if strings.HasPrefix(line, begin) {
			return true
		}
	}
	return line == ""
}

// permissionAdvice says what is missing, or where else a refusal can come from.
func permissionAdvice(c Caps) string {
	const remedy = "run as root, grant cap_bpf,cap_net_admin,cap_net_raw, or use the UDP transport"
	if missing := c.Missing(); len(missing) > 0 {
		return "missing " + strings.Join(missing, ", ") + ": " + remedy
	}
	return "the capabilities are there but the kernel refuses; they do not count inside a user namespace, " +
		"and seccomp, lockdown or a security module can forbid BPF: " + remedy
}

func orUnknown(s string) string {
	if s == "" {
		return "(unknown)"
	}
	return s
}
