package bootstrap

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/xdprma/xdprma/userspace"
)

// The variables of the environment contract; Contract says what they mean.
const (
	EnvRank       = "XDPRMA_RANK"
	EnvSize       = "XDPRMA_SIZE"
	EnvJob        = "XDPRMA_JOB"
	EnvRendezvous = "XDPRMA_RENDEZVOUS"
	EnvServe      = "XDPRMA_RENDEZVOUS_SERVE"
	EnvPatience   = "XDPRMA_RENDEZVOUS_TIMEOUT"
	EnvJoin       = "XDPRMA_JOIN_TIMEOUT"
	EnvDeadAfter  = "XDPRMA_DEAD_AFTER"
	EnvSilence    = "XDPRMA_DEAD_AFTER_DEFAULT"
	EnvLog        = "XDPRMA_LOG"
	EnvTransport  = "XDPRMA_TRANSPORT"
	EnvInterface  = "XDPRMA_INTERFACE"
	EnvAddress    = "XDPRMA_ADDRESS"
	EnvPort       = "XDPRMA_PORT"
	EnvQueues     = "XDPRMA_QUEUES"
	EnvAgent      = "XDPRMA_AGENT"
	EnvHost       = "XDPRMA_HOST"
	EnvFrames     = "XDPRMA_FRAMES"
	EnvExpress    = "XDPRMA_EXPRESS"
	EnvCaps       = "XDPRMA_CAPABILITIES"
	EnvKeyFile    = "XDPRMA_KEY_FILE"
	EnvKey        = "XDPRMA_KEY"
	EnvSecurity   = "XDPRMA_SECURITY"
	EnvCheck      = "XDPRMA_CHECK"
)

// Variable is an environment variable that a rank reads.
type Variable struct {
	Name, Meaning string
	ForAll        bool // where a launcher of this library has it, it holds for all ranks
	value
}

// value is how a variable and a Config tell the same.
type value struct {
	takes string                         // what read takes, for an error
	read  func(c *Config, s string) bool // takes s, which is not empty, into c, or reports false; nil: more than this variable decides
	write func(c *Config) string         // what FromEnvironment makes c of; empty: nothing need be said
}

// Contract lists the variables, with what holds where a variable is not set.
var Contract = []Variable{
	{EnvRank, "the rank of this process, from 0; else the launcher's variable says it", false, value{write: number(func(c *Config) *int { return &c.Rank }, 0, MaxRanks-1).write}},
	{EnvSize, "the number of ranks; else the launcher's variable says it", false, value{write: number(func(c *Config) *int { return &c.Size }, 1, MaxRanks).write}},
	{EnvJob, "1 to 16 hexadecimal digits, not zero, the same for all ranks and chosen at random for each job; it is also the secret that admits a rank to the rendezvous, and frames carry only a hash of it", false, value{"1 to 16 hexadecimal digits other than 0", readJob, (*Config).Token}},
	{EnvRendezvous, "where the ranks find each other: host:port, tcp:host:port or unix:/path", false, value{write: func(c *Config) string { return c.Rendezvous }}},
	{EnvServe, "0: something else than rank 0 serves the rendezvous, as `xdprma run` does; 1, the default: rank 0 does", false, value{write: writeServe}},
	{EnvPatience, "how long to try to reach the rendezvous, or at rank 0 to learn the address of its name, such as 90s or 10m; by default a minute, unless the program sets a limit of its own", true, duration(func(c *Config) *time.Duration { return &c.Patience })},
	{EnvJoin, "how long ranks have to join, such as 30s or 1h, counted at each rank from its own joining: calls that wait for one which has not joined by then fail; by default 10m", true, duration(func(c *Config) *time.Duration { return &c.JoinTimeout })},
	{EnvDeadAfter, "how long a rank that owes an answer may be silent, such as 30s or 1h, before it counts as failed; it has to be the same for all ranks, and holds whatever Limits.DeadAfter the program sets; by default 5s", true, duration(func(c *Config) *time.Duration { return &c.DeadAfter })},
	{EnvSilence, "how long it may be silent where neither XDPRMA_DEAD_AFTER nor the program says so; `xdprma run` sets it where many ranks share a processor", false, duration(func(c *Config) *time.Duration { return &c.SilenceByDefault })},
	{EnvLog, "what a program that gives the library no logger has on its standard error: debug, info, warn or error, and what is graver; by default warn, by the default logger of log/slog", true, value{"debug, info, warn or error", readLog, func(c *Config) string { return c.Log }}},
	{EnvTransport, "how frames travel: " + userspace.TransportNames + "; by default auto", true, text(func(c *Config) *userspace.Transport { return &c.Transport }, userspace.TransportNames, userspace.Transport.Valid)},
	{EnvInterface, "the network interface; by default that of the address", false, text(func(c *Config) *string { return &c.Interface }, "the name of a network interface", isInterface)},
	{EnvAddress, "the IP address; by default the best of the interface's or, without an interface, that from which the rendezvous is reached", false, value{"an IP address of a host", readAddress, writeAddress}},
	{EnvPort, "the UDP port, 0 for any; by default 7770 on an interface or address that is named, other than loopback's, and else 0", true, number(func(c *Config) *uint16 { return &c.Port }, 0, 65535)},
	{EnvQueues, "at most so many of the interface's queues are used by XDP, and what arrives by others takes the slower way through the kernel; by default all, up to 64", true, number(func(c *Config) *int { return &c.Queues }, 1, userspace.MaxQueues)},
	{EnvAgent, "the path of the Unix socket of an agent that shares XDP among the ranks of an interface, or off; by default /run/xdprma/agent.sock, if it is there; for ranks of its own network `xdprma run` sets it", false, value{"a path that begins with a slash, or off", readAgent, func(c *Config) string { return c.Agent }}},
	{EnvHost, "a name for the host: ranks that are told the same one share memory; by default those do that share the running kernel and the network namespace", false, text(func(c *Config) *string { return &c.Host }, "a name", func(string) bool { return true })},
	{EnvFrames, "1: access windows of ranks of the same host by frames too, in this and all ranks of a communicator", true, choice(func(c *Config) *bool { return &c.Frames }, "0", "1")},
	{EnvExpress, "off: the XDP program executes no requests; on, the default: it executes small ones where it can", true, choice(func(c *Config) *bool { return &c.NoExpress }, "on", "off")},
	{EnvCaps, "keep: a rank that has set up XDP keeps capabilities that it does not need any more; drop, the default: it gives them up", true, choice(func(c *Config) *bool { return &c.KeepCaps }, "drop", "keep")},
	{EnvKeyFile, "a file with the job's key, which `xdprma key` makes: the same key for all ranks, and for them alone; others than the owner and the group may not read it, and others than the owner may not write it", false, value{write: func(c *Config) string { return c.KeyFile }}},
	{EnvKey, "the key itself, where there is no way to have a file; others of the user can read it, so there is a warning", false, value{write: func(*Config) string { return "" }}},
	{EnvSecurity, "how far frames are protected in a job with a key, the same for all ranks: none, where the key is for joining and for opening sessions; sign, where each frame is authenticated; seal, where it is encrypted, too; auto, the default: what the rendezvous has, which is none at a unix socket or a loopback address, and else sign", true, text(func(c *Config) *Security { return &c.Security }, SecurityNames, Security.valid)},
	{EnvCheck, "1: look for conflicting accesses to windows", true, choice(func(c *Config) *bool { return &c.Check }, "0", "1")},
}

