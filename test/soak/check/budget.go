package check

import (
	"encoding/json"
	"fmt"
)

// purse is an account's budget on one platform.
type purse struct {
	Account  int64
	Platform string
}

type limit struct {
	Account  int64  `json:"account_id"`
	Platform string `json:"platform"`
	MilliCPU int64  `json:"milli_cpu"`
	MemoryMB int64  `json:"memory_mb"`
	Jobs     int64  `json:"jobs"`
}

// budgets counts out every account's live claims at each change. A claim that was decided on must keep within the limit of
// that moment (CLAIM-5). A lowered limit ends no claim, and a runner that GitHub itself has started a job on is charged
// because it runs: neither is an excess, but the next claim beyond the limit is.
//
// The moments are those at which the rows were written. A transaction that adds a claim holds the account's limit until it
// commits, and sees only what was committed: whatever it has not counted was written after it, or never.
func (x *examiner) budgets() {
	live := map[string]Claim{}
	limits := map[purse]limit{}
	for _, c := range x.Changes {
		switch {
		case c.Op == "SNAPSHOT":
			clear(live)
			clear(limits)
		case c.Table == "account_limits":
			var l limit
			if json.Unmarshal(c.New, &l) == nil {
				limits[purse{l.Account, l.Platform}] = l
			}
		case c.Table == "runner_claims":
			x.spend(c, live, limits)
		}
	}
}

func (x *examiner) spend(c Change, live map[string]Claim, limits map[purse]limit) {
	var before, after Claim
	if c.Old != nil {
		_ = json.Unmarshal(c.Old, &before) // rows of Postgres' own making
	}
	if json.Unmarshal(c.New, &after) != nil { // deleted
		delete(live, before.PodUID)
		return
	}
	_, was := live[after.PodUID]
	if !after.Live() {
		delete(live, after.PodUID)
		return
	}
	live[after.PodUID] = after
	if was || c.Op == "ROW" || after.State != "claimed" || after.Account == nil {
		return
	}
	of := purse{*after.Account, after.Platform}
	allowed, known := limits[of]
	if !known {
		x.report.Notes = append(x.report.Notes, fmt.Sprintf("account %d has no limit on %s", of.Account, of.Platform))
		return
	}
	var used limit
	for _, claim := range live {
		if claim.Account != nil && (purse{*claim.Account, claim.Platform}) == of {
			used.Jobs++
			used.MilliCPU += claim.MilliCPU
			used.MemoryMB += claim.MemoryMB
		}
	}
	if used.Jobs > allowed.Jobs || used.MilliCPU > allowed.MilliCPU || used.MemoryMB > allowed.MemoryMB {
		x.find(RowBudget, x.podTimeline(after.PodName), "at %s the claim of pod %s brought account %d (%s) to %d jobs, %d mCPU, %d MB; its limit was %d, %d, %d",
			clock(c.At), after.PodName, of.Account, of.Platform, used.Jobs, used.MilliCPU, used.MemoryMB, allowed.Jobs, allowed.MilliCPU, allowed.MemoryMB)
	}
}

// uncharged finds jobs that ran on while no account was charged for them: a live claim of the runner's pod ended although GitHub showed it
// as busy (EXCL-6), so that its account could have had one more than its limit. A runner that had exited, or whose machine was switched
// off, was not busy, whatever GitHub showed.
func (x *examiner) uncharged() {
	for i := range x.GitHub.Jobs {
		j := &x.GitHub.Jobs[i]
		uid := x.index.podOf[j.RunnerName]
		lives := x.index.lives[uid]
		if uid == "" || lives == nil || x.switchedOff(j) || x.index.cancelled[j.ID] {
			continue
		}
		for _, c := range x.index.claims[uid] {
			var before, after Claim
			_ = json.Unmarshal(c.Old, &before) // of an inserted row there is none,
			_ = json.Unmarshal(c.New, &after)  // and of a deleted one
			if before.Live() && !after.Live() && during(c.At, j) && (lives.ended == nil || c.At.Before(lives.ended.At)) {
				x.find(RowBudget, x.timeline(j), "the claim of pod %s ended at %s while its job %d (%s) ran: nothing was charged for it",
					before.PodName, clock(c.At), j.ID, j.Name)
			}
		}
	}
}
