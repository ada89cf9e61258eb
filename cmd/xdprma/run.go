package main

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/device"
	"github.com/xdprma/xdprma/internal/device/agent"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/userspace"
)

const runDescription = `Starts N ranks of a program on this machine, or by ssh on others, and waits for them.

On this machine: with root, or
CAP_NET_ADMIN and CAP_SYS_ADMIN, each rank has a network namespace of its own,
xr-<pid>-<rank>, and a veth interface that carries XDP. Without, the ranks share
the loopback interface and speak UDP, and --mtu and --queues mean nothing.

With --ranks-per-host K, K ranks at a time share a namespace and its interface, and access each
other's allocated windows in memory, as ranks of one host do; --frames has them use frames all the same.
Then xdprma run has XDP, or tc, execute small requests to all of them. The i-th rank of a
namespace, counted from 0, has the port plus i. With --own-interfaces each has an interface of its own.

Each rank is told its place by environment variables. Set these by hand with launchers
that neither speak PMI nor set torchrun's variables (docs/several-hosts.md). Those with a
star hold for all ranks if they are in the environment, unless an option says otherwise.
Where the ranks share the loopback interface, rank r has the port XDPRMA_PORT + r.

VARIABLES
When xdprma run is killed, a process that it has started for that, xdprma guard, kills the process groups of its ranks
and removes the job's key. What has left a rank's group stays.

The job has a key of its own, in a file that goes with it. Whatever --security says, only
its ranks are let in; with sign, each frame is authenticated too, and with seal encrypted as well.

With --hosts or --hostfile the ranks run on these hosts, each by a process of ssh: they fill
the slots of a host before those of the next. The hosts need sh, setsid and the program, and
no xdprma. A rank has the variables of its place, those that --env names, and otherwise those of
its host. Where a port is set, or an interface,
the i-th rank of a host, counted from 0, has the port plus i. Key and job id are on no command line.
When xdprma run is killed, its connections end, and each host kills its ranks. Where this machine
dies or the network is cut, a host learns of it when its sshd does (ClientAliveInterval).
A rank that has not begun on its host after 75 seconds is given up, with status 255.

Where more than 16 ranks share a processor here, each waits long for it. So one that is silent counts
as failed after more than 5 seconds, in proportion, unless the program or XDPRMA_DEAD_AFTER says when.

With --bind core the i-th rank of a machine has the i-th processor that it may use; more ranks
than processors are an error.

A rank's directory is that of xdprma run, or --wdir. There a program begins that is named with a slash; another
one is found on the rank's PATH.

Each line of a rank's output is prefixed with [rank], and lines of different ranks are not mixed. One that has
no end after 0.1 seconds, as a question has none, is shown without, one such line at a time; when others write, its
rest is a line of its own. A line of more than 64 KiB keeps the others waiting, up to 4 MiB of it and a
second for more of it. With --prefix=false each rank's bytes come out as they are. Where the output or the log
can take no more, the job ends with status 125, or 141 if nobody reads it.

Rank 0 has the standard input. SIGINT, SIGTERM, SIGHUP and SIGQUIT go to all ranks; a second SIGINT kills
them. One that comes while ranks are being started ends the job. When a rank fails, the
others are told at once, and have a second to say why they end, too; then they get SIGTERM, and SIGKILL three seconds later. With
--keep-going they go on.

xdprma run names the rank that has failed first, which need not be the first to end. A rank with another exit status than 0
has failed when it began to leave the job, or else when it ended; and so has one that says so in leaving, and whose words are
printed: by rma.Node.CloseWith or Abort, a fatal error, or a panic where Close is deferred. A rank that had ended before with
status 0, and had not left the job or had said that it has failed, is named too. With --keep-going the first is named in
the end, if several have failed. Where the kernel has ended a process of this machine for lack of memory while a
rank ran that SIGKILL ended, that is said.

Exit status: that of the rank that failed first, 128+n if signal n killed it, that of ssh,
mostly 255, where a host was not reached or the connection to it ended; 124 after --timeout; 2 for a wrong command line, 125 if xdprma itself fails, 126 if
the program cannot be run, 127 if it is not found.`

