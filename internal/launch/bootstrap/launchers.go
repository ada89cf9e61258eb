package bootstrap

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Names that give a rank and a size, in order: a launcher that another one has started
// comes before it.
var (
	rankNames = []string{EnvRank, "RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", envCompletion}
	sizeNames = []string{EnvSize, "WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}
)

// Variables of torchrun. Others use these names for other things, so they count only if
// all are set.
var torchNames = []string{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}

const (
	envTorchRun   = "TORCHELASTIC_RUN_ID"
	envCompletion = "JOB_COMPLETION_INDEX" // of a pod of Kubernetes' Indexed Job
)

// Variables that say, beyond 1 or beyond 0, that a launcher has started several
// processes, of which this is one. SLURM_NTASKS is no such sign: a batch script, which is
// one process, has it too.
var (
	severalNames = []string{"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}
	laterNames   = []string{"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"}
)

// Variables that name a host on the network that the job's hosts share: the one where
// srun runs, and this one as mpiexec.hydra knows it.
var towardNames = []string{"SLURM_LAUNCH_NODE_IPADDR", "MPIR_CVAR_CH3_INTERFACE_HOSTNAME"}

// first returns the name among names that is set, or the empty string.
func (v *variables) first(names []string) string {
	for _, name := range names {
		if v.get(name) != "" && (!slices.Contains(torchNames, name) || v.torch()) {
			return name
		}
	}
	return ""
}

// torch reports whether torchrun, or something that sets its variables, has started the
// process.
func (v *variables) torch() bool {
	return !slices.ContainsFunc(torchNames, func(name string) bool { return v.get(name) == "" })
}

// torchPlace reads the variables of torchrun. MASTER_PORT is taken by torchrun itself, or
// by a library that the program uses besides this one; the rendezvous has the next port.
func (v *variables) torchPlace(c *Config) {
	host, port := v.get("MASTER_ADDR"), v.number("MASTER_PORT", 1, 65534, 1)
	c.Rendezvous = net.JoinHostPort(host, strconv.Itoa(port+1))
	v.place(c)
	if _, err := netip.ParseAddr(host); c.Size == 1 {
		c.Rendezvous, c.Serve = "", false
	} else if c.Serve && err != nil && host != "localhost" {
		c.Rendezvous = ":" + strconv.Itoa(port+1) // a host's own name may mean loopback
	}
}

// pmiPlace reads the variables of a launcher that speaks PMI.
func (v *variables) pmiPlace(c *Config) {
	c.PMI = PMI{FD: v.number("PMI_FD", 1, 1<<20, 0), Job: v.get("PMI_JOBID"), Toward: v.get(v.first(towardNames))}
	c.Size = v.number("PMI_SIZE", 1, MaxRanks, 1)
	c.Rank = v.number("PMI_RANK", 0, MaxRanks-1, 0)
	for _, name := range []string{"PMI_SIZE", "PMI_RANK"} {
		if v.get(name) == "" {
			v.fail("PMI_FD is set, but %s is not", name)
		}
	}
	if v.err == nil && c.Rank >= c.Size {
		v.fail("PMI_RANK=%d is not below PMI_SIZE=%d", c.Rank, c.Size)
	}
	if c.Serve = c.Rank == 0; c.Size == 1 {
		c.PMI, c.Serve = PMI{}, false // there is nobody to meet
	}
}

// uuid is what torchrun calls a job that was not given a name, or what a user calls it for a name
// that nobody guesses. Other names can be guessed.
var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// torchJob returns the job's id where nobody guesses torchrun's name for the job, or 0.
func (v *variables) torchJob() uint64 {
	run := v.get(envTorchRun)
	if !v.torch() || !uuid.MatchString(run) {
		return 0
	}
	sum := sha256.Sum256([]byte(run))
	return max(1, binary.LittleEndian.Uint64(sum[:]))
}

// shownRun is a warning of a job that others may join by what they see of its launcher.
const shownRun = "the job has no key, and its id is made from torchrun's --rdzv-id, which is in the list of processes: " +
	"all users of its hosts can join it, and read and change its windows; " + howToGetAKey

// shownRuns returns warnings of the name that torchrun gives the job of c, where this process or one
// that it stems from has it in its command line. torchrun makes a name without showing it, too. Rank 0
// warns for all.
func (v *variables) shownRuns(c *Config) []string {
	if c.Rank != 0 || c.Size == 1 || c.Key != nil || v.get(EnvJob) != "" || v.torchJob() == 0 {
		return nil
	}
	for pid := strconv.Itoa(os.Getpid()); pid != ""; pid = parentOf(pid) {
		if line, _ := os.ReadFile("/proc/" + pid + "/cmdline"); bytes.Contains(line, []byte(v.get(envTorchRun))) {
			return []string{shownRun}
		}
	}
	return nil
}

// parentOf returns the parent of a process, or the empty string where it is not to be seen.
func parentOf(pid string) string {
	stat, _ := os.ReadFile("/proc/" + pid + "/stat")
	// The second field is a name in parentheses that may contain anything; the fourth is the parent.
	if fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]); len(fields) > 1 {
		return string(fields[1])
	}
	return ""
}

// refuseLostRanks catches a process of a launcher's job that would otherwise become a
// job of its own, as each of the others would. A pod of an Indexed Job may be alone: none
// of its variables tells.
func (v *variables) refuseLostRanks() {
	lost := func(names []string, alone ...string) {
		for _, name := range names {
			if s := v.get(name); s != "" && !slices.Contains(alone, s) {
				start := ""
				if strings.HasPrefix(name, "SLURM") || strings.HasPrefix(name, "PMIX") {
					start = "start it by `srun --mpi=pmi2`, or "
				}
				v.fail("%s=%s says that this process is one of several, but neither PMI_FD nor %s tells the way to the others: "+start+
					"set %s to the host:port where rank 0 is to serve, %s to the number of ranks unless the launcher says it, and %s to a random number, "+
					"the same for all; or have a job of one rank by %s=0 and %s=1",
					name, s, EnvRendezvous, EnvRendezvous, EnvSize, EnvJob, EnvRank, EnvSize)
			}
		}
	}
	lost(severalNames, "0", "1")
	lost(laterNames, "0")
	lost([]string{envCompletion})
}
