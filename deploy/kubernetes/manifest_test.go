package kubernetes

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/xdprma/xdprma/internal/launch/bootstrap"
)

// manifest is a file: a service and a job, and the keys of the secret that its comments make.
type manifest struct {
	service corev1.Service
	job     batchv1.Job
	secret  string
	keys    []string
}

// command is the line of the comments that makes the secret.
var command = regexp.MustCompile(`(?m)^#\s+kubectl create secret generic (\S+) (.*)$`)

// key is a key of the secret in that line.
var key = regexp.MustCompile(`--from-(?:literal|file)=([^=\s]+)`)

// parse takes the text of a manifest, and refuses fields that Kubernetes does not know.
func parse(text []byte) (m manifest, err error) {
	found := command.FindSubmatch(text)
	if found == nil {
		return m, fmt.Errorf("no comment makes a secret")
	}
	m.secret = string(found[1])
	for _, k := range key.FindAllSubmatch(found[2], -1) {
		m.keys = append(m.keys, string(k[1]))
	}
	documents := bytes.Split(text, []byte("\n---\n"))
	if len(documents) != 2 {
		return m, fmt.Errorf("%d documents instead of a service and a job", len(documents))
	}
	if err := yaml.UnmarshalStrict(documents[0], &m.service); err != nil {
		return m, fmt.Errorf("service: %w", err)
	}
	if err := yaml.UnmarshalStrict(documents[1], &m.job); err != nil {
		return m, fmt.Errorf("job: %w", err)
	}
	if n := len(m.job.Spec.Template.Spec.Containers); n != 1 {
		return m, fmt.Errorf("%d containers instead of one", n)
	}
	return m, nil
}

func (m *manifest) pod() *corev1.PodSpec         { return &m.job.Spec.Template.Spec }
func (m *manifest) container() *corev1.Container { return &m.pod().Containers[0] }

// value returns a variable's value, or else how the secret has it: "secret/key".
func (m *manifest) value(name string) string {
	for _, v := range m.container().Env {
		if v.Name != name {
			continue
		}
		if from := v.ValueFrom; from != nil && from.SecretKeyRef != nil {
			return from.SecretKeyRef.Name + "/" + from.SecretKeyRef.Key
		}
		return v.Value
	}
	return ""
}

