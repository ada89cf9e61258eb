package bootstrap

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/xdprma/xdprma/internal/launch/lent"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/userspace"
)

// Defaults and limits of a Config.
const (
	DefaultPort = 7770
	MaxRanks    = 1 << 16
)

// Config is the place of a process in its job.
type Config struct {
	userspace.Config // whose Transport is never empty where the environment says it

	Rank, Size       int
	Job              uint64        // random, the same for all ranks, never 0, and told to nobody else
	Rendezvous       string        // host:port, tcp:host:port or unix:/path; empty for a job of one rank without one, and where PMI tells it
	Serve            bool          // whether this rank serves the rendezvous
	Patience         time.Duration // how long to try to reach the rendezvous, where a context sets no limit; 0: a minute
	JoinTimeout      time.Duration // how long ranks have to join, from the joining of this one; 0: ten minutes
	DeadAfter        time.Duration // how long a rank may be silent, whatever the program's limit; 0: that
	SilenceByDefault time.Duration // the same, where neither that nor the program says anything; 0: five seconds
	Host             string        // names the host, for those who share memory; empty: the kernel and network namespace do
	PMI              PMI           // where Job and Rendezvous are told, if that is not by the environment
	Frames           bool          // even ranks of one host access each other's windows by frames
	NoExpress        bool          // the XDP program executes no requests of others
	Check            bool          // windows look for conflicting accesses
	KeepCaps         bool          // the process keeps capabilities of which the rank has no more use
	Key              *secure.Key   // the job's; nil: it has none
	KeyFile          string        // where it has been read; may be empty
	Security         Security      // the level that this process asks for
	Log              string        // the level of the log, where a program gives no logger; may be empty
	Warnings         []string      // of what an operator should know of the environment

	meeting     *meeting // over PMI; nil: none, or all ranks have the key
	environment bool     // a launcher has said all this by the environment
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
func (c *Config) Environ() (env []string) {
	for _, v := range Contract {
		if s := v.write(c); s != "" {
			env = append(env, v.Name+"="+s)
		}
	}
	return env
}

// Inherited returns, of the environment of a process, what those that it launches have
// besides what Environ says.
func Inherited(environ []string) []string {
	return slices.DeleteFunc(environ, func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.ContainsFunc(Contract, func(v Variable) bool { return v.Name == name })
	})
}

// ForAll reads what the environment of a process says for all ranks of a job that it
// launches, and whether that names a port, which may be 0. In the environment of a rank the
// variables are about this rank, and say nothing of such a job, but that it is to be checked.
func ForAll() (c Config, ported bool, err error) {
	v := &variables{lookup: os.Getenv}
	if v.get(EnvRendezvous) == "" {
		v.take(&c, false)
		ported = v.get(EnvPort) != ""
	} else {
		v.check(c.Read(EnvCheck, EnvCheck, v.get(EnvCheck)))
	}
	return c, ported, v.err
}

// FromEnvironment reads the environment contract. Its errors name the variable
// that is missing or invalid.
func FromEnvironment() (Config, error) {
	c, err := fromVariables(environment)
	c.environment = true
	c.Warnings = slices.Concat(c.Warnings, misspelled(os.Environ()), (&variables{lookup: environment}).shownRuns(&c))
	if err == nil {
		err = lent.Borrow(&c.Config, os.Getenv)
	}
	if err != nil {
		return Config{}, err
	}
	return c, nil
}

// variables reads values and keeps the first error.
type variables struct {
	lookup func(string) string
	err    error
}

func (v *variables) fail(format string, args ...any) { v.check(fmt.Errorf(format, args...)) }

func (v *variables) check(err error) {
	if v.err == nil {
		v.err = err
	}
}

// lack is fail where the environment does not say what a launcher has to say.
func (v *variables) lack(format string, args ...any) {
	v.fail(format+" (`xdprma run` sets the XDPRMA variables, and `srun --mpi=pmi2` and `mpiexec.hydra` need none; with other launchers set %s and %s)",
		append(args, EnvRendezvous, EnvJob)...)
}

// get returns the value of name; an empty variable counts as absent.
func (v *variables) get(name string) string { return strings.TrimSpace(v.lookup(name)) }

// number returns the number in name, or absent.
func (v *variables) number(name string, least, most, absent int) int {
	n := absent
	v.check(number(func(*Config) *int { return &n }, least, most).take(nil, name, v.lookup(name)))
	return n
}

// take reads variables of the contract: those that hold for all ranks, or this one's too.
func (v *variables) take(c *Config, own bool) {
	for _, row := range Contract {
		if row.read != nil && (own || row.ForAll) {
			v.check(row.take(c, row.Name, v.lookup(row.Name)))
		}
	}
}

func fromVariables(lookup func(string) string) (Config, error) {
	v := &variables{lookup: lookup}
	c := Config{Config: userspace.Config{Transport: userspace.Auto}, Size: 1, Rendezvous: v.get(EnvRendezvous)}
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
	v.take(&c, true)
	v.key(&c)
	if c.Job == 0 {
		v.newJob(&c)
	}
	if v.get(EnvPort) == "" && (c.Interface != "" || c.Address.IsValid() && !c.Address.IsLoopback()) {
		c.Port = DefaultPort // without these, several ranks may share the machine
	}
	return c, v.err
}

// place reads rank, size and rendezvous of a process that has been launched.
func (v *variables) place(c *Config) {
	rankName, sizeName := v.first(rankNames), v.first(sizeNames)
	if rankName == "" {
		v.lack("%s is not set, and neither is a known launcher's variable (%s)", EnvRank, strings.Join(rankNames[1:], ", "))
		return
	}
	if sizeName == "" {
		v.lack("%s is not set, and neither is a known launcher's variable (%s)", EnvSize, strings.Join(sizeNames[1:], ", "))
		return
	}
	c.Size = v.number(sizeName, 1, MaxRanks, 1)
	c.Rank = v.number(rankName, 0, MaxRanks-1, 0)
	if v.err == nil && c.Rank >= c.Size {
		v.fail("%s=%d is not below %s=%d", rankName, c.Rank, sizeName, c.Size)
	}
	if c.Rendezvous == "" {
		if c.Size > 1 {
			v.lack("%s is not set, in a job of %d ranks", EnvRendezvous, c.Size)
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

// newJob gives a job an id where the environment names none.
func (v *variables) newJob(c *Config) {
	if c.Job = v.torchJob(); c.Job != 0 {
		return
	}
	switch {
	case c.Rendezvous != "" && v.torch():
		v.fail("%s is not set, and %s=%q is no UUID: give torchrun --rdzv-id=$(uuidgen), the same on all hosts", EnvJob, envTorchRun, v.get(envTorchRun))
	case c.Rendezvous != "":
		v.lack("%s is not set", EnvJob)
	}
	c.Job = NewJob()
}
