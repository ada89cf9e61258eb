package main

import (
	"fmt"
	"time"
)

// endFailed ends the job, and says which rank has failed first.
func (j *job) endFailed() {
	p, o := j.firstFailed()
	if _, over := j.outcomes[p.rank]; !over {
		j.culprit = p
	}
	j.end(o.status, j.verdict(p, &o))
}

// judge says in the end which rank has failed first, where the job was not ended for it, and sets the job's
// status.
func (j *job) judge() {
	switch {
	case j.failing && !j.ending:
		j.endFailed()
	case j.culprit != nil:
		if o := j.outcomes[j.culprit.rank]; o.status != 0 {
			j.status = o.status
		}
	case j.failures > 0 && !j.ending:
		p, o := j.firstFailed()
		if j.status = o.status; j.failures > 1 {
			text := j.verdict(p, &o)
			j.messages.Wait() // what it sums up comes before it
			j.messages.Go(func() { j.console.logf("first, %s", text) })
		}
	}
}

// firstFailed returns which rank has failed first, and how. The others fail for it, and may end before it
// does: what it has said to the rendezvous came before they knew.
func (j *job) firstFailed() (first *process, how outcome) {
	for _, p := range j.processes {
		said := j.rendezvous.Parting(p.rank)
		o, over := j.outcomes[p.rank]
		switch {
		case over && o.status == 0, !over && said.Why == "":
			continue
		case !over:
			o = outcome{status: 1, reason: "has not ended", at: said.At}
		case !said.At.IsZero() && said.At.Before(o.at):
			o.at = said.At
		}
		if first == nil || o.at.Before(how.at) {
			first, how = p, o
		}
	}
	return first, how
}

// verdict says how a rank has failed that is the first, and of one that had ended before with status 0 though it
// had not done its part, or had left before and is slow to end.
func (j *job) verdict(p *process, how *outcome) string {
	text := fmt.Sprintf("rank %d %s%s%s", p.rank, how.reason, j.saidBy(p.rank), j.leftBefore(how.at))
	if before := j.deserter(p, how.at); before != "" {
		return before + "; after that " + text
	}
	return text
}

// deserter says which rank was the first to end with status 0, before the time when another failed, though its
// program had failed or it had not left the job; or nothing.
func (j *job) deserter(failed *process, by time.Time) (text string) {
	for _, p := range j.processes {
		said := j.rendezvous.Parting(p.rank)
		o, over := j.outcomes[p.rank]
		if !over || o.status != 0 {
			continue
		}
		var how string
		switch {
		case said.Why != "":
			how, o.at = ": "+said.Why, said.At
		case !said.At.IsZero():
			continue // it has done its part
		case said.Joined:
			how = " without having left the job"
		case j.rendezvous.Parting(failed.rank).Joined:
			how = " without having joined the job"
		default:
			continue // the program may be none that joins a job
		}
		if o.at.Before(by) {
			by, text = o.at, fmt.Sprintf("rank %d %s%s", p.rank, o.reason, how)
		}
	}
	return text
}

// leftBefore names a rank that had left by then and has not ended, to be put after how another one has failed: it may
// have failed itself.
func (j *job) leftBefore(failure time.Time) string {
	for _, p := range j.processes {
		_, over := j.outcomes[p.rank]
		if said := j.rendezvous.Parting(p.rank); !over && said.Why == "" && !said.At.IsZero() && said.At.Before(failure) {
			return fmt.Sprintf("; rank %d had left the job before, and has not ended", p.rank)
		}
	}
	return ""
}

// saidBy returns what a rank has said of its failure, to be put after how it ended.
func (j *job) saidBy(rank int) string {
	if why := j.rendezvous.Parting(rank).Why; why != "" {
		return ": " + why
	}
	return ""
}
