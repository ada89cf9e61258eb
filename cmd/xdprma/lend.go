package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/device"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/launch/hostaddr"
	"github.com/xdprma/xdprma/internal/launch/lent"
	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/userspace"
)

const lendDescription = `Attaches the XDP program to an interface, makes an AF_XDP socket for each queue, and
becomes the program of a rank, as another user without privileges, which gets both.
It takes the privileges of XDP, and CAP_SETUID and CAP_SETGID. When the rank ends, the XDP
program is detached.

The rank learns of the descriptors by LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES, as by
systemd's socket activation, and of the rest by XDPRMA_INTERFACE, XDPRMA_ADDRESS,
XDPRMA_PORT, XDPRMA_QUEUES and XDPRMA_TRANSPORT. Where an option is missing, these variables say what
to use here, too. The rank's place in the job is in the environment as for other ranks. If
the program is a script or a wrapper, it has to exec the rank.

The rank locks memory for frames, 4 MiB for a queue and an MTU of 1500: its user's limit
(ulimit -l) counts.

Exit status: that of the program; 2 for a wrong command line, 125 if the XDP program
cannot be lent, 126 if the program cannot be run, 127 if it is not found.`

func lendCommand() *cli.Command {
	stopAfterProgram := 1
	return &cli.Command{
		Name:        "lend",
		Usage:       "run a rank without privileges over XDP",
		ArgsUsage:   "-- program [argument...]",
		Description: lendDescription,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "user", Usage: "the user that the program runs as, by name or number"},
			&cli.StringFlag{Name: "interface", Usage: "the network interface"},
			&cli.StringFlag{Name: "address", Usage: "its address; by default the best that it has"},
			&cli.IntFlag{Name: "port", Usage: "the UDP port; by default, and for 0, 7770"},
			&cli.StringFlag{Name: "transport", Usage: "xdp, xdp-native or xdp-generic; by default the better that works"},
			&cli.IntFlag{Name: "queues", Usage: "at most so many queues are used; by default all, up to 64"},
		},
		StopOnNthArg: &stopAfterProgram,
		Action: func(_ context.Context, c *cli.Command) error {
			l := &lender{args: c.Args().Slice(), who: c.String("user")}
			if err := l.parse(c); err != nil {
				return err
			}
			return l.run()
		},
	}
}

// lendOptions are the options that have a variable of the contract, with that.
var lendOptions = []struct{ name, variable string }{
	{"interface", bootstrap.EnvInterface},
	{"address", bootstrap.EnvAddress},
	{"port", bootstrap.EnvPort},
	{"transport", bootstrap.EnvTransport},
	{"queues", bootstrap.EnvQueues},
}

// lender carries out one `xdprma lend`.
type lender struct {
	args    []string
	who     string
	user    *user.User
	groups  []int
	network userspace.Config
}

// parse reads the command line, and where it says nothing, the environment.
func (l *lender) parse(c *cli.Command) error {
	var place bootstrap.Config
	for _, o := range lendOptions {
		by, s := "--"+o.name, fmt.Sprint(c.Value(o.name))
		if !c.IsSet(o.name) || s == "" {
			by, s = o.variable, os.Getenv(o.variable)
		}
		if err := place.Read(o.variable, by, s); err != nil {
			return usageError("%w", err)
		}
	}
	l.network = place.Config
	l.network.Port = cmp.Or(l.network.Port, bootstrap.DefaultPort)
	if l.network.Transport == "" || l.network.Transport == userspace.Auto {
		l.network.Transport = userspace.XDP
	}
	switch {
	case len(l.args) == 0:
		return usageError("no program given: xdprma lend --interface eth0 --user nobody -- program")
	case l.network.Interface == "":
		return usageError("--interface is missing (`ip link` lists those there are)")
	case l.network.Transport == userspace.UDP:
		return usageError("the transport is %q, it must be xdp, xdp-native or xdp-generic: a rank needs nothing lent for UDP", l.network.Transport)
	case l.who == "":
		return usageError("--user is missing: name who runs the program, such as nobody")
	}
	return l.findUser()
}

func (l *lender) findUser() (err error) {
	if l.user, err = user.Lookup(l.who); err != nil {
		if l.user, err = user.LookupId(l.who); err != nil {
			return usageError("--user: there is no user %q", l.who)
		}
	}
	if l.user.Uid == "0" {
		return usageError("--user is %s, who has all privileges: root needs nothing lent", l.who)
	}
	ids, err := l.user.GroupIds()
	if err != nil {
		return fmt.Errorf("look up the groups of %s: %w", l.who, err)
	}
	for _, id := range ids {
		n, err := strconv.Atoi(id)
		if err != nil {
			return fmt.Errorf("group %q of %s is no number", id, l.who)
		}
		l.groups = append(l.groups, n)
	}
	return nil
}

