package vmtests

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// envConfined has a rank allow itself, once it has joined, only these system calls. They are
// separated by spaces, and written as in docs/confinement.md. Any other is a trap.
const envConfined = "VMTESTS_CONFINED"

// systemCalls are the numbers of all calls that docs/confinement.md may name.
var systemCalls = map[string]uint32{
	"accept4": unix.SYS_ACCEPT4, "bind": unix.SYS_BIND, "bpf": unix.SYS_BPF, "brk": unix.SYS_BRK,
	"clock_gettime": unix.SYS_CLOCK_GETTIME, "clone": unix.SYS_CLONE, "clone3": unix.SYS_CLONE3, "close": unix.SYS_CLOSE,
	"connect": unix.SYS_CONNECT, "epoll_ctl": unix.SYS_EPOLL_CTL, "epoll_pwait": unix.SYS_EPOLL_PWAIT,
	"eventfd2": unix.SYS_EVENTFD2, "exit": unix.SYS_EXIT, "exit_group": unix.SYS_EXIT_GROUP, "fcntl": unix.SYS_FCNTL,
	"fstat": unix.SYS_FSTAT, "getdents64": unix.SYS_GETDENTS64, "ftruncate": unix.SYS_FTRUNCATE, "futex": unix.SYS_FUTEX, "geteuid": unix.SYS_GETEUID,
	"getpeername": unix.SYS_GETPEERNAME, "getpid": unix.SYS_GETPID, "getrandom": unix.SYS_GETRANDOM,
	"getsockname": unix.SYS_GETSOCKNAME, "getsockopt": unix.SYS_GETSOCKOPT, "gettid": unix.SYS_GETTID, "kill": unix.SYS_KILL,
	"listen": unix.SYS_LISTEN, "madvise": unix.SYS_MADVISE, "memfd_create": unix.SYS_MEMFD_CREATE, "mmap": unix.SYS_MMAP,
	"mprotect": unix.SYS_MPROTECT, "mremap": unix.SYS_MREMAP, "munmap": unix.SYS_MUNMAP, "nanosleep": unix.SYS_NANOSLEEP,
	"openat": unix.SYS_OPENAT, "pidfd_getfd": unix.SYS_PIDFD_GETFD, "pidfd_open": unix.SYS_PIDFD_OPEN, "ppoll": unix.SYS_PPOLL,
	"prctl": unix.SYS_PRCTL, "pread64": unix.SYS_PREAD64, "prlimit64": unix.SYS_PRLIMIT64, "read": unix.SYS_READ, "readlinkat": unix.SYS_READLINKAT,
	"recvfrom": unix.SYS_RECVFROM, "recvmmsg": unix.SYS_RECVMMSG, "recvmsg": unix.SYS_RECVMSG,
	"restart_syscall": unix.SYS_RESTART_SYSCALL, "rseq": unix.SYS_RSEQ, "rt_sigaction": unix.SYS_RT_SIGACTION,
	"rt_sigprocmask": unix.SYS_RT_SIGPROCMASK, "rt_sigreturn": unix.SYS_RT_SIGRETURN,
	"sched_getaffinity": unix.SYS_SCHED_GETAFFINITY, "sched_yield": unix.SYS_SCHED_YIELD, "sendmmsg": unix.SYS_SENDMMSG,
	"sendmsg": unix.SYS_SENDMSG, "sendto": unix.SYS_SENDTO, "set_robust_list": unix.SYS_SET_ROBUST_LIST,
	"setsockopt": unix.SYS_SETSOCKOPT, "shutdown": unix.SYS_SHUTDOWN, "sigaltstack": unix.SYS_SIGALTSTACK, "socket": unix.SYS_SOCKET, "tgkill": unix.SYS_TGKILL,
	"unlinkat": unix.SYS_UNLINKAT, "write": unix.SYS_WRITE,
}

// firstArguments are all that docs/confinement.md may name.
var firstArguments = map[string]uint32{
	"AF_UNIX": unix.AF_UNIX, "BPF_LINK_CREATE": unix.BPF_LINK_CREATE, "BPF_OBJ_GET_INFO_BY_FD": unix.BPF_OBJ_GET_INFO_BY_FD,
	"BPF_PROG_GET_FD_BY_ID": unix.BPF_PROG_GET_FD_BY_ID, "BPF_MAP_CREATE": unix.BPF_MAP_CREATE, "BPF_MAP_DELETE_ELEM": unix.BPF_MAP_DELETE_ELEM,
	"BPF_MAP_LOOKUP_ELEM": unix.BPF_MAP_LOOKUP_ELEM, "BPF_MAP_UPDATE_ELEM": unix.BPF_MAP_UPDATE_ELEM,
	"CLONE_THREAD": unix.CLONE_THREAD, "PR_SET_VMA": unix.PR_SET_VMA,
}

