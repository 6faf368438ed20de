package lifecycle

import (
	"context"
	"maps"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// apply moves a pod's row by the product's own table.
func (w *world) apply(p *pod, event fleet.ClaimEvent) fleet.Outcome {
	before := w.rows[p.uid]
	after, outcome := fleet.NextClaimState(before, event)
	if outcome == fleet.Refuse {
		return outcome
	}
	freed := before.Live() && !after.Live()
	if freed && p.reg == alive && (event == fleet.ClaimEventRelease || event == fleet.ClaimEventMintFails || event == fleet.ClaimEventRetire) {
		w.violate("EXCL-6", "%s: %s ends the claim of %s, whose registration is alive", event, before, p.name)
	}
	switch event {
	case fleet.ClaimEventClaim:
		if before != fleet.ClaimNone {
			w.violate("EXCL-5", "%s is %s and is served", p.name, before)
		}
		if !p.shown.deleting.IsZero() {
			w.violate("EXCL-5", "%s is being deleted and is served", p.name)
		}
		if w.winner[p.uid] == fleet.ClaimEventRetire {
			w.violate("EXCL-1", "%s was granted and is served", p.name)
		}
		w.winner[p.uid] = event
	case fleet.ClaimEventRetire:
		if before.Live() {
			w.violate("EXCL-5", "%s is %s and is retired", p.name, before)
		}
		if w.winner[p.uid] == fleet.ClaimEventClaim {
			w.violate("EXCL-1", "%s was served and is granted", p.name)
		}
		w.winner[p.uid] = event
	case fleet.ClaimEventAdopt:
		w.winner[p.uid] = fleet.ClaimEventClaim // GitHub knows better
	default:
		if freed {
			delete(w.winner, p.uid) // its claim is over
		}
	}
	w.rows[p.uid] = after
	return outcome
}

// poll is a poller's question for work.
func (w *world) poll(p *pod) {
	if w.outage || w.held {
		return // asked again later
	}
	if p.shown.deleting.IsZero() { // EXCL-5
		if row := w.rows[p.uid]; w.apply(p, fleet.ClaimEventClaim) != fleet.Refuse || row == fleet.ClaimClaimed || row == fleet.ClaimMinted {
			return // it has a claim, and waits for the mint
		}
	}
	p.polling, p.ended = false, true // nothing to do, ever
}

// mint makes a registration for a claim. Its answer may be lost.
func (w *world) mint(p *pod, answered bool) {
	p.reg = alive
	if answered {
		w.apply(p, fleet.ClaimEventMint)
	}
}

// deliver answers a poll with what the claim has minted.
func (w *world) deliver(p *pod) {
	if w.winner[p.uid] == fleet.ClaimEventRetire {
		w.violate("EXCL-1", "%s was granted and is given a job", p.name)
	}
	p.jit, p.polling = true, false
}

// releaseClaim ends a claim without a job: GitHub removes the registration, if no job runs with it (EXCL-6).
func (w *world) releaseClaim(p *pod) bool {
	if p.executing {
		return false
	}
	if p.reg == alive {
		p.reg = gone
	}
	w.apply(p, fleet.ClaimEventRelease)
	return true
}

// restore loses what happened since the backup.
func (w *world) restore() {
	for uid, row := range w.rows {
		if w.backup[uid] != row {
			delete(w.winner, uid)
		}
	}
	for uid, row := range w.backup {
		if w.rows[uid] == row {
			continue
		}
		switch {
		case row.Live():
			w.winner[uid] = fleet.ClaimEventClaim
		case row == fleet.ClaimRetired:
			w.winner[uid] = fleet.ClaimEventRetire
		}
	}
	if w.rows = maps.Clone(w.backup); w.rows == nil {
		w.rows = map[string]fleet.ClaimState{}
	}
	w.held = true
}

// Ask is the server's retire.
func (w *world) Ask(_ context.Context, runners []RunnerRef) []Answer {
	answers := make([]Answer, len(runners))
	for i, r := range runners {
		answers[i] = w.retire(r)
		last := lastAnswer{w.step, answers[i].Verdict, w.answers[r.UID].grants}
		if last.verdict == Granted {
			last.grants++
		}
		w.answers[r.UID] = last
	}
	return answers
}

func (w *world) retire(r RunnerRef) Answer {
	if w.outage || w.held {
		return Answer{Detail: "the server cannot be asked"}
	}
	p := w.pods[r.Name]
	if p == nil || p.uid != r.UID {
		return Answer{Verdict: Granted, Detail: "it is gone"}
	}
	proof := ""
	if r.Lost {
		// Its own signs prove nothing: GitHub must know nothing of it.
		if p.reg == alive {
			return Answer{Verdict: Busy, Detail: "its registration is alive"}
		}
		if w.rows[p.uid].Live() {
			w.releaseClaim(p)
		}
		proof = "its registration is gone"
	}
	if w.apply(p, fleet.ClaimEventRetire) == fleet.Refuse {
		return Answer{Verdict: Busy, Detail: "it has a claim"}
	}
	return Answer{Verdict: Granted, Proof: proof}
}

// forget deletes the rows of pods that are gone for certain.
func (w *world) forget() {
	here := map[string]bool{}
	for _, p := range w.pods {
		here[p.uid] = true
	}
	for uid := range w.rows {
		if !here[uid] {
			delete(w.rows, uid)
		}
	}
}