// variableList describes the environment variables of a rank, one after the other.
func variableList() string {
	const indent, width = 4, 84
	var text strings.Builder
	for _, v := range bootstrap.Contract {
		star := ""
		if v.ForAll {
			star = " *"
		}
		fmt.Fprintf(&text, "  %s%s\n", v.Name, star)
		line := strings.Repeat(" ", indent-1)
		for _, word := range strings.Fields(v.Meaning) {
			if len(line)+1+len(word) > width {
				text.WriteString(line + "\n")
				line = strings.Repeat(" ", indent-1)
			}
			line += " " + word
		}
		text.WriteString(line + "\n")
	}
	return text.String()
}

func runCommand() *cli.Command {
	stopAfterProgram := 1
	return &cli.Command{
		Name:        "run",
		Usage:       "start the ranks of a job on this machine or, by ssh, on others",
		ArgsUsage:   "-- program [argument...]",
		Description: strings.Replace(runDescription, "VARIABLES\n", variableList()+"\n", 1),
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "n", Value: 1, Usage: "number of ranks; with --hosts or --hostfile by default as many as there are slots"},
			&cli.StringFlag{Name: "hosts", Usage: "start the ranks by ssh on these hosts, name[:slots] separated by commas; an IPv6 address stands in brackets, as in root@[fd77::2]:4"},
			&cli.StringFlag{Name: "hostfile", Usage: "a file with a host a line in place of --hosts, name[:slots] or name slots=2 interface=eth0, and comments behind #"},
			&cli.StringFlag{Name: "ssh", Value: defaultSSH, Usage: "the command that connects to a host, in words and quotes as for a shell"},
			&cli.StringFlag{Name: "address", Usage: "IP address of this host, and maybe a TCP port, at which the ranks on other hosts find each other; by default that from which the first of them is reached"},
			&cli.StringFlag{Name: "interface", Usage: "the network interface of each rank on other hosts, unless the hostfile has one for its host"},
			&cli.StringFlag{Name: "wdir", Usage: "the ranks' working directory, on each host; by default that of xdprma run, which a relative path begins at"},
			&cli.StringSliceFlag{Name: "env", Usage: "a variable of the ranks, NAME=value, or NAME for that of xdprma run; may be given several times"},
			&cli.StringFlag{Name: "bind", Value: bindNone, Usage: "none, or core: the i-th rank of a host has its i-th processor for itself"},
			&cli.BoolFlag{Name: "prefix", Value: true, Usage: "put [rank] before each line of a rank's output"},
			&cli.StringFlag{Name: "log-dir", Usage: "a directory for the ranks' output, rank.N.out and rank.N.err, which then is not shown"},
			&cli.BoolFlag{Name: "statuses", Usage: "say in the end how each rank ended"},
			&cli.IntFlag{Name: "mtu", Value: netlab.DefaultMTU, Usage: "MTU of the ranks' interfaces, in bytes"},
			&cli.StringFlag{Name: "transport", Value: string(userspace.Auto), Usage: userspace.TransportNames},
			&cli.StringFlag{Name: "transports", Hidden: true, Usage: "transport of each rank, separated by commas; overrides --transport"},
			&cli.IntFlag{Name: "queues", Value: 1, Usage: "queues of each interface"},
			&cli.IntFlag{Name: "ranks-per-host", Value: 1, Usage: "ranks that share a namespace, and memory"},
			&cli.BoolFlag{Name: "own-interfaces", Usage: "give each rank of a namespace an interface of its own, in place of one for all of them; so do transports of XDP, which one rank of an interface can have"},
			&cli.BoolFlag{Name: "frames", Usage: "access windows of ranks of the same host by frames too"},
			&cli.StringFlag{Name: "security", Value: secure.None.String(), Usage: secure.LevelNames + ": whether each frame is authenticated, and encrypted"},
			&cli.BoolFlag{Name: "keep-going", Usage: "let the other ranks go on when one fails"},
			&cli.DurationFlag{Name: "timeout", Usage: "end the job after this time, such as 90s; 0 for never"},
		},
		StopOnNthArg:              &stopAfterProgram, // what follows the program is the program's
		DisableSliceFlagSeparator: true,              // a value of --env may have commas
		Action: func(_ context.Context, c *cli.Command) error {
			all, ported, err := bootstrap.ForAll()
			if err != nil {
				return usageError("%w", err)
			}
			transport := c.String("transport")
			if all.Transport != "" && !c.IsSet("transport") {
				transport = string(all.Transport)
			}
			if c.IsSet("frames") {
				all.Frames = c.Bool("frames")
			}
			if c.IsSet("security") {
				if _, err := secure.ParseLevel(c.String("security")); err != nil {
					return usageError("--security: %w", err)
				}
				all.Security = bootstrap.Security(c.String("security"))
			}
			r := &runner{
				all: all, ported: ported, ranks: c.Int("n"), mtu: c.Int("mtu"), queues: c.Int("queues"),
				perHost: c.Int("ranks-per-host"), ownInterfaces: c.Bool("own-interfaces"),
				timeout: c.Duration("timeout"), keepGoing: c.Bool("keep-going"), args: c.Args().Slice(),
				bare: !c.Bool("prefix"), logDir: c.String("log-dir"), folder: c.String("wdir"), statuses: c.Bool("statuses"),
				console: newConsole(os.Stdout, os.Stderr),
			}
			if r.folder, err = filepath.Abs(r.folder); err != nil { // that of this process where none is named
				return fmt.Errorf("find the working directory: %w; --wdir names one", err)
			}
			if err := r.parseHow(c); err != nil {
				return err
			}
			if err := r.parse(transport, c.String("transports")); err != nil {
				return err
			}
			status, err := r.run()
			if err == nil && status != 0 {
				err = &exitError{status: status}
			}
			return err
		},
	}
}

