package collective

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/mpierr"
)

// The members of a group create a communicator around the leader, their lowest rank. The
// leader takes an id for the new communicator and tells all others, on the second
// context of the communicator that they have, because that context is never revoked. A
// member that has the id says so to the leader, which lets all go once it has heard of
// each. A member that gives up before it has the id tells the leader. A member that
// gives up afterwards breaks the new communicator, as does the leader if it
// gives up. Nobody has the new communicator before all know its id. So nobody waits in it for
// a member that does not have it, whoever dies when.
//
// Each member passes the group without the ranks that it knows to be gone, and members
// may know of different ranks. Calls with different groups do not see each other's
// messages. So each member says at the start which ranks of the communicator it has lost.
// Then the others listen for these, and a call fails once a rank of its group is gone. Of
// two members that have lost each other, and that others hear, one is parted with. In the
// end all members call with the same group.

const createGroup = "comm create_group"

// Creation is a call of CreateGroup. It implements Machine.
type Creation struct {
	c      *Comm
	world  []int  // the group's ranks in the job
	order  []int  // the same, ascending: the first of them leads, in whatever order the group is
	tag    int    // of its messages: no two groups, or tags, have the same by design
	digest uint64 // of the group and the tag; by accident two may have the same tag

	e     *engine.Engine
	stage stage
	id    uint32            // of the new communicator, once known; at the leader it may be 0, for none
	heard []*engine.Receive // the leader awaits all others; they await it

	sought []int // members that it has connected to

	suspects []*engine.Session // with members that others say they have lost
	fault    error
	err      error
}

type stage uint8

const (
	starting  stage = iota
	gathering       // the leader: waits until all others have the id
	learning        // the others: wait for the id
	joining         // wait to be let go
	finished
)

// CreateGroup begins the creation of a communicator by the ranks world of the job, of
// which this is one. All are members of c. id is an ID of this rank that no other
// communicator has, or 0 if it has none left; it is used at the leader.
func (c *Comm) CreateGroup(world []int, tag int, id uint32) *Creation {
	b := binary.LittleEndian.AppendUint64(nil, uint64(tag))
	for _, w := range world {
		b = binary.LittleEndian.AppendUint64(b, uint64(w))
	}
	sum := sha256.Sum256(b)
	return &Creation{
		c: c, world: world, order: slices.Sorted(slices.Values(world)), digest: binary.LittleEndian.Uint64(sum[:]), id: id,
		tag: engine.MaxTag + 1 + int(binary.LittleEndian.Uint32(sum[8:])&engine.MaxTag),
	}
}

// Result returns the new communicator, or why there is none.
func (k *Creation) Result() (*Part, error) {
	if k.err != nil {
		return nil, k.err
	}
	return &Part{k.id, k.world}, nil
}

// Made returns the communicator of a part that CreateGroup has made, as New does.
func (p *Part) Made(self, jobSize int) Comm {
	c := New(p.Context, p.Group, self, jobSize)
	c.turn = 1 // the message that let all go has the tag of the first collective
	return c
}

// Step implements Machine.
func (k *Creation) Step(e *engine.Engine) Need {
	k.e = e
	k.part()
	k.listenTo()
	switch k.stage {
	case starting:
		return k.start()
	case gathering:
		return k.gather()
	case learning:
		return k.learn()
	case joining:
		return k.join()
	}
	return Done
}

// start says who of c is gone, and fails if the group has one of them.
func (k *Creation) start() Need {
	for r := range k.c.Size {
		if w := k.c.WorldRank(r); k.e.Gone(w) {
			k.e.TellGone(w)
		}
	}
	k.e.Tick()
	if err := k.gone(); err != nil {
		return k.end(err)
	}
	if k.c.RankOf(k.order[0]) == k.c.Rank {
		return k.tellAll()
	}
	k.id = 0
	if k.fault != nil {
		return k.quit(k.fault)
	}
	k.listen(k.order[0])
	k.stage = learning
	return k.learn()
}

var (
	errGone    = errors.New("it has failed, or has left the job")
	errParted  = errors.New("it and another member of a group have lost each other, and that one was kept")
	errGivenUp = errors.New("it has given up the creation of the communicator")
)

// part ends the sessions with members that others have lost, and that must go for it.
func (k *Creation) part() {
	for rank, found := k.e.Dispute(k.order); found; rank, found = k.e.Dispute(k.order) {
		k.e.Session(rank).GiveUp(errParted)
		k.e.TellGone(rank)
	}
}

