// Package testjob makes jobs whose ranks all live in one process, for tests and
// examples: over UDP on the loopback interface, which needs no privilege.
package testjob

import (
	"net/netip"
	"os"

	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/userspace"
)

// EnvHostMemory is the environment variable with which ranks access each other's
// windows as ranks of one host do. Without it they use frames.
const EnvHostMemory = "XDPRMA_TEST_HOST_MEMORY"

// EnvProtected is the environment variable with which ranks protect their frames.
const EnvProtected = "XDPRMA_TEST_PROTECTED"

// Protected is what the ranks of a job that tests make have: a key and a level of security where
// EnvProtected is set. Their process keeps its capabilities, for other ranks and tests.
func Protected(level secure.Level) (c bootstrap.Config) {
	c.KeepCaps = true
	if os.Getenv(EnvProtected) != "" {
		c = At(level)
	}
	return c
}

// At is what the ranks of a job with a level of security have.
func At(level secure.Level) (c bootstrap.Config) {
	key := secure.NewKey()
	c.KeepCaps = true
	c.Key, c.Security = &key, bootstrap.Security(level.String())
	return c
}

// Places returns the places of all ranks of a new job, and a function that ends
// their rendezvous, to be called when all of them have closed.
func Places(size int) (places []bootstrap.Config, stop func(), err error) {
	places, server, err := Serve(size)
	if err != nil {
		return nil, nil, err
	}
	return places, func() { _ = server.Close() }, nil
}

// Config returns what has rma.Join take a place. It stands for places without PMI.
func Config(p *bootstrap.Config) rma.Config {
	network := p.Config
	return rma.Config{Network: &network, Place: &rma.Place{Rank: p.Rank, Size: p.Size, Job: p.Job, Rendezvous: p.Rendezvous, Serve: p.Serve,
		Patience: p.Patience, Host: p.Host, Frames: p.Frames, NoExpress: p.NoExpress, KeepCapabilities: p.KeepCaps, Key: (*[32]byte)(p.Key), Security: string(p.Security)}}
}

// Serve is Places for tests that play the launcher: it returns the server of the
// rendezvous.
func Serve(size int) (places []bootstrap.Config, server *bootstrap.Server, err error) {
	l, err := bootstrap.Listen("tcp:127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	first := Protected(secure.Seal)
	first.Size, first.Job, first.Frames = size, bootstrap.NewJob(), os.Getenv(EnvHostMemory) == ""
	first.Config = userspace.Config{Transport: userspace.UDP, Agent: userspace.NoAgent, Address: netip.MustParseAddr("127.0.0.1"), Queues: 1}
	if server, err = bootstrap.Serve(l, &first); err != nil {
		return nil, nil, err
	}
	first.Rendezvous = server.Addr()
	for rank := range size {
		place := first
		place.Rank = rank
		places = append(places, place)
	}
	return places, server, nil
}
