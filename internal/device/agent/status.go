package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/xdprma/xdprma/loader"
)

// Served is a rank that has entered. The names of its JSON form stay.
type Served struct {
	User      uint32 `json:"user"`
	Namespace uint64 `json:"network_namespace"` // the inode of the rank's
	Memory    int64  `json:"memory_bytes"`      // of windows and tables, of all ranks of the user in the namespace
	Interface string `json:"interface"`
	Address   string `json:"address"` // with the UDP port
	Mode      string `json:"mode"`
	Executed  uint64 `json:"requests_executed"`
}

// Status asks the server at a path who has entered. Root and the server's user learn of all ranks, others of their own.
func Status(ctx context.Context, path string) (guests []Served, err error) {
	l, err := dial(ctx, path)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, l.fail)()
	defer func() { err = errors.Join(err, l.close()) }()
	for i := 0; ; i++ {
		r, _, err := l.ask(request{Kind: status, Value: uint64(i)})
		if err != nil {
			return nil, enterError(err)
		}
		if r.text == "" {
			return guests, nil
		}
		var g Served
		if err := json.Unmarshal([]byte(r.text), &g); err != nil {
			return nil, enterError(fmt.Errorf("the agent says %q: %w", r.text, err))
		}
		guests = append(guests, g)
	}
}

// tell returns what a guest learns of rank i of those that had entered when it asked for the first one, or nothing
// behind the last.
func (g *guest) tell(i int) (text string, err error) {
	if i == 0 {
		g.list = g.server.list(g.owner.user)
	}
	if i >= len(g.list) {
		return "", nil
	}
	about := g.list[i]
	counters, _ := about.place.Counters() // none if it has left meanwhile
	b, err := json.Marshal(Served{
		User: about.owner.user, Namespace: about.owner.inode, Memory: g.server.accounts.memoryOf(about.owner),
		Interface: about.lane.name, Address: about.at.String(), Mode: about.lane.executor.Mode().String(), Executed: counters[executed],
	})
	return string(b), err
}

// executed is the program's counter of requests that it has carried out.
const executed = "express_executed"

// list returns the guests that have entered of which a user learns.
func (s *Server) list(user uint32) (list []*guest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for g := range s.guests {
		if g.known && (user == 0 || int(user) == os.Geteuid() || user == g.owner.user) {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, func(a, b *guest) int {
		return cmp.Or(cmp.Compare(a.owner.user, b.owner.user), cmp.Compare(a.owner.inode, b.owner.inode), a.at.Compare(b.at))
	})
	return list
}

// memoryOf returns what an owner has.
func (a *accounts) memoryOf(o owner) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.each[o]
	if c == nil {
		return 0
	}
	c.prune()
	return c.memory
}

// Probe asks the server at a path whether this process's UDP socket may enter, as by Enter, and returns where the
// program would serve it. It changes nothing.
func Probe(ctx context.Context, path string, socket, ifindex int) (mode loader.Mode, err error) {
	l, err := dial(ctx, path)
	if err != nil {
		return 0, err
	}
	defer context.AfterFunc(ctx, l.fail)()
	defer func() { err = errors.Join(err, l.close()) }()
	r, _, err := l.ask(request{Kind: probe, Interface: uint32(ifindex)}, socket)
	if err != nil {
		return 0, enterError(err)
	}
	return loader.Mode(r.Mode), nil
}
