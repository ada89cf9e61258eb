package loader

import (
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/mpierr"
)

// FromMaps returns a Program that someone else attached, known by its maps. It
// needs no privilege. Mode is what the other side says about it. The maps are
// cloned: the caller keeps its own, and Close neither detaches nor touches them.
func FromMaps(m Maps, mode Mode) (*Program, error) {
	p, err := newProgram(m, mode)
	if err != nil {
		return nil, mpierr.New("use program", mpierr.Arg, mpierr.NoRank, "%w", err)
	}
	p.maps = Maps{}
	for _, c := range []struct {
		to   **ebpf.Map
		from *ebpf.Map
	}{{&p.maps.Sockets, m.Sockets}, {&p.maps.Sessions, m.Sessions}, {&p.maps.Counters, m.Counters}, {&p.maps.Config, m.Config}, {&p.maps.Hellos, m.Hellos}} {
		if *c.to, err = c.from.Clone(); err != nil {
			_ = p.maps.close()
			return nil, mpierr.New("use program", mpierr.Unsupported, mpierr.NoRank, "clone %v: %w", c.from, err)
		}
	}
	return p, nil
}

// FromPinned is FromMaps with maps pinned in a directory of a BPF file system,
// under the names xsks, sessions, counters, config_map and hello_map. The process needs permission
// to read and write these files.
func FromPinned(dir string, mode Mode) (*Program, error) {
	var m Maps
	defer func() { _ = m.close() }()
	for _, c := range []struct {
		to   **ebpf.Map
		name string
	}{
		{&m.Sockets, bpf.ClassifierMapXsks},
		{&m.Sessions, bpf.ClassifierMapSessions},
		{&m.Counters, bpf.ClassifierMapCounters},
		{&m.Config, bpf.ClassifierMapConfigMap},
		{&m.Hellos, bpf.ClassifierMapHelloMap},
	} {
		var err error
		if *c.to, err = ebpf.LoadPinnedMap(filepath.Join(dir, c.name), nil); err != nil {
			return nil, mpierr.New("use program", mpierr.Arg, mpierr.NoRank, "%w", err)
		}
	}
	return FromMaps(m, mode)
}
