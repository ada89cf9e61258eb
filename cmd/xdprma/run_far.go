package main

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// far is what a run has whose ranks are on other hosts.
type far struct {
	places  []place // of the ranks
	ssh     []string
	address netip.AddrPort // of the rendezvous; invalid: to be found
	ifname  string         // of the ranks whose place has none; may be empty
}

// parseHow reads the options that say where ranks run, and with what. It sets the number of ranks
// where the hosts say it.
func (r *runner) parseHow(c *cli.Command) (err error) {
	if r.env, err = parseVariables(c.StringSlice("env"), os.LookupEnv); err != nil {
		return usageError("--env: %w", err)
	}
	switch bind := c.String("bind"); bind {
	case bindNone:
	case bindCore:
		r.bind = true
	default:
		return usageError("--bind is %q, it must be %s or %s", bind, bindNone, bindCore)
	}
	list, file := c.String("hosts"), c.String("hostfile")
	far := !(list == "" && file == "")
	if list != "" && file != "" {
		return usageError("--hosts and --hostfile are both given: leave one out")
	}
	without, with := []string{"mtu", "queues", "ranks-per-host"}, []string{"ssh", "address", "interface"}
	for _, name := range without {
		if far && c.IsSet(name) {
			return usageError("--%s is of the network that xdprma run makes on this machine, and --hosts and --hostfile name others: leave it out", name)
		}
	}
	for _, name := range with {
		if !far && c.IsSet(name) {
			return usageError("--%s is for ranks on other hosts: name them by --hosts or --hostfile", name)
		}
	}
	if !far {
		return nil
	}
	return r.parseFar(c, list, file)
}

func (r *runner) parseFar(c *cli.Command, list, file string) error {
	hosts, err := parseHosts(list)
	if option := "--hosts"; file != "" {
		option = "--hostfile"
		if hosts, err = loadHostfile(file); err != nil {
			return usageError("%s: %w", option, err)
		}
	} else if err != nil {
		return usageError("%s: %w", option, err)
	}
	if !c.IsSet("n") {
		r.ranks = 0
	} else if r.ranks < 1 {
		return usageError("-n is %d, it must be at least 1", r.ranks)
	}
	for _, e := range r.env {
		if name, _, _ := strings.Cut(e, "="); slices.Contains(strings.Fields(ofShells), name) {
			return usageError("--env: the shells of the hosts set %s themselves: give the program its value by another name", name)
		}
	}
	r.far = &far{ifname: c.String("interface")}
	if r.far.places, err = spread(hosts, r.ranks); err != nil {
		return usageError("%w", err)
	}
	r.ranks = len(r.far.places)
	if r.far.ssh, err = splitWords(c.String("ssh")); err != nil {
		return usageError("--ssh: %w", err)
	}
	if len(r.far.ssh) == 0 {
		return usageError("--ssh names no command")
	}
	if a := c.String("address"); a != "" {
		if r.far.address, err = netip.ParseAddrPort(a); err != nil {
			ip, err := netip.ParseAddr(a)
			if err != nil {
				return usageError("--address is %q, it must be an IP address, or one with a port such as 10.0.0.1:7000", a)
			}
			r.far.address = netip.AddrPortFrom(ip, 0)
		}
		if ip := r.far.address.Addr(); ip.Is6() && ip.IsLinkLocalUnicast() && ip.Zone() == "" {
			return usageError("--address is %q, which is link-local: name its link, too, such as %v%%eth0", a, ip)
		}
	}
	return nil
}

// runFar is run for ranks on other hosts.
func (r *runner) runFar() (status int, err error) {
	ssh, err := exec.LookPath(r.far.ssh[0])
	if err != nil {
		return 0, fmt.Errorf("--ssh: %w", err)
	}
	r.far.ssh[0] = ssh
	if !r.far.address.IsValid() {
		if r.far.address, err = r.far.findAddress(); err != nil {
			return 0, err
		}
	}
	l, err := bootstrap.Listen("tcp:" + r.far.address.String())
	if err != nil {
		return 0, fmt.Errorf("%w; --address names an address of this host that the others reach", err)
	}
	c, key := r.all, secure.NewKey()
	c.Job, c.Key = bootstrap.NewJob(), &key
	if r.server, err = bootstrap.Serve(l, &c); err != nil {
		return 0, err
	}
	defer r.server.Close()
	r.configs = slices.Repeat([]bootstrap.Config{c}, r.ranks)
	for rank := range r.configs {
		c := &r.configs[rank]
		c.Rank, c.Size, c.Transport, c.Interface = rank, r.ranks, r.transports[rank], cmp.Or(r.far.places[rank].ifname, r.far.ifname)
		if c.Rendezvous, err = r.far.rendezvousOf(r.far.places[rank], r.server.Addr()); err != nil {
			return 0, err
		}
		if !r.ported && c.Interface != "" {
			c.Port = bootstrap.DefaultPort
		}
		if c.Port != 0 { // the ranks of a host share its address
			port := int(c.Port) + r.far.places[rank].slot
			if port > 65535 {
				return 0, fmt.Errorf("%s is %d: rank %d would have port %d", bootstrap.EnvPort, c.Port, rank, port)
			}
			c.Port = uint16(port)
		}
	}
	j, err := r.farJob(key.Text())
	if err != nil {
		return 0, err
	}
	signals, stop := catchSignals() // before, where names may be waited for, they end this process: it has made nothing that stays
	defer stop()
	return j.run(signals), nil
}