// runner carries out one `xdprma run`.
type runner struct {
	all                bootstrap.Config // what holds for all ranks
	ported             bool             // all names the port
	ranks, mtu, queues int
	perHost            int
	ownInterfaces      bool
	timeout            time.Duration
	keepGoing          bool
	args               []string
	transports         []userspace.Transport // one for each rank
	console            *console
	bare               bool     // no prefix stands before the lines of output
	logDir             string   // empty: the output is shown
	folder             string   // the ranks' working directory, an absolute path
	env                []string // NAME=value, of all ranks
	bind               bool     // each rank has a processor
	statuses           bool
	far                *far // nil: the ranks are on this machine

	lab     *netlab.Lab // nil: the ranks share the loopback interface
	answers bool        // the lab carries answers from XDP in native mode
	ports   []uint16    // UDP port of each rank, without a lab
	server  *bootstrap.Server
	agent   *agent.Server // nil: no ranks share an interface
	guard   *guard        // nil: there is none
	configs []bootstrap.Config
}

// parse validates the command line and fills in transports.
func (r *runner) parse(transport, transports string) error {
	switch {
	case r.ranks < 1 || r.ranks > netlab.MaxRanks:
		return usageError("-n is %d, it must be 1 to %d", r.ranks, netlab.MaxRanks)
	case r.mtu < netlab.MinMTU || r.mtu > netlab.MaxMTU:
		return usageError("--mtu is %d, it must be %d to %d", r.mtu, netlab.MinMTU, netlab.MaxMTU)
	case r.queues < 1 || r.queues > netlab.MaxQueues:
		return usageError("--queues is %d, it must be 1 to %d", r.queues, netlab.MaxQueues)
	case r.perHost < 1 || r.perHost > netlab.MaxRanks:
		return usageError("--ranks-per-host is %d, it must be 1 to %d", r.perHost, netlab.MaxRanks)
	case r.timeout < 0:
		return usageError("--timeout is %v, it must not be negative", r.timeout)
	case r.far == nil && int(r.all.Port)+r.perHost-1 > 65535 && r.all.Port != 0:
		return usageError("%s is %d: the last of %d ranks of a host would have port %d", bootstrap.EnvPort, r.all.Port, r.perHost, int(r.all.Port)+r.perHost-1)
	case len(r.args) == 0:
		return usageError("no program given: xdprma run -n %d -- program", r.ranks)
	}
	names := slices.Repeat([]string{transport}, r.ranks)
	if transports != "" {
		if names = strings.Split(transports, ","); len(names) != r.ranks {
			return usageError("--transports lists %d transports for %d ranks", len(names), r.ranks)
		}
	}
	for _, name := range names {
		t, err := userspace.ParseTransport(name)
		if err != nil {
			return usageError("%w", err)
		}
		r.transports = append(r.transports, t)
	}
	return nil
}

