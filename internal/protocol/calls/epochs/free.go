package epochs

import "github.com/xdprma/xdprma/mpierr"

// MayFree returns nil if the window may be freed; RMASync while an epoch is open.
func (w *Window) MayFree() error { return w.epoch.Free() }

// Free ends the synchronisation of a window that MayFree is nil for. It completes the
// operations that post and start epochs have left outstanding. The ranks meet, unless
// Config.Quiet is set, and then Close is called. A Free that is given up, or that has
// failed, goes on with its part at this rank.
func (w *Window) Free() Call { return Call{w: w, name: "window free", kind: free} }

func (c *Call) stepFree(t Turn) Status {
	switch c.stage {
	case starting:
		c.ranks = c.w.touched
		c.begin(asking)
		for ; c.next < len(c.ranks); c.next++ {
			if a := c.w.targets[c.ranks[c.next]].access; !a.Starting() {
				t.Flush(a)
			}
		}
		c.begin(awaiting)
		fallthrough
	case awaiting:
		for ; c.next < len(c.ranks); c.next++ {
			rank := c.ranks[c.next]
			a := c.w.targets[rank].access
			if a.Starting() {
				continue // it stays, and is lost unless the target posts
			}
			if until := AtTarget.until(a); !until.Met() {
				return c.await(until)
			}
			c.fail(failure(c.name, rank, a))
		}
		return c.flushed(t)
	}
	return c.end(c.w.unposted())
}

// flushed goes on with Free after what was outstanding.
func (c *Call) flushed(t Turn) Status {
	if c.w.Quiet {
		return c.end(c.w.unposted())
	}
	return c.gather(gathering)
}

// unposted returns an error if something was issued to a target that has not posted: it is
// lost.
func (w *Window) unposted() error {
	for _, rank := range w.touched {
		if a := w.targets[rank].access; a.Starting() && a.Err() == nil {
			return mpierr.New("window free", mpierr.RMASync, rank, "Start began an epoch here, and the target has not posted to this rank: what was issued is lost")
		}
	}
	return nil
}

// Close ends all that the window has to do with the engine. Its memory can go as soon as
// Engine.Evict has been told of it. Nothing else can be done with the window.
func (w *Window) Close(t Turn) {
	w.freed = true
	for _, rank := range w.touched {
		t.CloseAccess(w.targets[rank].access)
	}
	t.ForgetWindow(w.Own.ID())
}