// run becomes the program, and returns only if it cannot.
func (l *lender) run() error {
	program, err := exec.LookPath(l.args[0])
	if err != nil {
		return &exitError{startStatus(err), err}
	}
	loan, err := l.make()
	if err != nil {
		return err
	}
	defer loan.Classifier.Close()
	runtime.LockOSThread() // it execs, with what it has
	if err := l.becomeUser(); err != nil {
		return err
	}
	listens, err := loan.Lend()
	if err != nil {
		return err
	}
	err = syscall.Exec(program, l.args, l.environ(loan, listens))
	return &exitError{startStatus(err), fmt.Errorf("%s, as %s: %w", program, l.user.Username, err)}
}

// make attaches the XDP program, in the better mode that works, and makes the sockets.
func (l *lender) make() (loan lent.Loan, err error) {
	n := &l.network
	ifi, err := net.InterfaceByName(n.Interface)
	if err != nil {
		return loan, usageError("interface %s: %w (`ip link` lists those there are)", n.Interface, err)
	}
	features, err := loader.Probe(n.Interface)
	if err != nil {
		return loan, err
	}
	if !n.Address.IsValid() {
		all, err := hostaddr.List()
		if err != nil {
			return loan, err
		}
		best, ok := hostaddr.Choose(hostaddr.OnLink(all, ifi.Index), netip.Addr{})
		if !ok {
			return loan, fmt.Errorf("interface %s has no address (`ip address` lists them)", n.Interface)
		}
		n.Address = best.IP
	}
	n.Queues = min(cmp.Or(n.Queues, userspace.MaxQueues), max(1, features.RxQueues))
	var failed []error
	for _, n.Transport = range device.Ladder(n.Transport, features) {
		mode := loader.Native
		if n.Transport == userspace.XDPGeneric {
			mode = loader.Generic
		}
		loan.Classifier, err = loader.Attach(loader.Options{Interface: n.Interface, Address: n.Address, Port: n.Port, Queues: n.Queues, Mode: mode,
			Longest: device.LongestPayload(ifi.MTU, n.Address)})
		if err == nil {
			break
		}
		failed = append(failed, err)
	}
	if err != nil {
		return loan, errors.Join(failed...)
	}
	for range n.Queues {
		fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return loan, errors.Join(fmt.Errorf("make an AF_XDP socket: %w", err), loan.Classifier.Close())
		}
		loan.Sockets = append(loan.Sockets, fd)
	}
	return loan, nil
}

// becomeUser takes everything from this process that its user is not to have.
func (l *lender) becomeUser() error {
	uid, err := strconv.Atoi(l.user.Uid)
	if err != nil {
		return fmt.Errorf("user %q of %s is no number", l.user.Uid, l.who)
	}
	gid, err := strconv.Atoi(l.user.Gid)
	if err != nil {
		return fmt.Errorf("group %q of %s is no number", l.user.Gid, l.who)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	for _, step := range []struct {
		what string
		take func() error
	}{
		{"leave the terminal", leaveTerminal},
		{"set groups", func() error { return syscall.Setgroups(l.groups) }},
		{"set the group", func() error { return syscall.Setresgid(gid, gid, gid) }},
		{"set the user", func() error { return syscall.Setresuid(uid, uid, uid) }},
		{"drop capabilities", func() error { return unix.Capset(&header, &none[0]) }},
		{"set no_new_privs", func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }},
	} {
		if err := step.take(); err != nil {
			return fmt.Errorf("become %s: %s: %w", l.who, step.what, err)
		}
	}
	return nil
}

// leaveTerminal has this process have no controlling terminal, into which the program could type for
// the shell of root. Whoever leads a session has a terminal of its own.
func leaveTerminal() error {
	if sid, err := unix.Getsid(0); err != nil || sid == os.Getpid() {
		return err
	}
	tty, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // there is none
	}
	defer unix.Close(tty)
	return unix.IoctlSetInt(tty, unix.TIOCNOTTY, 0)
}

// environ returns what the program learns of the network and its descriptors, beside what this
// process has.
func (l *lender) environ(loan lent.Loan, listens []string) []string {
	n := l.network
	told := append(listens,
		bootstrap.EnvInterface+"="+n.Interface, bootstrap.EnvAddress+"="+n.Address.WithZone("").String(),
		bootstrap.EnvPort+"="+strconv.Itoa(int(n.Port)), bootstrap.EnvTransport+"="+string(n.Transport),
		bootstrap.EnvQueues+"="+strconv.Itoa(len(loan.Sockets)),
	)
	own := slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return strings.HasPrefix(name, "LISTEN_") || slices.ContainsFunc(told, func(t string) bool { return strings.HasPrefix(t, name+"=") })
	})
	return append(own, told...)
}
