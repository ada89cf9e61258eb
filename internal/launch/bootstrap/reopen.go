package bootstrap

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// reopenPauseMax is the longest pause between two attempts to open a connection again.
const reopenPauseMax = time.Second

// reopen opens the connection again, which was lost for the reason cause after it had lasted for some time. It returns
// false if the client has ended: by Close, or because the rendezvous has. Where a rank serves that, its process may have ended. If both are of one
// host, the kernel says so: nobody listens there any more. Else the rank is asked.
func (c *Client) reopen(cause error, lasted time.Duration) (to way, ok bool) {
	c.mu.Lock()
	c.conn, c.cause, c.failure, c.lives = nil, cause, nil, false
	c.mu.Unlock()
	if c.closing != "" {
		c.disconnect(fmt.Errorf("the rendezvous has ended: %s", c.closing))
		return way{}, false
	}
	back := c.whileAway(cause)
	defer back()
	pause := dialPauseMin
	if lasted < reopenPauseMax { // somebody may cut one after the other
		pause = dialPauseMax
	}
	for ; c.life.Err() == nil; pause = min(2*pause, reopenPauseMax) {
		to, _, err := c.attempt(c.life)
		_, refused := errors.AsType[*refusal](err)
		switch {
		case err == nil && c.resume(to):
			return to, true
		case err == nil:
			to.conn.Close()
			return way{}, false
		case refused:
			c.disconnect(fmt.Errorf("the connection to the rendezvous was lost (%w), and cannot be opened again: %w", cause, err))
			return way{}, false
		case nobodyListens(err) && c.within:
			c.serverEnded(cause)
			return way{}, false
		}
		c.mu.Lock()
		c.failure = explainDial(err)
		c.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-c.life.Done():
		}
	}
	return way{}, false
}

// whileAway has the rank asked that serves the rendezvous, and the log told, and gives up calls that have waited
// for long, until back is called: an attempt to connect may take long.
func (c *Client) whileAway(cause error) (back func()) {
	lost, done := time.Now(), make(chan struct{})
	var told bool
	var watching sync.WaitGroup
	watching.Go(func() {
		pause := returnLimit
		for {
			select {
			case <-done:
				return
			case <-c.life.Done():
				return
			case <-time.After(pause):
			}
			pause = askPause
			c.suspect(cause)
			c.mu.Lock()
			failure, lives := c.failure, c.lives
			c.mu.Unlock()
			if failure == nil {
				failure = errors.New("the host does not answer")
			}
			away := time.Since(lost)
			if !told && away > askPause {
				told = true
				c.log.Warn("the connection to the rendezvous was lost, and cannot be opened again yet", "rank", c.place.Rank, "cause", cause, "attempt", failure)
			}
			patience := cmp.Or(c.place.Patience, dialTimeout)
			if c.welcome.server != noRank && !lives { // its rank was not asked, and may be gone
				patience = min(patience, c.place.silence())
			}
			if away > patience {
				c.giveUpCalls(fmt.Errorf("the connection to the rendezvous was lost %v ago (%w), and cannot be opened again: %w", away.Round(time.Second), cause, failure))
			}
		}
	})
	return func() {
		close(done)
		watching.Wait()
		if told && c.life.Err() == nil {
			c.log.Info("the connection to the rendezvous is open again", "rank", c.place.Rank, "after", time.Since(lost).Round(time.Millisecond))
		}
	}
}

// resume goes on over another connection, and makes the calls again that have no answer. It returns false if the
// client has ended.
func (c *Client) resume(to way) bool {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return false
	}
	c.conn, c.away = to.conn, nil
	var again []*call
	for _, p := range c.calls {
		again = append(again, p)
	}
	c.mu.Unlock()
	slices.SortFunc(again, func(a, b *call) int { return cmp.Compare(a.message.call, b.message.call) })
	for _, p := range again {
		c.send(p)
	}
	return true
}

// giveUpCalls has calls fail that wait for a connection, and later ones until there is one. The call for ends goes on.
func (c *Client) giveUpCalls(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil { // it is open again
		return
	}
	c.away = why
	for number, p := range c.calls {
		if p.kind != kindEnd {
			delete(c.calls, number)
			p.failed <- why
		}
	}
}

// suspect has the rank asked that serves the rendezvous, if one does.
func (c *Client) suspect(cause error) {
	if c.welcome.server != noRank {
		c.tell(c.serverEnd(cause))
	}
}

// tell has End return a suspicion.
func (c *Client) tell(e *End) {
	select {
	case c.suspects <- e:
	default: // it is told already
	}
}

// serverEnd returns that the process which serves the rendezvous may have ended.
func (c *Client) serverEnd(cause error) *End {
	return &End{Suspected: true, Asker: noRank, EndedError: EndedError{Rank: c.welcome.server,
		Reason: fmt.Sprintf("its process has ended, or cannot be reached: the connection to the rendezvous, which rank %d serves, was lost (%v)", c.welcome.server, cause)}}
}

// serverAnswered takes in whether the rank that serves the rendezvous has answered this one.
func (c *Client) serverAnswered(lives bool) {
	c.mu.Lock()
	cause, away := c.cause, c.conn == nil
	c.lives = lives
	c.mu.Unlock()
	if away && !lives {
		c.serverEnded(cause)
	}
}

// serverEnded takes in that nobody serves the rendezvous any more.
func (c *Client) serverEnded(cause error) {
	if c.welcome.server == noRank {
		c.disconnect(fmt.Errorf("the connection to the rendezvous ended (%w), and nobody listens there any more", cause))
		return
	}
	end := c.serverEnd(cause)
	if c.within {
		end.Suspected = false
		end.Reason = fmt.Sprintf("its process has ended: the rendezvous, which rank %d served, closed the connection (%v)", c.welcome.server, cause)
	}
	c.mu.Lock()
	if c.err == nil {
		c.lost = end
	}
	c.mu.Unlock()
	c.disconnect(fmt.Errorf("rank %d: %w", c.welcome.server, &end.EndedError))
}

// nobodyListens reports whether an attempt to connect has failed with err because of that.
func nobodyListens(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT)
}

// closedByEnd reports whether err is what a connection fails with when the process at the other
// end has ended. A reset may be one, too, but networks reset connections of processes that live.
func closedByEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// isClosed reports whether a connection cannot be written because the other end has closed it.
func isClosed(err error) bool { return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) }