// is returns what a pointer of the API says, or the zero value.
func is[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// privileged are the capabilities of a rank over XDP.
var privileged = []corev1.Capability{"BPF", "IPC_LOCK", "NET_ADMIN", "NET_RAW", "PERFMON"}

// faults returns what is wrong with a manifest for a job of ranks.
func (m *manifest) faults() (all []string) {
	hold := func(holds bool, fault string, args ...any) {
		if !holds {
			all = append(all, fmt.Sprintf(fault, args...))
		}
	}
	service, job, pod, c := &m.service, &m.job, m.pod(), m.container()

	hold(service.APIVersion+service.Kind == "v1Service", "%s %s is no Service", service.APIVersion, service.Kind)
	hold(service.Spec.ClusterIP == corev1.ClusterIPNone, "the service is not headless")
	hold(service.Spec.PublishNotReadyAddresses, "pods that are not ready have no name")
	hold(maps.Equal(service.Spec.Selector, map[string]string{batchv1.JobNameLabel: job.Name}), "the service is not for the job %s's pods", job.Name)
	hold(pod.Subdomain == service.Name, "the subdomain %s is not the service's name", pod.Subdomain)

	ranks := is(job.Spec.Completions)
	hold(job.APIVersion+job.Kind == "batch/v1Job", "%s %s is no Job", job.APIVersion, job.Kind)
	hold(is(job.Spec.CompletionMode) == batchv1.IndexedCompletion, "pods have no index")
	hold(ranks > 1 && ranks == is(job.Spec.Parallelism), "not all of %d pods run at once", ranks)
	hold(job.Spec.BackoffLimit != nil && *job.Spec.BackoffLimit == 0, "pods that fail are replaced")
	hold(pod.RestartPolicy == corev1.RestartPolicyNever, "ranks that fail start again")
	hold(!pod.HostNetwork, "ranks are in the node's network namespace")

	hold(m.value(bootstrap.EnvSize) == fmt.Sprint(ranks), "%s is not the number of pods, %d", bootstrap.EnvSize, ranks)
	first := job.Name + "-0." + service.Name + ":"
	hold(strings.HasPrefix(m.value(bootstrap.EnvRendezvous), first), "%s is not at rank 0, %s", bootstrap.EnvRendezvous, first)
	seen := map[string]bool{}
	for _, v := range c.Env {
		known := slices.ContainsFunc(bootstrap.Contract, func(w bootstrap.Variable) bool { return w.Name == v.Name })
		hold(known && !seen[v.Name], "%s is no variable, or is there twice", v.Name)
		seen[v.Name] = true
	}
	hold(m.value(bootstrap.EnvJob) == m.secret+"/id" && slices.Contains(m.keys, "id"), "%s is not of the secret that is made", bootstrap.EnvJob)
	hold(m.keyFile() != nil, "%s is no file of the secret that is made, for the rank alone", bootstrap.EnvKeyFile)

	hold(len(c.Resources.Limits) == 2 && maps.EqualFunc(c.Resources.Requests, c.Resources.Limits, resource.Quantity.Equal), "requests and limits differ")
	all = append(all, m.security()...)
	return all
}

// security returns what is wrong with the privileges.
func (m *manifest) security() (all []string) {
	pod, c := m.pod().SecurityContext, m.container().SecurityContext
	if pod == nil || c == nil || c.Capabilities == nil {
		return []string{"privileges are not said"}
	}
	if !slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || is(c.Privileged) || c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation {
		all = append(all, "the rank has, or may get, more privileges than it is given")
	}
	if m.value(bootstrap.EnvTransport) == "" {
		if len(c.Capabilities.Add) > 0 || !is(pod.RunAsNonRoot) || is(pod.RunAsUser) == 0 || pod.SeccompProfile == nil {
			all = append(all, "a rank over UDP has privileges")
		}
		return all
	}
	if add := slices.Sorted(slices.Values(c.Capabilities.Add)); !slices.Equal(add, privileged) || pod.RunAsUser == nil || *pod.RunAsUser != 0 {
		all = append(all, fmt.Sprintf("a rank over XDP has %v, and needs %v as root", add, privileged))
	}
	return all
}

// keyFile returns the volume in which the rank finds its key, or nil if it finds none there
// that it may read and others may not.
func (m *manifest) keyFile() *corev1.SecretVolumeSource {
	folder, file := path.Split(m.value(bootstrap.EnvKeyFile))
	for _, mount := range m.container().VolumeMounts {
		for _, v := range m.pod().Volumes {
			if v.Name != mount.Name || path.Clean(folder) != mount.MountPath || v.Secret == nil || v.Secret.SecretName != m.secret {
				continue
			}
			mode, want := is(v.Secret.DefaultMode), int32(0o400)
			if group := m.pod().SecurityContext.FSGroup; group != nil {
				want = 0o440
			}
			items := v.Secret.Items
			if mode == want && len(items) == 1 && items[0].Path == file && slices.Contains(m.keys, items[0].Key) {
				return v.Secret
			}
		}
	}
	return nil
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Kubernetes knows each field of the manifests, and they say what a job of ranks needs.
func TestManifests(t *testing.T) {
	for _, name := range []string{"udp.yaml", "xdp.yaml"} {
		m, err := parse(read(t, name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, fault := range m.faults() {
			t.Errorf("%s: %s", name, fault)
		}
	}
}

// Each mistake in a manifest is found.
func TestMistakesAreFound(t *testing.T) {
	for _, test := range []struct{ file, old, changed, want string }{
		{"udp.yaml", "completionMode", "completionMood", "unknown field"},
		{"udp.yaml", "parallelism: 4", "parallelism: four", "job: "},
		{"udp.yaml", "clusterIP: None", "clusterIP: 10.0.0.1", "headless"},
		{"udp.yaml", "  publishNotReady", "  #", "no name"},
		{"udp.yaml", "job-name: hello", "job-name: other", "not for the job"},
		{"udp.yaml", "subdomain: hello", "subdomain: other", "subdomain"},
		{"udp.yaml", "Mode: Indexed", "Mode: NonIndexed", "no index"},
		{"udp.yaml", "parallelism: 4", "parallelism: 2", "at once"},
		{"udp.yaml", "  backoffLimit: 0", "  #", "replaced"},
		{"udp.yaml", "Policy: Never", "Policy: OnFailure", "start again"},
		{"udp.yaml", `value: "4"`, `value: "5"`, "XDPRMA_SIZE"},
		{"udp.yaml", "hello-0.hello:7000", "hello-1.hello:7000", "XDPRMA_RENDEZVOUS"},
		{"udp.yaml", "XDPRMA_RENDEZVOUS_TIMEOUT", "XDPRMA_PATIENCE", "no variable"},
		{"udp.yaml", "key: id", "key: token", "XDPRMA_JOB"},
		{"udp.yaml", "--from-file=job.key", "--from-file=key=job.key", "XDPRMA_KEY_FILE"},
		{"udp.yaml", "defaultMode: 0440", "defaultMode: 0444", "XDPRMA_KEY_FILE"},
		{"udp.yaml", "mountPath: /key", "mountPath: /keys", "XDPRMA_KEY_FILE"},
		{"udp.yaml", `limits: {cpu: "1"`, `limits: {cpu: "2"`, "differ"},
		{"udp.yaml", "runAsNonRoot: true", "runAsNonRoot: false", "has privileges"},
		{"udp.yaml", "Escalation: false", "Escalation: true", "may get"},
		{"xdp.yaml", "drop: [ALL]", "drop: [KILL]", "may get"},
		{"xdp.yaml", "- BPF", "- SYS_ADMIN", "over XDP"},
		{"xdp.yaml", "runAsUser: 0", "runAsUser: 1", "over XDP"},
	} {
		text := read(t, test.file)
		changed := bytes.Replace(text, []byte(test.old), []byte(test.changed), 1)
		if bytes.Equal(text, changed) {
			t.Errorf("%s has no %q", test.file, test.old)
			continue
		}
		m, err := parse(changed)
		found := fmt.Sprint(err)
		if err == nil {
			found = strings.Join(m.faults(), "; ")
		}
		if !strings.Contains(found, test.want) {
			t.Errorf("%s with %q: found %q, want %q", test.file, test.changed, found, test.want)
		}
	}
}
