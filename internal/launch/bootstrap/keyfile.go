package bootstrap

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// maxKeyFile bounds what is read of a key file, in bytes.
const maxKeyFile = 4 << 10

// readKeyFile reads the job key from a file that nobody but its owner, and at most the owner's
// group, can read.
func readKeyFile(path string) (*secure.Key, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe must not hold it up
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%w: give it to the user that runs the ranks, or let its group read it (mode 0440; a pod of Kubernetes has the group by fsGroup)", err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var about unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &about); err != nil {
		return nil, err
	}
	own := uint32(os.Geteuid())
	switch mode := info.Mode().Perm(); {
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case mode&0o004 != 0:
		return nil, fmt.Errorf("others than its owner and group may read it (its mode is %#o): use chmod 0600, and in a Secret volume of Kubernetes `defaultMode: 0440`", mode)
	case mode&0o022 != 0:
		return nil, fmt.Errorf("others than its owner may write it (its mode is %#o): use chmod 0600", mode)
	case about.Uid != own && about.Uid != 0:
		return nil, fmt.Errorf("it belongs to user %d, and this process is user %d's: its owner must be that user, or root", about.Uid, own)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxKeyFile {
		return nil, fmt.Errorf("it has more than %d bytes, and a job key is shorter", maxKeyFile)
	}
	k, err := secure.ParseKey(string(text))
	return &k, err
}

// key reads the job key that the environment names or says.
func (v *variables) key(c *Config) {
	c.KeyFile = v.get(EnvKeyFile)
	text := v.get(EnvKey)
	switch {
	case c.KeyFile != "" && text != "":
		v.fail("%s and %s are both set: unset one of them", EnvKeyFile, EnvKey)
	case c.KeyFile != "":
		k, err := readKeyFile(c.KeyFile)
		if err != nil {
			v.fail("%s=%q: %w", EnvKeyFile, c.KeyFile, err)
		}
		c.Key = k
	case text != "":
		k, err := secure.ParseKey(text)
		if err != nil {
			v.fail("%s: %w", EnvKey, err)
		}
		c.Key = &k
		c.Warnings = append(c.Warnings, EnvKey+" has the job's key: it has been unset, but the environment with which a process began can be read by others of its user, and may stand in the launcher's records; "+
			"name a file by "+EnvKeyFile+" instead")
	}
}

// said is the key that the environment said, which is unset then.
var said struct {
	mu  sync.Mutex
	key string
}

// environment returns the value of a variable of this process. A key is taken out of the
// environment, so that programs which this one starts do not inherit it.
func environment(name string) string {
	if name != EnvKey {
		return os.Getenv(name)
	}
	said.mu.Lock()
	defer said.mu.Unlock()
	if key := os.Getenv(name); key != "" {
		said.key = key
		_ = os.Unsetenv(name) // never fails
	}
	return said.key
}

// unauthenticated warns that the job has no key, where others than processes of this host
// reach its rendezvous.
const unauthenticated = "the job has no key, so nothing is authenticated: whoever reads its network can join it, and read and change its windows; " + howToGetAKey