// farJob prepares the processes of ssh.
func (r *runner) farJob(key string) (*job, error) {
	mark := make([]byte, 16)
	_, _ = rand.Read(mark) // never fails
	j := r.newJob()
	doors := map[string]*door{}
	for rank, at := range r.far.places {
		if doors[at.host] == nil {
			doors[at.host] = newDoor()
		}
		f := &remote{ssh: r.far.ssh, host: at.host, mark: "xdprma:" + hex.EncodeToString(mark) + ":", door: doors[at.host],
			warning: beginWarning, limit: beginLimit, logf: r.console.logf, orders: make(chan string, 64), givenUp: make(chan struct{})}
		if rank == 0 {
			f.input = farInput()
		}
		told := remoteRank{mark: f.mark, key: key, folder: r.folder, args: r.args, input: f.input != nil, bind: r.bind, slot: at.slot,
			env: slices.Concat(r.env, r.configs[rank].Environ())}
		f.script = told.script()
		p := &process{rank: rank, cmd: f.sshTo(sshCommand), far: f, guard: r.guard}
		p.start = func(cmd *exec.Cmd) error { return f.connect(cmd, p.kill) }
		var err error
		if p.stdout, p.stderr, err = r.streams(rank, p); err != nil {
			return nil, err
		}
		j.processes = append(j.processes, p)
	}
	return j, nil
}

// farInput returns what rank 0 reads, or nil for nothing, which takes no connection.
func farInput() *os.File {
	in := standardInput()
	if in == nil {
		return nil
	}
	var is, null unix.Stat_t
	if unix.Fstat(int(in.Fd()), &is) != nil || unix.Stat(os.DevNull, &null) == nil && is.Mode&unix.S_IFMT == unix.S_IFCHR && is.Rdev == null.Rdev {
		return nil
	}
	return in
}

// findAddress returns the address of this host from which the first of the others is reached,
// or the loopback address where there is no other.
func (f *far) findAddress() (netip.AddrPort, error) {
	found := netip.AddrPortFrom(loopback, 0)
	var problems []error
	for _, at := range f.places {
		if at.slot > 0 {
			continue
		}
		name := at.host[strings.LastIndexByte(at.host, '@')+1:]
		c, err := net.Dial("udp", net.JoinHostPort(name, "9")) // asks for the route, and sends nothing
		if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
			err = fmt.Errorf("the host %s is not known here (%w)", name, err)
		}
		if err != nil {
			problems = append(problems, err)
			continue
		}
		own, other := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr(), c.RemoteAddr().(*net.UDPAddr).AddrPort().Addr()
		c.Close()
		if own.Unmap() != other.Unmap() && !other.IsLoopback() {
			return netip.AddrPortFrom(own.Unmap(), 0), nil
		}
	}
	if len(problems) > 0 {
		return found, fmt.Errorf("no address of this host is found that the others reach: %w; if ssh alone knows the way, --address names one", errors.Join(problems...))
	}
	return found, nil
}

// rendezvousOf returns where the ranks of a place find the rendezvous, which is served at an address
// that has lost its zone, as those of listeners do. A link-local address means something with its zone alone, and
// the place has its own name for the link.
func (f *far) rendezvousOf(at place, served string) (string, error) {
	link := f.address.Addr().Zone()
	if link == "" {
		return served, nil
	}
	a, err := netip.ParseAddrPort(strings.TrimPrefix(served, "tcp:"))
	if err != nil {
		return "", err
	}
	zone := cmp.Or(at.ifname, f.ifname)
	if zone == "" {
		return "", usageError("the ranks on host %s are to find each other at %v, which is on this host's link %s alone, and what that host calls the link is not known: "+
			"name it by --interface or in the hostfile, or name an address that is not link-local by --address", at.host, a.Addr().WithZone(""), link)
	}
	return "tcp:" + netip.AddrPortFrom(a.Addr().WithZone(zone), a.Port()).String(), nil
}

// streams returns where a rank's output goes. Of a process of ssh the supervisor's words are taken
// out of it.
func (r *runner) streams(rank int, ssh *process) (stdout, stderr *stream, err error) {
	prefix := fmt.Sprintf("[%d] ", rank)
	if r.bare {
		prefix = ""
	}
	to := []sink{&lineWriter{console: r.console, dst: r.console.out, prefix: prefix}, &lineWriter{console: r.console, dst: r.console.err, prefix: prefix}}
	if r.logDir != "" {
		if err := os.MkdirAll(r.logDir, 0o777); err != nil {
			return nil, nil, fmt.Errorf("--log-dir: %w", err)
		}
		for i, kind := range []string{"out", "err"} {
			f, err := os.Create(filepath.Join(r.logDir, fmt.Sprintf("rank.%d.%s", rank, kind)))
			if err != nil {
				return nil, nil, fmt.Errorf("--log-dir: %w", err)
			}
			to[i] = &logFile{f, r.console}
		}
	}
	if ssh != nil {
		far := ssh.far
		heard := func(word string) { far.hear(word, ssh.kill) }
		for i := range to {
			to[i] = &markReader{to: to[i], mark: []byte(far.mark), heard: heard, tooLong: func() { far.mistrust(ssh.kill) }}
		}
		to[1].(*markReader).passed = far.remember
	}
	if stdout, err = newStream(to[0]); err == nil {
		stderr, err = newStream(to[1])
	}
	return stdout, stderr, err
}
