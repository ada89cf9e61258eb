package bootstrap

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The variables of the environment contract; Contract says what they mean.
const (
	EnvRank       = "XDPRMA_RANK"
	EnvSize       = "XDPRMA_SIZE"
	EnvJob        = "XDPRMA_JOB"
	EnvRendezvous = "XDPRMA_RENDEZVOUS"
	EnvServe      = "XDPRMA_RENDEZVOUS_SERVE"
	EnvPatience   = "XDPRMA_RENDEZVOUS_TIMEOUT"
	EnvTransport  = "XDPRMA_TRANSPORT"
	EnvInterface  = "XDPRMA_INTERFACE"
	EnvAddress    = "XDPRMA_ADDRESS"
	EnvPort       = "XDPRMA_PORT"
	EnvQueues     = "XDPRMA_QUEUES"
	EnvHost       = "XDPRMA_HOST"
	EnvFrames     = "XDPRMA_FRAMES"
	EnvExpress    = "XDPRMA_EXPRESS"
)

// Defaults and limits of a Config.
const (
	DefaultPort = 7770
	MaxRanks    = 1 << 16
	MaxQueues   = 64
)

// Transport says how frames travel.
type Transport string

// The transports. Auto takes the best that works; XDP takes the better of native
// and generic mode on the interface and fails where neither works.
const (
	Auto       Transport = "auto"
	XDP        Transport = "xdp"
	XDPNative  Transport = "xdp-native"
	XDPGeneric Transport = "xdp-generic"
	UDP        Transport = "udp"
)

var transports = []Transport{Auto, XDP, XDPNative, XDPGeneric, UDP}

// ParseTransport returns the transport called s.
func ParseTransport(s string) (Transport, error) {
	if t := Transport(s); slices.Contains(transports, t) {
		return t, nil
	}
	return "", fmt.Errorf("transport %q is not one of auto, xdp, xdp-native, xdp-generic, udp", s)
}

// ParseSwitch returns whether s is on or off, and absent if it is empty.
func ParseSwitch(s string, absent bool) (bool, error) {
	switch s {
	case "":
		return absent, nil
	case "on", "off":
		return s == "on", nil
	}
	return absent, fmt.Errorf("%q is neither on nor off", s)
}

// Config is the place of a process in its job.
type Config struct {
	Rank, Size int
	Job        uint64        // random, the same for all ranks, never 0, and told to nobody else
	Rendezvous string        // host:port, tcp:host:port or unix:/path; empty for a job of one rank without one, and where PMI tells it
	Serve      bool          // whether this rank serves the rendezvous
	Patience   time.Duration // how long to try to reach the rendezvous, where a context sets no limit; 0: a minute
	Transport  Transport     // never empty
	Interface  string        // empty: the library chooses
	Address    netip.Addr    // not valid: the library chooses
	Port       uint16        // UDP port; 0: the system chooses
	Queues     int           // at most so many of the interface's are used; 0: all
	Host       string        // names the host, for those who share memory; empty: the kernel and network namespace do
	PMI        PMI           // where Job and Rendezvous are told, if that is not by the environment
	Frames     bool          // even ranks of one host access each other's windows by frames
	NoExpress  bool          // the XDP program executes no requests of others
}

// Token returns the job's secret, as Serve and Dial take it.
func (c *Config) Token() string { return fmt.Sprintf("%016x", c.Job) }

// FrameJob returns what frames name the job by, never 0. It is made of the token, which it
// does not give away: who reads a frame has no entry to the rendezvous.
func (c *Config) FrameJob() uint64 {
	sum := sha256.Sum256([]byte("xdprma: the job in frames\x00" + c.Token()))
	return cmp.Or(binary.LittleEndian.Uint64(sum[:]), 1)
}

// Launched reports whether a launcher has started the process as a rank of a job.
func (c *Config) Launched() bool { return c.Rendezvous != "" || c.PMI.FD != 0 }

// NewJob returns a random job id.
func NewJob() uint64 {
	for {
		if id := rand.Uint64(); id != 0 { // the runtime's generator is ChaCha8, seeded by the kernel
			return id
		}
	}
}

// Environ returns the variables, as NAME=value, from which FromEnvironment makes c.
func (c *Config) Environ() []string {
	env := []string{
		EnvRank + "=" + strconv.Itoa(c.Rank),
		EnvSize + "=" + strconv.Itoa(c.Size),
		EnvJob + "=" + c.Token(),
		EnvTransport + "=" + string(c.Transport),
		EnvPort + "=" + strconv.Itoa(int(c.Port)),
	}
	if c.Queues != 0 {
		env = append(env, EnvQueues+"="+strconv.Itoa(c.Queues))
	}
	if c.Rendezvous != "" {
		env = append(env, EnvRendezvous+"="+c.Rendezvous)
		if !c.Serve {
			env = append(env, EnvServe+"=0")
		}
		if c.Patience != 0 {
			env = append(env, EnvPatience+"="+c.Patience.String())
		}
	}
	if c.Interface != "" {
		env = append(env, EnvInterface+"="+c.Interface)
	}
	if c.Address.IsValid() {
		env = append(env, EnvAddress+"="+c.Address.String())
	}
	if c.Host != "" {
		env = append(env, EnvHost+"="+c.Host)
	}
	if c.Frames {
		env = append(env, EnvFrames+"=1")
	}
	if c.NoExpress {
		env = append(env, EnvExpress+"=off")
	}
	return env
}

// FromEnvironment reads the environment contract. Its errors name the variable
// that is missing or invalid.
func FromEnvironment() (Config, error) {
	c, err := fromVariables(os.LookupEnv)
	if err != nil {
		return Config{}, fmt.Errorf("%w (`xdprma run` sets the XDPRMA variables, and `srun --mpi=pmi2` and `mpiexec.hydra` need none; with other launchers set %s and %s)", err, EnvRendezvous, EnvJob)
	}
	return c, nil
}