// listenTo has the members that others say they have lost noticed if they die while the call
// lasts. So either they are lost here, or they say whom they have lost.
func (k *Creation) listenTo() {
	for _, w := range k.world {
		if s := k.suspect(w); s != nil {
			s.Watch(1)
			s.Await()
			k.suspects = append(k.suspects, s)
		}
	}
}

// suspect returns the session with a member that others say they have lost, and that is not
// listened to yet, or nil.
func (k *Creation) suspect(w int) *engine.Session {
	if s := k.e.Session(w); s != nil && !s.Dead() && k.e.Reported(w) && !slices.Contains(k.suspects, s) {
		return s
	}
	return nil
}

// news reports whether the call may go on, or fail, because of other ranks than those whose
// messages it awaits.
func (k *Creation) news() bool {
	_, disputed := k.e.Dispute(k.order)
	return disputed || slices.ContainsFunc(k.world, func(w int) bool { return k.e.Gone(w) || k.suspect(w) != nil })
}

// finish ends the call.
func (k *Creation) finish() {
	for _, s := range k.suspects {
		s.Watch(-1)
	}
	k.suspects, k.stage = nil, finished
}

// gone returns that a member is gone, or nil.
func (k *Creation) gone() error {
	for _, w := range k.world {
		if k.e.Gone(w) {
			return &mpierr.Error{Class: mpierr.ProcFailed, Rank: w, Err: errGone}
		}
	}
	return nil
}

// end ends the call with err, which names ranks of the job. The others are told of members
// that this rank has lost meanwhile, for they may not see it. A member to which no way was
// found counts as lost: the next call is one without it.
func (k *Creation) end(err error) Need {
	for _, w := range k.world {
		if k.e.Gone(w) || slices.Contains(k.sought, w) && k.e.Session(w) == nil {
			k.e.TellGone(w)
		}
	}
	k.e.Tick()
	k.err = k.c.Named(createGroup, mpierr.NoRank, err)
	k.finish()
	return Done
}

// broken ends the call with err after others have learned of the new communicator.
func (k *Creation) broken(err error) Need {
	k.c.Renounce(k.e, &Part{k.id, k.world}, k.c.Named(createGroup, mpierr.NoRank, err))
	return k.end(err)
}

// tellAll tells all others the id of the new communicator.
func (k *Creation) tellAll() Need {
	for _, w := range k.order[1:] {
		k.tell(w)
	}
	if k.id == 0 {
		return k.end(errNoIDs(createGroup, k.order[0]))
	}
	k.e.OpenContext(k.id, k.world)
	for _, w := range k.order[1:] {
		k.listen(w)
	}
	k.stage = gathering
	return k.gather()
}

const noticeLen = 12

// tell tells a member, or the leader, an id: that of the new communicator, or 0, for giving
// up. It does not wait until that has left: if the rank has yet to join the job, it is told
// when it has.
func (k *Creation) tell(to int) {
	data := binary.LittleEndian.AppendUint32(nil, k.id)
	data = binary.LittleEndian.AppendUint64(data, k.digest)
	k.send(to, k.c.Context|SecondContext, k.tag, data)
}

func (k *Creation) send(to int, context uint32, tag int, data []byte) {
	k.e.PostSend(&engine.Sending{To: k.e.Connect(to).Peer(), Context: context, Tag: tag, Data: data})
	k.e.Tick()
}

// listen begins to receive what tell tells, at a rank of the job.
func (k *Creation) listen(from int) {
	r := &engine.Receive{Context: k.c.Context | SecondContext, Source: from, Tag: k.tag, Buffer: make([]byte, noticeLen)}
	k.e.Connect(from)
	k.sought = append(k.sought, from)
	k.e.PostReceive(r)
	k.heard = append(k.heard, r)
}

// learned returns the id that r, which is met, has received.
func (k *Creation) learned(r *engine.Receive) (id uint32, err error) {
	switch {
	case r.Err() != nil:
		return 0, r.Err()
	case r.Length != noticeLen:
		return 0, mpierr.New(createGroup, mpierr.Intern, r.From, "%d bytes about a communicator", r.Length)
	case binary.LittleEndian.Uint64(r.Buffer[4:]) != k.digest:
		return 0, mpierr.New(createGroup, mpierr.Tag, r.From, "it creates another communicator whose messages cannot be told apart: take another tag")
	}
	return binary.LittleEndian.Uint32(r.Buffer), nil
}

// withdraw ends what is awaited.
func (k *Creation) withdraw() {
	for _, r := range k.heard {
		k.e.WithdrawReceive(r)
	}
	k.heard = nil
}

