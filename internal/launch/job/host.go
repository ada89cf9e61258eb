package job

import (
	"crypto/sha256"
	"log/slog"
	"os"
)

// HostID identifies the host of this process among the job's: it is the same for
// processes that share the running kernel and the network namespace, or that were
// told the same name of their host.
func (j *Job) HostID() [sha256.Size]byte {
	if j.host != "" {
		return sha256.Sum256([]byte("host " + j.host))
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	network, _ := os.Readlink("/proc/self/ns/net")
	if len(boot) == 0 || network == "" { // no way to tell: nobody shares it
		return sha256.Sum256([]byte{byte(j.rank), byte(j.rank >> 8), byte(j.rank >> 16), byte(j.rank >> 24)})
	}
	return sha256.Sum256(append(boot, network...))
}

// Frames reports whether accesses to windows of ranks of the same host are to go by
// frames.
func (j *Job) Frames() bool { return j.frames }

// Logger returns where the job's warnings go.
func (j *Job) Logger() *slog.Logger { return j.log }