// Read takes what s says of a variable into c; an empty s says nothing. The error names by: the
// variable, or the option that says it in its place.
func (c *Config) Read(name, by, s string) error {
	row := slices.IndexFunc(Contract, func(v Variable) bool { return v.Name == name })
	return Contract[row].take(c, by, s)
}

// take is Read.
func (v value) take(c *Config, by, s string) error {
	switch s = strings.TrimSpace(s); {
	case s == "" || v.read(c, s):
		return nil
	case by == EnvPort && strings.HasPrefix(s, "tcp://"):
		return fmt.Errorf("%s=%q is not %s: Kubernetes sets it for a service of the name xdprma; set enableServiceLinks: false in the pod's spec, or name the service otherwise",
			by, s, v.takes)
	}
	return fmt.Errorf("%s=%q is not %s", by, s, v.takes)
}

// number is a number in a field, which is out of its range where nothing need be said.
func number[T int | uint16](field func(*Config) *T, least, most T) value {
	return value{
		takes: fmt.Sprintf("a number from %d to %d", least, most),
		read: func(c *Config, s string) bool {
			n, err := strconv.Atoi(s)
			if err != nil || n < int(least) || n > int(most) {
				return false
			}
			*field(c) = T(n)
			return true
		},
		write: func(c *Config) string {
			if *field(c) < least {
				return ""
			}
			return strconv.Itoa(int(*field(c)))
		},
	}
}

// text is text in a field, for which ok returns true.
func text[T ~string](field func(*Config) *T, takes string, ok func(T) bool) value {
	return value{
		takes: takes,
		read:  func(c *Config, s string) bool { *field(c) = T(s); return ok(T(s)) },
		write: func(c *Config) string { return string(*field(c)) },
	}
}

// choice is a field that is set by yes, and not set by no.
func choice(field func(*Config) *bool, no, yes string) value {
	return value{
		takes: no + " or " + yes,
		read:  func(c *Config, s string) bool { *field(c) = s == yes; return s == yes || s == no },
		write: func(c *Config) string {
			if *field(c) {
				return yes
			}
			return ""
		},
	}
}

func readJob(c *Config, s string) (ok bool) {
	id, err := strconv.ParseUint(s, 16, 64)
	c.Job = id
	return err == nil && id != 0
}

func writeServe(c *Config) string {
	if c.Rendezvous != "" && !c.Serve {
		return "0"
	}
	return ""
}

// duration is a time in a field, which is 0 where nothing need be said.
func duration(field func(*Config) *time.Duration) value {
	return value{
		takes: "a time with its unit, such as 90s or 10m",
		read: func(c *Config, s string) bool {
			d, err := time.ParseDuration(s)
			*field(c) = d
			return err == nil && d > 0
		},
		write: func(c *Config) string {
			if *field(c) == 0 {
				return ""
			}
			return field(c).String()
		},
	}
}

func isInterface(name string) bool { return !strings.ContainsAny(name, "/ \t\n") && len(name) <= 15 }

func readAgent(c *Config, s string) bool {
	c.Agent = s
	return s == userspace.NoAgent || strings.HasPrefix(s, "/")
}

func readAddress(c *Config, s string) bool {
	a, err := netip.ParseAddr(s)
	c.Address = a
	return err == nil && !a.IsUnspecified() && !a.IsMulticast()
}

func writeAddress(c *Config) string {
	if !c.Address.IsValid() {
		return ""
	}
	return c.Address.String()
}
