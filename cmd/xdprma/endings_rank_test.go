package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

// Environment of a rank that this test binary becomes, of which one ends in some way and the others need it.
const (
	envEnds    = "XDPRMA_TEST_ENDS"    // the way; see ends
	envCulprit = "XDPRMA_TEST_CULPRIT" // the rank that ends so
	envGroup   = "XDPRMA_TEST_GROUP"   // a memory cgroup that the rank goes into
)

// damage is what the rank that ends has to say.
const damage = "the input is damaged"

var errDamage = errors.New(damage)

// ends are the ways to end, after all ranks have met. One that returns goes on to leave the program.
var ends = map[string]func(node *rma.Node){
	"exit": func(*rma.Node) {
		fmt.Fprintln(os.Stderr, damage)
		os.Exit(7)
	},
	"log.Fatal":      func(*rma.Node) { log.Fatal(damage) },
	"panic":          func(*rma.Node) { panic(damage) },
	"panic deferred": func(node *rma.Node) { defer node.Close(); panic(damage) },
	"return":         func(*rma.Node) { fmt.Fprintln(os.Stderr, damage) },
	"close": func(node *rma.Node) {
		fmt.Fprintln(os.Stderr, damage)
		_ = node.Close()
	},
	"close, then log.Fatal":  func(node *rma.Node) { log.Fatal(errors.Join(errDamage, node.Close())) },
	"CloseWith":              func(node *rma.Node) { log.Fatal(node.CloseWith(errDamage)) },
	"CloseWith, then return": func(node *rma.Node) { fmt.Fprintln(os.Stderr, node.CloseWith(errDamage)) },
	"Abort":                  func(node *rma.Node) { node.Abort(3, errDamage) },
	"ErrorsAreFatal": func(node *rma.Node) {
		node.World().SetErrhandler(comm.ErrorsAreFatal)
		_ = comm.Send(context.Background(), node.World(), []byte{1}, 77, 0)
	},
	"SIGTERM": func(*rma.Node) { signalSelf(unix.SIGTERM) },
	"SIGSEGV": func(*rma.Node) { signalSelf(unix.SIGSEGV) },
	"SIGKILL": func(*rma.Node) { signalSelf(unix.SIGKILL) },
	"out of memory": func(*rma.Node) {
		group := os.Getenv(envGroup)
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte("0"), 0); err != nil {
			log.Fatal(err)
		}
		for hoard := [][]byte{}; len(hoard) < 512; { // in case that the group bounds nothing
			hoard = append(hoard, make([]byte, 1<<20))
			for i := range hoard[len(hoard)-1] {
				hoard[len(hoard)-1][i] = 1
			}
		}
	},
	"cut link": func(node *rma.Node) {
		if out, err := exec.Command("ip", "link", "set", os.Getenv("XDPRMA_INTERFACE"), "down").CombinedOutput(); err != nil {
			log.Fatalf("%v: %s", err, out)
		}
		_, err := comm.Recv(context.Background(), node.World(), make([]byte, 1), (node.Rank()+1)%node.Size(), 0)
		log.Fatal(node.CloseWith(err))
	},
	"hang": func(*rma.Node) { time.Sleep(time.Hour) },
	"CloseWith, then hang": func(node *rma.Node) {
		_ = node.CloseWith(errDamage)
		time.Sleep(time.Hour) // Go takes an empty select for a deadlock, once Close has ended all else
	},
	"stopped": func(node *rma.Node) { // by rank 2
		_ = comm.Send(context.Background(), node.World(), []byte(fmt.Sprint(os.Getpid())), 2, 0)
		time.Sleep(time.Hour)
	},
}

// signalSelf sends this process a signal, as from outside, and awaits the end.
func signalSelf(s unix.Signal) {
	_ = unix.Kill(os.Getpid(), s)
	time.Sleep(time.Hour)
}

// endOrMourn is a rank: the culprit ends in the way that the environment says, and the others wait for it.
func endOrMourn() {
	ctx := context.Background()
	node, err := rma.Join(ctx, rma.Config{Limits: rma.Limits{DeadAfter: endsDeadAfter()}})
	if err != nil {
		log.Fatal(err)
	}
	log.SetPrefix(fmt.Sprintf("rank %d: ", node.Rank()))
	log.SetFlags(0)
	if err := node.World().Barrier(ctx); err != nil {
		log.Fatal(node.CloseWith(err))
	}
	culprit := 1
	fmt.Sscan(os.Getenv(envCulprit), &culprit)
	if node.Rank() == culprit {
		fmt.Println("the culprit says goodbye")
		ends[os.Getenv(envEnds)](node)
		return
	}
	if os.Getenv(envEnds) == "stopped" {
		if node.Rank() == 2 {
			closeBesideTheDead(ctx, node, culprit)
		}
		_ = node.Close()
		return
	}
	_, err = comm.Recv(ctx, node.World(), make([]byte, 1), culprit, 0)
	log.Fatal(node.CloseWith(err))
}

// closeBesideTheDead stops the culprit, sends it something that so it does not acknowledge, and kills it while Close waits
// for that. Close says of how many ranks it has been told that they have failed.
func closeBesideTheDead(ctx context.Context, node *rma.Node, culprit int) {
	text, pid := make([]byte, 20), 0
	if _, err := comm.Recv(ctx, node.World(), text, culprit, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Sscan(string(text), &pid)
	_ = unix.Kill(pid, unix.SIGSTOP)
	_, _ = comm.Isend(ctx, node.World(), []byte{1}, culprit, 0)
	time.AfterFunc(100*time.Millisecond, func() { _ = unix.Kill(pid, unix.SIGKILL) })
	_ = node.Close()
	fmt.Println("has lost", node.Stats().PeersFailed, "in Close")
}

// endsDeadAfter is how long silence means nothing: long, so that the others are told of an end, except where a
// link is cut, of which nobody tells.
func endsDeadAfter() time.Duration {
	if os.Getenv(envEnds) == "cut link" {
		return time.Second
	}
	return time.Hour
}
