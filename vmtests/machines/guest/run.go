//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netns"

	"github.com/xdprma/xdprma/vmtests/machines/plan"
)

// run carries out a step.
func run(s plan.Step) plan.Result {
	begin := time.Now()
	output, err := process(s)
	r := plan.Result{Step: s.Name, Output: output, Took: time.Since(begin)}
	if err != nil {
		r.Failed = err.Error()
	}
	return r
}

func process(s plan.Step) (output string, err error) {
	ctx, stop := context.WithTimeout(context.Background(), s.Limit)
	defer stop()
	if s.Pair == nil {
		p := newProcess(ctx, s, 0)
		err := p.cmd.Run()
		return p.text(), ended(ctx, s, err)
	}
	pair, err := join(s.Pair)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, pair.part()) }()
	var ranks []*rank
	// The last is the first to start: it may have to wait for others.
	for id := len(s.Args) - 1; id >= 0; id-- {
		p := newProcess(ctx, s, id)
		p.cmd.Env = append(p.cmd.Env, pair.tells(id)...)
		if err := within(pair.spaces[id], p.cmd.Start); err != nil {
			stop()
			return "", errors.Join(err, wait(ranks))
		}
		ranks = append([]*rank{p}, ranks...)
		for id == 1 && !strings.Contains(p.text(), s.After) && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
	err = ended(ctx, s, wait(ranks))
	for _, p := range ranks {
		output += p.text()
	}
	return output, err
}

// ended adds to an error that the step took too long.
func ended(ctx context.Context, s plan.Step, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("not over after %v: %w", s.Limit, err)
	}
	return err
}

func wait(ranks []*rank) (err error) {
	for _, p := range ranks {
		err = errors.Join(err, p.cmd.Wait())
	}
	return err
}

// rank is a process of a step, and what it prints.
type rank struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	out bytes.Buffer
}

func newProcess(ctx context.Context, s plan.Step, id int) *rank {
	args := s.Args[id]
	p := &rank{cmd: exec.CommandContext(ctx, args[0], args[1:]...)}
	p.cmd.Dir = s.Dir
	p.cmd.Env = append(os.Environ(), s.Env...)
	out := io.MultiWriter(p, os.Stdout)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that what a shell has started ends with it
	p.cmd.Cancel = func() error { return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }
	p.cmd.WaitDelay = 5 * time.Second // for what it has started and left
	return p
}

func (p *rank) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *rank) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// within calls f on a thread that is in the namespace, and ends with it.
func within(ns netns.NsHandle, f func() error) error {
	result := make(chan error)
	go func() {
		lockForGood()
		err := netns.Set(ns)
		if err == nil {
			err = f()
		}
		result <- err
	}()
	return <-result
}