// gather waits until all others have the new communicator's id, and lets them go. It does
// so on the new communicator, so that they learn when it is broken before.
func (k *Creation) gather() Need {
	here, err := k.allHere()
	if err == nil && !here {
		if k.fault == nil {
			k.listenAgain()
			return Wait
		}
		err = k.fault
	}
	k.withdraw()
	if err != nil {
		return k.broken(err)
	}
	for _, w := range k.order[1:] {
		k.send(w, k.id, goTag, nil)
	}
	k.finish()
	return Done
}

const goTag = engine.MaxTag + 1

// allHere returns whether all others have the id, and why the call fails.
func (k *Creation) allHere() (here bool, err error) {
	if err := k.gone(); err != nil {
		return false, err
	}
	if failed, broken := k.e.Revoked(k.id); broken {
		return false, &mpierr.Error{Class: mpierr.ProcFailed, Rank: failed, Err: errGivenUp}
	}
	here = true
	for _, r := range k.heard {
		if !r.Met() {
			here = false
			continue
		}
		id, err := k.learned(r)
		if err != nil {
			return false, err
		}
		switch id {
		case k.id:
		case 0:
			return false, &mpierr.Error{Class: mpierr.ProcFailed, Rank: r.Source, Err: errGivenUp}
		default: // of an earlier call with the same group and tag, which this rank has given up
			here = false
		}
	}
	return here, nil
}

// listenAgain begins to receive anew from the members that had an earlier id.
func (k *Creation) listenAgain() {
	for i, r := range k.heard {
		if k.isStale(r) {
			k.listen(r.Source)
			k.heard[i], k.heard = k.heard[len(k.heard)-1], k.heard[:len(k.heard)-1]
		}
	}
}

// isStale reports whether a member has told, of an earlier call, that it has the id.
func (k *Creation) isStale(r *engine.Receive) bool {
	if !r.Met() {
		return false
	}
	id, err := k.learned(r)
	return err == nil && id != k.id && id != 0
}

// learn waits for the id of the new communicator. The first may not call if it knows that
// a member is gone.
func (k *Creation) learn() Need {
	r, first := k.heard[0], k.order[0]
	if !r.Met() {
		err := k.fault
		if err == nil {
			err = k.gone()
		}
		if err == nil {
			return Wait
		}
		k.withdraw()
		return k.quit(err)
	}
	id, err := k.learned(r)
	switch {
	case err != nil:
		return k.quit(err)
	case id == 0:
		return k.end(errNoIDs(createGroup, first))
	case !isID(id):
		return k.quit(mpierr.New(createGroup, mpierr.Intern, first, "%d is no id of a communicator", id))
	}
	k.id = id
	k.e.OpenContext(id, k.world)
	k.tell(first)
	// The leader's next notice on this tag, if it comes first, is that of another call: the
	// leader has given this one up.
	k.heard = []*engine.Receive{
		{Context: id, Source: first, Tag: goTag},
		{Context: k.c.Context | SecondContext, Source: first, Tag: k.tag, Probe: true},
	}
	for _, r := range k.heard {
		k.e.PostReceive(r)
	}
	k.stage = joining
	return k.join()
}

// quit ends the call of a rank that does not have the id, which the leader is told unless
// it knows, or learns.
func (k *Creation) quit(err error) Need {
	if mpierr.Named(createGroup, mpierr.NoRank, err).Class != mpierr.ProcFailed {
		k.tell(k.order[0])
	}
	return k.end(err)
}

// join waits until the leader says that all have the id.
func (k *Creation) join() Need {
	r := k.heard[0]
	err := k.fault
	switch {
	case r.Met():
		err = r.Err()
	case err != nil:
	case k.heard[1].Met(): // or the leader is lost
		err = &mpierr.Error{Class: mpierr.ProcFailed, Rank: k.order[0], Err: errGivenUp}
	default:
		return Wait
	}
	k.withdraw()
	if err != nil {
		return k.broken(err)
	}
	k.finish()
	return Done
}

// Met implements Machine.
func (k *Creation) Met() bool {
	switch k.stage {
	case gathering:
		here, err := k.allHere()
		return here || err != nil || slices.ContainsFunc(k.heard, k.isStale) || k.news()
	case learning:
		return k.heard[0].Met() || k.news()
	case joining:
		return k.heard[0].Met() || k.heard[1].Met()
	}
	return k.heard[0].Met()
}

// Work implements Machine. There is none.
func (k *Creation) Work() {}

// GiveUp implements Machine.
func (k *Creation) GiveUp(err error) { k.fault = err }

// Drop implements Machine.
func (k *Creation) Drop(e *engine.Engine) {
	for _, r := range k.heard {
		e.WithdrawReceive(r)
	}
	k.finish()
}
