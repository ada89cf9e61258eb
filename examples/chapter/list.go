package main

import (
	"context"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

// place is where an element of the list is: the address in a process's memory.
type place struct{ disp, rank int64 }

// nowhere is the end of the list.
var nowhere = place{disp: 0, rank: -1}

// An element is the place of the next one, and a value.
type element [3]int64

const (
	nextDisp = iota
	nextRank
	value
)

// at returns where a word of the element at p is, as a displacement.
func (p place) at(word int64) rma.Location { return rma.At(rma.AddAddress(p.disp, 8*word)) }

// list is a rank's view of the list.
type list struct {
	ctx  context.Context
	win  *rma.Win
	rank int
	own  []*element // that this rank has made and attached
}

// newElement makes an element in this process's memory.
func (l *list) newElement(v int64) place {
	e := &element{nextDisp: nowhere.disp, nextRank: nowhere.rank, value: v}
	check(l.win.Attach(rma.BytesOf(e[:])))
	l.own = append(l.own, e)
	return place{disp: rma.Address(buffer.Of(e[:])), rank: int64(l.rank)}
}

// link makes next follow tail if nothing does, and returns what follows tail.
// The rank is swapped first, and decides who has won; the displacement comes after
// it, and others wait for it.
func (l *list) link(tail, next place) (follows place) {
	to := int(tail.rank)
	check(l.win.CompareAndSwap(buffer.Value(&next.rank), buffer.Value(&nowhere.rank), buffer.Value(&follows.rank), to, tail.at(nextRank)))
	check(l.win.Flush(l.ctx, to))
	if follows.rank == nowhere.rank {
		check(l.win.Accumulate(buffer.Value(&next.disp), to, tail.at(nextDisp), rma.Replace))
		check(l.win.Flush(l.ctx, to))
		return next
	}
	for follows.disp == nowhere.disp {
		check(l.win.GetAccumulate(buffer.Buffer{}, buffer.Value(&follows.disp), to, tail.at(nextDisp), rma.NoOp))
		check(l.win.Flush(l.ctx, to))
	}
	return follows
}

// linkedList is example 11.23: a list in the memory of all processes, to which each
// appends elements that it attaches to a dynamic window. A process that finds its
// tail out of date follows the list to the true one.
//
// In the printed program the new rank and address are words of their own, so
// that each is read and written atomically; here too. All machines must have the
// same layout of an element.
func linkedList(ctx context.Context, c *comm.Comm) {
	const appended = 10
	win, err := rma.CreateDynamic(ctx, c, nil)
	check(err)
	l := &list{ctx: ctx, win: win, rank: c.Rank()}
	head := place{}
	if c.Rank() == 0 {
		head = l.newElement(-1)
	}
	told := []int64{head.disp}
	check(comm.Bcast(ctx, c, told, 0))
	head.disp = told[0]

	check(win.LockAll(ctx, 0))
	tail := head
	for i := range appended {
		e := l.newElement(int64(c.Rank()*appended + i))
		for tail != e {
			tail = l.link(tail, e)
		}
	}
	check(win.UnlockAll(ctx))
	check(c.Barrier(ctx))

	// Every process finds all elements, those of each process in their order.
	check(win.LockAll(ctx, 0))
	expected := make([]int64, c.Size())
	count := 0
	for p := head; p != nowhere; count++ {
		var e element
		check(win.Get(buffer.Of(e[:]), int(p.rank), p.at(0)))
		check(win.Flush(ctx, int(p.rank)))
		if v := e[value]; p == head {
			equal(v, -1)
		} else {
			from := v / appended
			equal(v%appended, expected[from])
			equal(p.rank, from)
			expected[from]++
		}
		p = place{disp: e[nextDisp], rank: e[nextRank]}
	}
	equal(count, 1+c.Size()*appended)
	check(win.UnlockAll(ctx))

	check(c.Barrier(ctx)) // nobody reads any more
	for _, e := range l.own {
		check(win.Detach(rma.BytesOf(e[:])))
	}
	check(win.Free(ctx))
}