// run starts the job, waits for its end and returns its exit status.
func (r *runner) run() (status int, err error) {
	r.startGuard()
	defer r.guard.close()
	if r.far != nil {
		return r.runFar()
	}
	program, err := findProgram(r.args[0], r.folder, r.env)
	if err != nil {
		return 0, err
	}
	signals, stop := catchSignals()
	defer stop()
	if err := r.network(); err != nil {
		return 0, err
	}
	if r.lab != nil {
		defer func() { err = errors.Join(err, r.lab.Close()) }()
	}
	if err := r.startAgent(); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.stopAgent()) }()
	if err := r.rendezvous(); err != nil {
		return 0, err
	}
	defer r.endRendezvous()
	r.configure()
	r.patience()
	j, err := r.job(program)
	if err != nil {
		return 0, err
	}
	return j.run(signals), nil
}

// network makes the lab, or finds ports on the loopback interface where a lab
// cannot be made and is not needed.
func (r *runner) network() error {
	err := netlab.Supported()
	if err == nil {
		if _, err := netlab.CleanStale(); err != nil {
			r.console.logf("warning: cannot remove what a killed run left behind: %v", err)
		}
		r.lab, err = netlab.New(netlab.Config{Ranks: r.ranks, RanksPerHost: r.perHost, Share: r.shares(), MTU: r.mtu, Queues: r.queues})
		if err == nil {
			r.acceptAnswers()
			return nil
		}
		err = fmt.Errorf("cannot make network namespaces: %w", err)
	}
	onlyUDP := true
	for i, t := range r.transports {
		switch t {
		case userspace.UDP:
		case userspace.Auto:
			onlyUDP = false
			r.transports[i] = userspace.UDP
		default:
			return fmt.Errorf("transport %s: %w; --transport udp works without", t, err)
		}
	}
	if !onlyUDP {
		r.console.logf("warning: using UDP on the loopback interface: %v", err)
	}
	if !r.ported {
		r.ports, err = freePorts(r.ranks)
		return err
	}
	port := int(r.all.Port)
	if last := port + r.ranks - 1; last > 65535 {
		return fmt.Errorf("%s is %d: the last of %d ranks would have port %d", bootstrap.EnvPort, port, r.ranks, last)
	}
	for rank := range r.ranks {
		port := port
		if port != 0 {
			port += rank
		}
		r.ports = append(r.ports, uint16(port))
	}
	return nil
}

// shares reports whether the ranks of a namespace have one interface together, as those of a real host do, unless
// they ask for what one rank of an interface can have. A single rank may ask for what they have.
func (r *runner) shares() bool {
	alone := func(t userspace.Transport) bool {
		return t == userspace.XDP || t == userspace.XDPNative || t == userspace.XDPGeneric
	}
	switch {
	case slices.Contains(r.transports, userspace.Shared):
		return true
	case r.ownInterfaces || slices.ContainsFunc(r.transports, alone):
		return false
	}
	return r.perHost > 1
}