// variables reads values and keeps the first error.
type variables struct {
	lookup func(string) (string, bool)
	err    error
}

func (v *variables) fail(format string, args ...any) {
	if v.err == nil {
		v.err = fmt.Errorf(format, args...)
	}
}

// get returns the value of name; an empty variable counts as absent.
func (v *variables) get(name string) string {
	value, _ := v.lookup(name)
	return strings.TrimSpace(value)
}

// number returns the number in name, or absent.
func (v *variables) number(name string, least, most, absent int) int {
	s := v.get(name)
	if s == "" {
		return absent
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		v.fail("%s=%q is not a number from %d to %d", name, s, least, most)
		return absent
	}
	return n
}

func fromVariables(lookup func(string) (string, bool)) (Config, error) {
	v := &variables{lookup: lookup}
	c := Config{Size: 1, Rendezvous: v.get(EnvRendezvous)}
	switch {
	case c.Rendezvous != "" || v.get(EnvRank) != "" || v.get(EnvSize) != "":
		v.place(&c)
	case v.torch():
		v.torchPlace(&c)
	case v.get("PMI_FD") != "":
		v.pmiPlace(&c)
	default:
		v.refuseLostRanks()
	}
	v.job(&c)
	v.patience(&c)
	v.network(&c)
	return c, v.err
}

// place reads rank, size and rendezvous of a process that has been launched.
func (v *variables) place(c *Config) {
	rankName, sizeName := v.first(rankNames), v.first(sizeNames)
	if rankName == "" {
		v.fail("%s is not set, and neither is a known launcher's variable (%s)", EnvRank, strings.Join(rankNames[1:], ", "))
		return
	}
	if sizeName == "" {
		v.fail("%s is not set, and neither is a known launcher's variable (%s)", EnvSize, strings.Join(sizeNames[1:], ", "))
		return
	}
	c.Size = v.number(sizeName, 1, MaxRanks, 1)
	c.Rank = v.number(rankName, 0, MaxRanks-1, 0)
	if v.err == nil && c.Rank >= c.Size {
		v.fail("%s=%d is not below %s=%d", rankName, c.Rank, sizeName, c.Size)
	}
	if c.Rendezvous == "" {
		if c.Size > 1 {
			v.fail("%s is not set, in a job of %d ranks", EnvRendezvous, c.Size)
		}
		return
	}
	network, address, err := splitAddress(c.Rendezvous)
	if err != nil {
		v.fail("%s: %w", EnvRendezvous, err)
	}
	served := v.number(EnvServe, 0, 1, 1) == 1
	c.Serve = served && c.Rank == 0
	if c.Serve && rankName == envCompletion && network == "tcp" {
		_, port, _ := net.SplitHostPort(address)
		c.Rendezvous = ":" + port // the pod's name is not known before the pod runs
	}
}

// patience reads how long to wait, where there is something to wait for.
func (v *variables) patience(c *Config) {
	s := v.get(EnvPatience)
	if s == "" || c.Rendezvous == "" && c.PMI.FD == 0 {
		return
	}
	var err error
	if c.Patience, err = time.ParseDuration(s); err != nil || c.Patience <= 0 {
		v.fail("%s=%q is not a time with its unit, such as 90s or 10m", EnvPatience, s)
	}
}

// job reads the job's id.
func (v *variables) job(c *Config) {
	s := v.get(EnvJob)
	if id := v.torchJob(); s == "" && id != 0 {
		c.Job = id
		return
	}
	if s == "" {
		if c.Rendezvous != "" && v.torch() {
			v.fail("%s is not set, and %s=%q is no UUID: give torchrun --rdzv-id=$(uuidgen), the same on all hosts", EnvJob, envTorchRun, v.get(envTorchRun))
		}
		if c.Rendezvous != "" {
			v.fail("%s is not set", EnvJob)
		}
		c.Job = NewJob()
		return
	}
	id, err := strconv.ParseUint(s, 16, 64)
	if err != nil || id == 0 {
		v.fail("%s=%q is not 1 to 16 hexadecimal digits other than 0", EnvJob, s)
	}
	c.Job = id
}

// network reads what is said about the transport.
func (v *variables) network(c *Config) {
	c.Transport = Auto
	if s := v.get(EnvTransport); s != "" {
		t, err := ParseTransport(s)
		if err != nil {
			v.fail("%s: %w", EnvTransport, err)
		}
		c.Transport = t
	}
	c.Interface = v.get(EnvInterface)
	if strings.ContainsAny(c.Interface, "/ \t\n") || len(c.Interface) > 15 {
		v.fail("%s=%q is not the name of a network interface", EnvInterface, c.Interface)
	}
	if s := v.get(EnvAddress); s != "" {
		a, err := netip.ParseAddr(s)
		if err != nil || a.IsUnspecified() || a.IsMulticast() {
			v.fail("%s=%q is not an IP address of a host", EnvAddress, s)
		}
		c.Address = a
	}
	c.Queues = v.number(EnvQueues, 1, MaxQueues, 0)
	c.Host = v.get(EnvHost)
	c.Frames = v.number(EnvFrames, 0, 1, 0) == 1
	express, err := ParseSwitch(v.get(EnvExpress), true)
	if err != nil {
		v.fail("%s: %w", EnvExpress, err)
	}
	c.NoExpress = !express
	port := DefaultPort
	if c.Interface == "" && (!c.Address.IsValid() || c.Address.IsLoopback()) {
		port = 0 // several ranks may share the machine
	}
	c.Port = uint16(v.number(EnvPort, 0, 65535, port))
}
