package main

import (
	"fmt"
	"time"
)

// endFailed ends the job, and says which rank has failed first.
func (j *job) endFailed() {
	rank, o := j.firstFailed()
	j.end(o.status, fmt.Sprintf("rank %d %s%s", rank, o.reason, j.saidBy(rank)))
}

// firstFailed returns which rank has failed first, and how. The others fail for it, and may end before it
// does: what it has said to the rendezvous came before they knew.
func (j *job) firstFailed() (first int, how outcome) {
	var since time.Time
	for _, p := range j.processes {
		said := j.rendezvous.Parting(p.rank)
		o, over := j.outcomes[p.rank]
		switch {
		case over && o.status == 0, !over && said.Why == "":
			continue
		case !over:
			o = outcome{status: statusFailed, reason: "has not ended", at: said.At}
		case !said.At.IsZero() && said.At.Before(o.at):
			o.at = said.At
		}
		if since.IsZero() || o.at.Before(since) {
			first, how, since = p.rank, o, o.at
		}
	}
	return first, how
}

// saidBy returns what a rank has said of its failure, to be put after how it ended.
func (j *job) saidBy(rank int) string {
	if why := j.rendezvous.Parting(rank).Why; why != "" {
		return ": " + why
	}
	return ""
}
