package collective

import "math/bits"

// Each collective has an algorithm: a function that is called again and again, takes in
// what the transfer before has brought, and describes the next one. step counts the calls.

// Barrier begins a barrier, as a part of the call op. It takes one message a rank in each of
// log2(Size) rounds.
func (c *Comm) Barrier(op string) *Call { return c.begin(op, 0, barrier) }

func barrier(k *Call) bool {
	c, dist := k.c, 1<<k.steps
	if dist >= c.Size {
		return false
	}
	return k.swap((c.Rank+dist)%c.Size, nil, (c.Rank-dist+c.Size)%c.Size, nil, k.steps)
}

// fromRoot returns this rank, and absolute another, counted from the root: a tree's
// algorithms count so.
func (k *Call) fromRoot() int { return (k.c.Rank - k.root + k.c.Size) % k.c.Size }

func (k *Call) absolute(me int) int { return (me + k.root + k.c.Size) % k.c.Size }

// upwards returns how far the parent of rank me is in a binomial tree, or, of the root,
// twice as far as the farthest child.
func (k *Call) upwards(me int) int {
	if me == 0 {
		return 1 << bits.Len(uint(k.c.Size-1))
	}
	return me & -me
}

// Bcast begins the bcast of rank root's data.
func (c *Comm) Bcast(data []byte, root int) *Call {
	k := c.begin("bcast", root, bcast)
	k.send = data
	return k
}

// bcast goes down a binomial tree.
func bcast(k *Call) bool {
	me := k.fromRoot()
	if k.steps == 0 {
		k.dist = k.upwards(me)
		if me != 0 {
			return k.take(k.absolute(me-k.dist), 1, k.send)
		}
	}
	return k.nextChild(me) && k.give(k.absolute(me+k.dist), 1, k.send)
}

// nextChild makes dist the distance of the next child of rank me, if there is one.
func (k *Call) nextChild(me int) bool {
	for k.dist /= 2; k.dist > 0; k.dist /= 2 {
		if me+k.dist < k.c.Size {
			return true
		}
	}
	return false
}

// Gather begins the gathering of all ranks' send in recv at rank root.
func (c *Comm) Gather(send, recv []byte, root int) *Call {
	k := c.begin("gather", root, gather)
	k.send, k.recv = send, recv
	if c.Rank == root {
		k.refuse(c.CheckTimes(k.op, "recv", recv, send))
	}
	return k
}

func gather(k *Call) bool {
	if k.c.Rank != k.root {
		return k.steps == 0 && k.give(k.root, 0, k.send)
	}
	n := len(k.send)
	if k.steps == 0 {
		copy(k.recv[k.root*n:], k.send)
	}
	if k.steps+1 == k.c.Size {
		return false
	}
	from := k.absolute(k.steps + 1)
	return k.take(from, 0, k.recv[from*n:(from+1)*n])
}

// Scatter begins the giving of a part of rank root's send to each rank.
func (c *Comm) Scatter(send, recv []byte, root int) *Call {
	k := c.begin("scatter", root, scatter)
	k.send, k.recv = send, recv
	if c.Rank == root {
		k.refuse(c.CheckTimes(k.op, "send", send, recv))
	}
	return k
}

func scatter(k *Call) bool {
	if k.c.Rank != k.root {
		return k.steps == 0 && k.take(k.root, 0, k.recv)
	}
	n := len(k.recv)
	if k.steps == 0 {
		copy(k.recv, k.send[k.root*n:])
	}
	if k.steps+1 == k.c.Size {
		return false
	}
	to := k.absolute(k.steps + 1)
	return k.give(to, 0, k.send[to*n:(to+1)*n])
}

// Allgather begins the gathering of all ranks' send in recv at every rank.
func (c *Comm) Allgather(send, recv []byte) *Call {
	k := c.begin("allgather", 0, allgather)
	k.send, k.recv = send, recv
	k.refuse(c.CheckTimes(k.op, "recv", recv, send))
	return k
}

func allgather(k *Call) bool {
	c := k.c
	if k.steps == 0 {
		k.theirs = c.scratch(len(k.recv))
	}
	if bruck(k) {
		return true
	}
	n := copy(k.recv, k.theirs[(c.Size-c.Rank)%c.Size*len(k.send):]) // from rank 0 on
	copy(k.recv[n:], k.theirs)
	return false
}

// bruck fills theirs with the blocks of ranks c.Rank, c.Rank+1 and so on. It doubles what
// each rank knows in every round (Bruck's algorithm).
func bruck(k *Call) bool {
	c, n, dist := k.c, len(k.send), 1<<k.steps
	if k.steps == 0 {
		copy(k.theirs, k.send)
	}
	if dist >= c.Size {
		return false
	}
	part := min(dist, c.Size-dist) * n
	to, from := (c.Rank-dist+c.Size)%c.Size, (c.Rank+dist)%c.Size
	return k.swap(to, k.theirs[:part], from, k.theirs[dist*n:dist*n+part], k.steps)
}

// Alltoall begins the sending of the parts of send, one to each rank, which stores it as
// the part of its sender in recv.
func (c *Comm) Alltoall(send, recv []byte) *Call {
	k := c.begin("alltoall", 0, alltoall)
	k.send, k.recv = send, recv
	if len(send) != len(recv) || len(send)%c.Size != 0 {
		k.refuse(countError(k.op, "send has %d bytes and recv %d, both are %d times the same", len(send), len(recv), c.Size))
	}
	return k
}

// alltoall swaps with one rank a round.
func alltoall(k *Call) bool {
	c, n := k.c, len(k.send)/k.c.Size
	if k.steps == 0 {
		copy(k.recv[c.Rank*n:(c.Rank+1)*n], k.send[c.Rank*n:])
	}
	i := k.steps + 1
	if i == c.Size {
		return false
	}
	to, from := (c.Rank+i)%c.Size, (c.Rank-i+c.Size)%c.Size
	return k.swap(to, k.send[to*n:(to+1)*n], from, k.recv[from*n:(from+1)*n], 0)
}