func (r *runner) agentPath() string { return filepath.Join(r.lab.Dir(), "agent") }

// startAgent has this process share XDP among ranks that have one interface.
func (r *runner) startAgent() (err error) {
	if r.lab != nil && r.shares() {
		r.agent, err = agent.Serve(agent.Config{Path: r.agentPath(), Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	}
	return err
}

func (r *runner) stopAgent() error {
	if r.agent == nil {
		return nil
	}
	return r.agent.Close()
}

// inLab returns how frames travel with a transport on the interfaces of a lab, where nothing
// is in its way.
func inLab(t userspace.Transport) userspace.Transport {
	return device.Ladder(t, loader.Features{Kind: "veth"})[0]
}

// acceptAnswers has the lab carry what ranks answer from XDP in native mode, if one of
// them asks for that. The ranks can do without. It turns UDP segmentation off, so ranks
// that do not need it are better off without.
func (r *runner) acceptAnswers() {
	native := func(t userspace.Transport) bool { return inLab(t) == userspace.XDPNative }
	if !slices.ContainsFunc(r.transports, native) {
		return
	}
	err := r.lab.AcceptAnswers()
	if r.answers = err == nil; !r.answers {
		r.console.logf("warning: answers from XDP do not pass between the ranks: %v", err)
	}
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// freePorts finds, for each rank, a UDP port of the loopback address that nobody
// uses. They lie below the range from which the kernel chooses ports by itself, so
// they usually stay free until the ranks bind them.
func freePorts(ranks int) (ports []uint16, err error) {
	const lowest, highest, tries = 10000, 32000, 100
	for tried := 0; len(ports) < ranks; tried++ {
		if tried == ranks+tries {
			return nil, fmt.Errorf("found free UDP ports for %d of %d ranks only", len(ports), ranks)
		}
		port := uint16(lowest + rand.IntN(highest-lowest))
		held, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(loopback, port)))
		if err == nil {
			defer held.Close() // until all are found: they have to differ
			ports = append(ports, port)
		}
	}
	return ports, nil
}

// rendezvous is served where every rank reaches it: a unix socket is
// found through the file system, from any network namespace.
func (r *runner) rendezvous() error {
	addr := "tcp:127.0.0.1:0"
	if r.lab != nil {
		addr = "unix:" + filepath.Join(r.lab.Dir(), "rendezvous")
	}
	l, err := bootstrap.Listen(addr)
	if err != nil {
		return err
	}
	c := r.all
	c.Job = bootstrap.NewJob()
	if c.Security == "" || c.Security == bootstrap.Auto {
		c.Security = bootstrap.Security(secure.None.String()) // the ranks are of one host
	}
	if err := r.makeKey(&c); err != nil {
		l.Close()
		return err
	}
	if r.server, err = bootstrap.Serve(l, &c); err != nil {
		return errors.Join(err, os.Remove(c.KeyFile))
	}
	r.configs = slices.Repeat([]bootstrap.Config{c}, r.ranks)
	return nil
}

// startGuard starts the guard, or says that there is none.
func (r *runner) startGuard() {
	var err error
	if r.guard, err = newGuard(); err != nil {
		r.console.logf("warning: what the ranks have started stays behind if this process is killed: start the guard: %v", err)
	}
}

// makeKey makes the job's key, and a file from which the ranks read it. A descriptor would not
// do: wrappers close those.
func (r *runner) makeKey(c *bootstrap.Config) error {
	dir := os.TempDir()
	if r.lab != nil {
		dir = r.lab.Dir()
	}
	path := filepath.Join(dir, "xdprma-key-"+crand.Text())
	r.guard.file(path) // before it is there, so that it never stays
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("cannot make a file for the job's key: %w", err)
	}
	key := secure.NewKey()
	_, err = f.WriteString(key.Text() + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	c.Key, c.KeyFile = &key, f.Name()
	return nil
}

// endRendezvous ends it, and removes the key.
func (r *runner) endRendezvous() {
	_ = r.server.Close()
	if err := os.Remove(r.configs[0].KeyFile); err != nil {
		r.console.logf("warning: the job's key stays behind: %v", err)
	}
}

// configure gives each rank its place.
func (r *runner) configure() {
	for rank := range r.configs {
		c := &r.configs[rank]
		c.Rank, c.Size, c.Rendezvous, c.Transport = rank, r.ranks, r.server.Addr(), r.transports[rank]
		if r.lab != nil {
			c.Interface, c.Address = r.lab.Interface(rank), r.lab.Addr(rank)
			if !r.ported {
				c.Port = bootstrap.DefaultPort
			}
			if c.Port != 0 {
				c.Port += uint16(r.lab.Sharer(rank))
			}
			if c.Agent = userspace.NoAgent; r.agent != nil {
				c.Agent = r.agentPath()
			}
		} else {
			c.Address, c.Port = loopback, r.ports[rank]
			c.Host = fmt.Sprintf("%s-%d", c.Token(), rank/r.perHost) // as namespaces would have it
		}
	}
}

// crowd is how many ranks may share a processor before they take each other's waits for it for
// silence; ranks that are more get so much more time. Their ends are told by this process at once, all the same.
const (
	crowd       = 16
	crowdsLimit = 5 * time.Second
)

// patience has many ranks that share few processors wait longer before one that is silent counts as
// failed, unless the environment or the program says how long.
func (r *runner) patience() {
	if shared := r.ranks / runtime.NumCPU(); shared > crowd && r.all.DeadAfter == 0 {
		limit := (crowdsLimit*time.Duration(shared)/crowd + time.Second - 1).Truncate(time.Second)
		r.console.logf("%d ranks share each processor: one that is silent counts as failed after %v, unless the program or %s says otherwise", shared, limit, bootstrap.EnvDeadAfter)
		for rank := range r.configs {
			r.configs[rank].SilenceByDefault = limit
		}
	}
}

func (r *runner) newJob() *job {
	return &job{console: r.console, timeout: r.timeout, keepGoing: r.keepGoing, statuses: r.statuses, rendezvous: r.server}
}

// job prepares the processes.
func (r *runner) job(program string) (*job, error) {
	j := r.newJob()
	inherited := bootstrap.Inherited(os.Environ())
	processors, err := r.processors()
	if err != nil {
		return nil, err
	}
	for rank := range r.configs {
		stdout, stderr, err := r.streams(rank, nil)
		if err != nil {
			return nil, err
		}
		cmd := &exec.Cmd{Path: program, Args: r.args, Dir: r.folder, Env: slices.Concat(inherited, []string{"PWD=" + r.folder}, r.env, r.configs[rank].Environ())}
		if rank == 0 {
			if in := standardInput(); in != nil {
				cmd.Stdin = in
			}
		}
		start := (*exec.Cmd).Start
		if r.lab != nil {
			start = func(cmd *exec.Cmd) error { return r.lab.Start(rank, cmd) }
		}
		if processors != nil {
			start = startBound(processors[rank], start)
		}
		j.processes = append(j.processes, &process{rank: rank, cmd: cmd, start: start, stdout: stdout, stderr: stderr, guard: r.guard})
	}
	return j, nil
}

// standardInput returns what rank 0 reads: this process's own standard input,
// through a pipe if that is a terminal, because a process in another group than
// the terminal's foreground group is stopped when it reads from it. For the same
// reason there is none if this process is not in the foreground itself.
func standardInput() *os.File {
	foreground, err := unix.IoctlGetInt(int(os.Stdin.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return os.Stdin // not a terminal
	}
	if foreground != unix.Getpgrp() {
		return nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil
	}
	go func() {
		io.Copy(w, os.Stdin)
		w.Close()
	}()
	return r
}