// documentedCalls returns the calls of each group in the table of docs/confinement.md.
func documentedCalls() (map[string][]string, error) {
	page, err := os.ReadFile("../docs/confinement.md")
	if err != nil {
		return nil, err
	}
	groups, others := map[string][]string{}, map[string][]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 || !strings.Contains(cells[1], "`") {
			continue
		}
		name := strings.Trim(cells[1], " `")
		calls, all, _ := strings.Cut(cells[3], "and all of")
		groups[name], others[name] = quoted(calls), quoted(all)
	}
	for name, all := range others {
		for _, other := range all {
			if groups[other] == nil {
				return nil, fmt.Errorf("group %s of docs/confinement.md includes %q, which is none", name, other)
			}
			groups[name] = append(groups[name], groups[other]...)
		}
	}
	return groups, nil
}

// quoted returns the words of text that stand between backquotes.
func quoted(text string) (words []string) {
	for i, word := range strings.Split(text, "`") {
		if i%2 == 1 {
			words = append(words, word)
		}
	}
	return words
}

// builtWithCgo reports whether threads of this program are the C library's.
func builtWithCgo() bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "1"})
}

// confine puts this process under a filter that allows the calls which envConfined names.
func confine() error {
	calls := strings.Fields(os.Getenv(envConfined))
	if len(calls) == 0 {
		return nil
	}
	filter, err := filterOf(calls)
	if err == nil {
		err = installFilter(filter)
	}
	return err
}

// The fields of struct seccomp_data, in which a filter looks. The low half of an argument comes first.
const (
	atNumber        = 0
	atArchitecture  = 4
	atFirstArgument = 16
)

// rule is what a filter does about one system call.
type rule struct {
	arguments []uint32 // the first argument is one of these; none: any
	then      uint32   // what the filter returns
}

// partsOf returns the parts of a call as docs/confinement.md writes it: name(argument), or
// name=ENOSYS.
func partsOf(call string) (name, argument, failure string) {
	name, failure, _ = strings.Cut(call, "=")
	name, argument, _ = strings.Cut(strings.TrimSuffix(name, ")"), "(")
	return name, argument, failure
}

// rulesOf returns the rules, by the numbers of the calls, that allow calls.
func rulesOf(calls []string) (map[uint32]rule, error) {
	rules := map[uint32]rule{}
	for _, call := range slices.Compact(slices.Sorted(slices.Values(calls))) {
		name, argument, failure := partsOf(call)
		number, known := systemCalls[name]
		value, valid := firstArguments[argument]
		if has := argument != ""; !known || has != valid || failure != "" && failure != "ENOSYS" {
			return nil, fmt.Errorf("docs/confinement.md names %q, whose number this test does not know: add it to systemCalls or firstArguments", call)
		}
		r, again := rules[number]
		if again && (len(r.arguments) == 0 || !valid) {
			return nil, fmt.Errorf("docs/confinement.md names %q, and the same call otherwise", call)
		}
		r.then = unix.SECCOMP_RET_ALLOW
		if failure != "" {
			r.then = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
		}
		if valid {
			r.arguments = append(r.arguments, value)
		}
		rules[number] = r
	}
	return rules, nil
}

// filterOf returns a filter that allows calls.
func filterOf(calls []string) ([]unix.SockFilter, error) {
	architecture, known := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if !known {
		return nil, fmt.Errorf("docs/confinement.md says nothing of %s", runtime.GOARCH)
	}
	rules, err := rulesOf(calls)
	if err != nil {
		return nil, err
	}
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	end := func(with uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: with} }
	skipUnless := func(test uint16, value uint32, skip int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, K: value, Jf: uint8(skip)}
	}
	filter := []unix.SockFilter{
		load(atArchitecture),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: architecture, Jt: 1}, end(unix.SECCOMP_RET_KILL_PROCESS),
		load(atNumber), // those of x32 are none of the list
	}
	for _, number := range slices.Sorted(maps.Keys(rules)) {
		r := rules[number]
		if len(r.arguments) == 0 {
			filter = append(filter, skipUnless(unix.BPF_JEQ, number, 1), end(r.then))
			continue
		}
		filter = append(filter, skipUnless(unix.BPF_JEQ, number, 2+2*len(r.arguments)), load(atFirstArgument))
		test := uint16(unix.BPF_JEQ)
		if number == unix.SYS_CLONE {
			test = unix.BPF_JSET // one flag of several
		}
		for _, value := range r.arguments {
			filter = append(filter, skipUnless(test, value, 1), end(r.then))
		}
		filter = append(filter, end(unix.SECCOMP_RET_TRAP))
	}
	return append(filter, end(unix.SECCOMP_RET_TRAP)), nil
}
