package kubernetes

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// object is a JSON object of a container's configuration, by the runtime specification of the
// Open Container Initiative.
type object map[string]any

// node is the part of a cluster that the test plays: names, secrets, and the pods' network.
type node struct {
	*manifest
	lab    *netlab.Lab
	secret map[string]string
}

// image lays out what Containerfile says in a folder, and returns the container's command.
func image(t *testing.T, root string) []string {
	t.Helper()
	text := string(read(t, "Containerfile"))
	built := regexp.MustCompile(`(?m)^#   CGO_ENABLED=0 go (build .*) -o hello (\S+)$`).FindStringSubmatch(text)
	copied := regexp.MustCompile(`(?m)^COPY hello (/\S+)$`).FindStringSubmatch(text)
	entry := regexp.MustCompile(`(?m)^ENTRYPOINT (\[.*\])$`).FindStringSubmatch(text)
	if built == nil || copied == nil || entry == nil || !strings.Contains(text, "\nFROM scratch\n") {
		t.Fatalf("Containerfile is not as expected:\n%s", text)
	}
	args := append(strings.Fields(built[1]), "-o", filepath.Join(root, copied[1]), built[2])
	build := exec.Command("go", args...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
	var command []string
	if err := json.Unmarshal([]byte(entry[1]), &command); err != nil {
		t.Fatal(err)
	}
	return command
}

// environment returns the variables of the pod with this index.
func (n *node) environment(index int) []string {
	env := []string{fmt.Sprintf("JOB_COMPLETION_INDEX=%d", index)}
	for _, v := range n.container().Env {
		if v.ValueFrom != nil {
			v.Value = n.secret[v.ValueFrom.SecretKeyRef.Key]
		}
		env = append(env, v.Name+"="+v.Value)
	}
	return env
}

// user returns who the container is.
func (n *node) user() object {
	s := n.pod().SecurityContext
	user := object{"uid": is(s.RunAsUser), "gid": is(s.RunAsGroup)}
	if s.FSGroup != nil {
		user["additionalGids"] = []int64{*s.FSGroup}
	}
	return user
}

// process returns the configuration of the container's process. It has the capabilities that
// runtimes of Kubernetes give: none is ambient, so users other than root lose them with the
// start of the program.
func (n *node) process(index int, command []string) object {
	capabilities := []string{}
	for _, c := range n.container().SecurityContext.Capabilities.Add {
		capabilities = append(capabilities, "CAP_"+string(c))
	}
	return object{
		"args": command, "cwd": "/", "env": n.environment(index), "user": n.user(),
		"noNewPrivileges": !is(n.container().SecurityContext.AllowPrivilegeEscalation),
		"capabilities":    object{"bounding": capabilities, "permitted": capabilities, "effective": capabilities},
		"rlimits":         []object{{"type": "RLIMIT_MEMLOCK", "soft": 65536, "hard": 65536}}, // of old kernels
	}
}

// volume lays out the secret as a node does: of root and the pod's group, with the manifest's mode.
func (n *node) volume(t *testing.T, dir string) {
	t.Helper()
	source := n.keyFile()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, item := range source.Items {
		file := filepath.Join(dir, item.Path)
		if err := os.WriteFile(file, []byte(n.secret[item.Key]), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(file, 0, int(is(n.pod().SecurityContext.FSGroup))); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, os.FileMode(is(source.DefaultMode))); err != nil {
			t.Fatal(err)
		}
	}
}

// hosts is what the pods' names say: that of the pod itself, and by the service those of all.
func (n *node) hosts(index int) string {
	text := fmt.Sprintf("127.0.0.1 localhost\n%s %s-%d\n", n.lab.Addr(index), n.job.Name, index)
	for i := range n.lab.Ranks() {
		text += fmt.Sprintf("%s %s-%d.%s\n", n.lab.Addr(i), n.job.Name, i, n.service.Name)
	}
	return text
}

// bundle writes the pod's container to a folder, as runtimes take it.
func (n *node) bundle(t *testing.T, dir, root string, command []string, index int) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	secret, hosts := filepath.Join(dir, "secret"), filepath.Join(dir, "hosts")
	n.volume(t, secret)
	mounts := []object{
		{"destination": "/proc", "type": "proc", "source": "proc"},
		{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "mode=755"}},
		{"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": []string{"nosuid", "noexec", "nodev", "ro"}},
		{"destination": "/etc/hosts", "type": "bind", "source": hosts, "options": []string{"bind", "ro"}},
		{"destination": n.container().VolumeMounts[0].MountPath, "type": "bind", "source": secret, "options": []string{"bind", "ro"}},
	}
	config, err := json.Marshal(object{
		"ociVersion": "1.0.0",
		"process":    n.process(index, command),
		"root":       object{"path": root, "readonly": is(n.container().SecurityContext.ReadOnlyRootFilesystem)},
		"hostname":   fmt.Sprintf("%s-%d", n.job.Name, index),
		"mounts":     mounts,
		"linux": object{"namespaces": []object{
			{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"},
			{"type": "network", "path": "/run/netns/" + n.lab.Namespace(index)},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"config.json": string(config), "hosts": n.hosts(index)} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs a bundle, and returns what its container printed. All of it is in a PID namespace and
// a mount namespace that end with the test's process, however that ends.
func run(dir, state, name string) (string, error) {
	runtime.LockOSThread() // Pdeathsig comes when the thread that started the process ends
	defer runtime.UnlockOSThread()
	// The runtime refuses some layouts of control groups, even where it is told to use none.
	const hide = `mount -t tmpfs none /sys/fs/cgroup && exec "$0" "$@"`
	cmd := exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", hide,
		"crun", "--root", state, "--cgroup-manager=disabled", "run", "--bundle", dir, name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// eth0 gives the pods' interfaces the name that Kubernetes' networks give them.
func (n *node) eth0(t *testing.T) {
	t.Helper()
	for i := range n.lab.Ranks() {
		for _, args := range [][]string{{"down"}, {"name", "eth0", "up"}} {
			args = slices.Concat([]string{"-n", n.lab.Namespace(i), "link", "set", n.lab.Interface(i)}, args)
			if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
				t.Fatalf("ip %v: %v\n%s", args, err, out)
			}
		}
	}
}

// The pods of each manifest are a job when a runtime of containers runs them, with the manifest's
// variables, user, capabilities and secret. Limits and filters of system calls are not applied.
func TestContainers(t *testing.T) {
	for _, test := range []struct{ file, mode string }{{"udp.yaml", "udp"}, {"xdp.yaml", "xdp-generic"}} {
		t.Run(test.file, func(t *testing.T) {
			testenv.NeedsRoot(t)
			testenv.NeedsCommand(t, "crun", "crun")
			if _, err := netlab.CleanStale(); err != nil { // of a test that was killed
				t.Fatal(err)
			}
			m, err := parse(read(t, test.file))
			if err != nil {
				t.Fatal(err)
			}
			ranks := int(is(m.job.Spec.Completions))
			n := &node{manifest: &m, lab: labtest.New(t, netlab.Config{Ranks: ranks}),
				secret: map[string]string{"id": "70f3a1c2", "job.key": secure.NewKey().Text() + "\n"}}
			n.eth0(t)
			n.check(t, test.mode)
		})
	}
}

// check runs all pods, and has them print what the program prints in a job over this transport.
func (n *node) check(t *testing.T, mode string) {
	t.Helper()
	dir := n.lab.Dir() // goes with the network, and with CleanStale
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	// The runtime makes what it mounts on, and two that do so at the same time may fail.
	for _, at := range []string{"proc", "dev", "sys", "etc", n.container().VolumeMounts[0].MountPath} {
		if err := os.MkdirAll(filepath.Join(root, at), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "etc", "hosts"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	command := image(t, root)
	printed := make([]chan string, n.lab.Ranks())
	for i := range printed {
		printed[i] = make(chan string, 1)
		name := fmt.Sprintf("%s-%d", n.job.Name, i)
		bundle := filepath.Join(dir, name)
		n.bundle(t, bundle, root, command, i)
		go func() {
			out, err := run(bundle, filepath.Join(dir, "state-"+name), name)
			if err != nil {
				out += err.Error()
			}
			printed[i] <- out
		}()
	}
	for i, c := range printed {
		out := <-c
		t.Logf("%s-%d: %s", n.job.Name, i, out)
		line := fmt.Sprintf(`rank %d of %d found \d+ \(%s\)\n`, i, len(printed), mode)
		if i == 0 {
			line += fmt.Sprintf("counter: %d\n", len(printed))
		}
		if !regexp.MustCompile("^" + line + "$").MatchString(out) {
			t.Errorf("pod %d printed %q, want %q", i, out, line)
		}
	}
}
