package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/launch/hostaddr"
	"github.com/xdprma/xdprma/internal/launch/pmi"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// PMI says where a launcher that speaks PMI lets the ranks exchange a few words.
type PMI struct {
	FD     int    // the descriptor; 0: there is none
	Job    string // the launcher's name for the job; may be empty
	Toward string // a host on the network that the job's hosts share; may be empty
}

// pmiKey is the key under which rank 0 makes the rendezvous known.
const pmiKey = "xdprma-rendezvous"

// learned is what a process has been told over PMI, which tells it once.
type learned struct {
	mu         sync.Mutex
	done       bool
	job        uint64
	rendezvous string
	session    *session    // until the rank has joined, or has failed to; nil: none
	meeting    *meeting    // nil: the rank has the job's key
	key        *secure.Key // of the meeting, at rank 0
	err        error
}

// thisProcess has the descriptor that the process inherited.
var thisProcess learned

// complete sets Job and Rendezvous of c, which the launcher of c.PMI lets the ranks agree
// on: rank 0 begins to listen at a port of the system's choice and tells the others. It
// returns rank 0's listener. It blocks until all ranks have called it, at most as long as
// Dial would. Later calls of a process return what the first one has learned.
func (l *learned) complete(ctx context.Context, c *Config, failed func(error)) (net.Listener, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var listener net.Listener
	if !l.done {
		if err := c.PMI.inherited(); err != nil {
			return nil, err
		}
		if c.Rank == 0 {
			var err error
			if listener, err = Listen(net.JoinHostPort(c.servingAddress(ctx).String(), "0")); err != nil {
				return nil, err
			}
			c.Rendezvous = "tcp:" + listener.Addr().String()
		}
		if failed != nil {
			failed(errors.New("the launcher has all ranks wait at its PMI until each has come"))
		}
		l.done = true
		if c.Key == nil {
			l.meeting, l.err = newMeeting()
			c.meeting = l.meeting
		}
		if l.err == nil {
			l.job, l.rendezvous, l.err = l.learn(ctx, c)
		}
		if c.Rank == 0 && c.meeting != nil {
			key := secure.NewKey()
			l.key = &key
		}
	}
	if l.err != nil {
		if listener != nil {
			listener.Close()
		}
		return nil, l.err
	}
	c.Job, c.Rendezvous = l.job, l.rendezvous
	if l.meeting != nil {
		c.meeting, c.Key = l.meeting, l.key
	}
	if c.Rank == 0 && listener == nil {
		return Listen(c.Rendezvous)
	}
	return listener, nil
}

// inherited returns an error unless the descriptor is one that a launcher has left: the
// number of one that was closed may by now stand for something else.
func (p *PMI) inherited() error {
	var about unix.Stat_t
	err := unix.Fstat(p.FD, &about)
	if kind := about.Mode & unix.S_IFMT; err == nil && kind != unix.S_IFSOCK && kind != unix.S_IFIFO {
		err = errors.New("it is neither a socket nor a pipe")
	}
	if err != nil {
		return fmt.Errorf("PMI_FD=%d is not the launcher's descriptor: %w (what stands between the launcher and this program, such as sudo, has closed it)", p.FD, err)
	}
	return nil
}

// session is a process's PMI, from the launcher's point of view an unfinished one.
type session struct {
	conn   *os.File
	client *pmi.Client // nil: it has not begun
}

// end ends the session, if there is one: in good order, or by having the launcher end the job,
// for the reason why. It may be called several times.
func (l *learned) end(why error) (err error) {
	l.mu.Lock()
	s := l.session
	l.session = nil
	l.mu.Unlock()
	if s == nil {
		return nil
	}
	defer s.conn.Close()
	_ = s.conn.SetDeadline(time.Now().Add(endTimeout))
	switch {
	case s.client == nil:
		return nil
	case why != nil:
		time.Sleep(readTimeout)
		return s.client.Abort(why.Error())
	}
	return s.client.Finalize()
}

const (
	endTimeout = 10 * time.Second // bounds how long a launcher takes to hear that PMI ends
	// readTimeout is how long a launcher has to read what the process has written before it is
	// asked to end the job: mpiexec.hydra drops what it has not read by then, and with it the
	// reason.
	readTimeout = 200 * time.Millisecond
)

// learn agrees with all ranks on rank 0's Job and Rendezvous over the descriptor. It begins the
// session.
func (l *learned) learn(ctx context.Context, c *Config) (job uint64, rendezvous string, err error) {
	_ = unix.SetNonblock(c.PMI.FD, true) // so that the end of ctx ends a read
	conn := os.NewFile(uintptr(c.PMI.FD), "PMI")
	l.session = &session{conn: conn}
	ctx, cancel := c.patient(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	job, rendezvous, err = c.announce(l.session)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("not all ranks came to the launcher's PMI (%s says how long to wait): %w; %w", EnvPatience, ctx.Err(), err)
	}
	return job, rendezvous, err
}

// announce makes rank 0's Job and Rendezvous known over PMI.
func (c *Config) announce(s *session) (job uint64, rendezvous string, err error) {
	client, err := pmi.Init(s.conn, pmi.V2, pmi.Identity{Rank: c.Rank, Size: c.Size, Job: c.PMI.Job})
	if err != nil {
		return 0, "", err
	}
	s.client = client
	if c.Rank == 0 {
		if err := client.Put(pmiKey, c.Token()+"@"+c.Rendezvous); err != nil {
			return 0, "", err
		}
	}
	if err := c.meeting.tell(client, c.Rank); err != nil {
		return 0, "", err
	}
	if err := client.Fence(); err != nil {
		return 0, "", err
	}
	told, err := client.Get(pmiKey)
	if err != nil {
		return 0, "", fmt.Errorf("rank 0 has told nothing over PMI; is it another program, or of another version? %w", err)
	}
	if err := c.meeting.hear(client, c.Rank, c.Size); err != nil {
		return 0, "", err
	}
	return parseTold(told)
}

// parseTold reads what rank 0 has told.
func parseTold(told string) (job uint64, rendezvous string, err error) {
	token, rendezvous, _ := strings.Cut(told, "@")
	job, err = strconv.ParseUint(token, 16, 64)
	if err == nil {
		_, _, err = splitAddress(rendezvous)
	}
	if err != nil || job == 0 {
		return 0, "", fmt.Errorf("rank 0 told %q over PMI, which is no job and rendezvous: is it of another version? (%w)", told, cmp.Or(err, errMalformed))
	}
	return job, rendezvous, nil
}

// servingAddress returns the address of this host at which ranks on other hosts reach it:
// the one that the rank is to use, or that of its interface, or the one from which the
// host reaches the launcher's network or, failing that, others. A host without a network
// has the loopback address.
func (c *Config) servingAddress(ctx context.Context) netip.Addr {
	if c.Address.IsValid() {
		return c.Address
	}
	if i, err := net.InterfaceByName(c.Interface); err == nil {
		list, _ := hostaddr.List() // none is the answer then
		if a := choose(hostaddr.OnLink(list, i.Index), netip.Addr{}); a.IsValid() {
			return a
		}
	}
	if c.PMI.Toward != "" {
		if a, err := sourceAddress(ctx, net.JoinHostPort(c.PMI.Toward, "9")); err == nil && !a.IsLoopback() {
			return a
		}
	}
	return outwardAddress(ctx, netip.Addr{})
}
