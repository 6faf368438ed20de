package model

import (
	"time"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	table "github.com/bullpen-ci/bullpen/internal/server/recovery"
)

// rules are the product's decisions. A test replaces one by a mutant.
type rules struct {
	nextClaim      func(fleet.ClaimState, fleet.ClaimEvent) (fleet.ClaimState, fleet.Outcome)
	nextJob        func(fleet.JobState, fleet.JobEvent) (fleet.JobState, fleet.Outcome)
	resolve        func(dispatch.JobEvent, dispatch.Facts) dispatch.Change
	decide         func(dispatch.Pod, dispatch.Claim, int64, time.Time) dispatch.Step
	admit          func([]dispatch.Lane, map[int64]fleet.Limits, map[int64]fleet.Usage, fleet.Shape, int) dispatch.Admission
	choose         func([]dispatch.QueuedJob, map[int64]int64, map[int64]int64, int, bool) []dispatch.QueuedJob
	nextGeneration func(int64, time.Time) int64
	retireVerdict  func(fleet.ClaimState) runnerapi.Verdict
	plan           func(lifecycle.Wish, *lifecycle.Set, time.Time) lifecycle.Plan
	mayDelete      func(lifecycle.Observed, lifecycle.Grant) error
	answered       func(*lifecycle.Leave, lifecycle.Answer, lifecycle.Reason, lifecycle.Stage, lifecycle.Pace, time.Time)
	judge          func(table.Evidence) table.Verdict
}

func productRules() rules {
	return rules{
		nextClaim: fleet.NextClaimState, nextJob: fleet.NextJobState,
		resolve: dispatch.Resolve, decide: dispatch.Decide, admit: dispatch.Admit, choose: dispatch.Choose,
		nextGeneration: dispatch.NextGeneration, retireVerdict: dispatch.RetireVerdict,
		plan: lifecycle.MakePlan, mayDelete: lifecycle.MayDelete, answered: (*lifecycle.Leave).Answered, judge: table.Judge,
	}
}

// without are guards that are no function's: conditions of a statement of SQL, and the order of calls. A test leaves one
// out.
type without struct {
	generation   bool // writes require the row's state alone
	overtaken    bool // an actor that was overtaken removes what its successor has minted
	removal      bool // a claim is released without removing its registrations
	busyAnswer   bool // 422 does not end a takeover
	controlRead  bool // 403 and 404 count as gone without a control read
	secondAsk    bool // the fence is asked once
	version      bool // a pod is deleted however it has changed since it was observed
	unknown      bool // a fence that does not answer is taken to have granted
	serveCheck   bool // a claim made for a pod that is being deleted is minted for
	singleShot   bool // a poller asks again after its answer
	labelLast    bool // the owner label is stamped with the mint
	labelInTime  bool // the owner label is written at any time after the acknowledgement
	rowsStay     bool // a row is removed by its age
	exitCode     bool // every end of a poller acknowledges
	matched      bool // a request that waited for a job continues with the claim of another
	confirmation bool // a runner is adopted on the event alone
	hold         bool // nothing is held after a restore
	refusal      bool // after a restore statements are not refused, but claims are rebuilt
	rebuild      bool // the hold ends without any claim having been rebuilt
	refused      bool // recovery takes GitHub's 422 for a removal
	silence      bool // the agent signals a runner that shows no job
}

// The indexes that rows hold instead of the product's words.
var (
	claimIndex = indexOf(fleet.ClaimStates())
	jobIndex   = indexOf(fleet.JobStates())

	claimNone      = claimIndex[fleet.ClaimNone]
	claimClaimed   = claimIndex[fleet.ClaimClaimed]
	claimMinted    = claimIndex[fleet.ClaimMinted]
	claimExecuting = claimIndex[fleet.ClaimExecuting]
	claimSpent     = claimIndex[fleet.ClaimSpent]
	claimRetired   = claimIndex[fleet.ClaimRetired]

	jobAbsent    = jobIndex[fleet.JobAbsent]
	jobQueued    = jobIndex[fleet.JobQueued]
	jobCompleted = jobIndex[fleet.JobCompleted]
)

func indexOf[T comparable](all []T) map[T]uint8 {
	index := make(map[T]uint8, len(all))
	for i, v := range all {
		index[v] = uint8(i) //nolint:gosec // a handful
	}
	return index
}

// The events of a claim and of a job, as indexes of the tabulated transitions.
const (
	evClaim = iota
	evMint
	evUnclaim
	evStarted
	evCompleted
	evRelease
	evAdopt
	evRetire
)

const (
	jobEvClaim = iota
	jobEvMint
	jobEvRelease
	jobEvTransfer
	jobEvStarted
	jobEvQueued
	jobEvReturned
)

var (
	claimEvents = [...]fleet.ClaimEvent{
		evClaim: fleet.ClaimEventClaim, evMint: fleet.ClaimEventMint, evUnclaim: fleet.ClaimEventMintFails,
		evStarted: fleet.ClaimEventStarted, evCompleted: fleet.ClaimEventCompleted, evRelease: fleet.ClaimEventRelease,
		evAdopt: fleet.ClaimEventAdopt, evRetire: fleet.ClaimEventRetire,
	}
	jobEvents = [...]fleet.JobEvent{
		jobEvClaim: fleet.JobEventClaim, jobEvMint: fleet.JobEventMint, jobEvRelease: fleet.JobEventRelease,
		jobEvTransfer: fleet.JobEventTransfer, jobEvStarted: fleet.JobEventStarted, jobEvQueued: fleet.JobEventQueued,
		jobEvReturned: fleet.JobEventReturned,
	}
)

type move struct {
	next    uint8
	outcome fleet.Outcome
}

// decisions are the rules, each asked once for every question that a state can put to it: they are pure, so that the
// answer can be kept.
type decisions struct {
	rules rules

	claim    [6][len(claimEvents)]move
	job      [9][len(jobEvents)]move
	live     [6]bool
	terminal [9]bool
	granted  [6]bool
	steps    [6][2][2][2][2]dispatch.Step // claim, deleting, acknowledged, leased, asked by a late request
	room     [maxPods + 1]bool            // by live claims
	chosen   [1 << maxJobs]int8           // by queued jobs, a bit each; -1: none
	changes  map[question]change
	plans    map[sight]planned
	delete   [32][3]bool // by what is seen, and by the grant
}

func decideAll(r rules, budget int) *decisions {
	d := &decisions{rules: r, changes: map[question]change{}, plans: map[sight]planned{}}
	for i, state := range fleet.ClaimStates() {
		for j, event := range claimEvents {
			next, outcome := r.nextClaim(state, event)
			d.claim[i][j] = move{claimIndex[next], outcome}
		}
		d.live[i] = state.Live()
		d.granted[i] = r.retireVerdict(state) == runnerapi.Granted
		for b := range 16 {
			deleting, acknowledged, leased, late := b&1, b>>1&1, b>>2&1, b>>3&1
			c := dispatch.Claim{State: state, Acknowledged: acknowledged == 1, Sequence: 7 + int64(late)}
			if leased == 1 {
				c.LeaseUntil = noon.Add(time.Second)
			}
			d.steps[i][deleting][acknowledged][leased][late] = r.decide(dispatch.Pod{Deleting: deleting == 1}, c, 7, noon)
		}
	}
	for i, state := range fleet.JobStates() {
		for j, event := range jobEvents {
			next, outcome := r.nextJob(state, event)
			d.job[i][j] = move{jobIndex[next], outcome}
		}
		d.terminal[i] = state.Terminal()
	}
	d.admission(budget)
	for v := range d.delete {
		for g := range d.delete[v] {
			d.delete[v][g] = r.mayDelete(shown(v).observed("pod"), grant(g).product("pod")) == nil //nolint:gosec // 32 values, 3 grants
		}
	}
	return d
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// admission chooses the job of a waiting poll: budget is the maximum of live claims.
func (d *decisions) admission(budget int) {
	const account = 1
	lane := dispatch.Lane{LabelKey: "lane", Account: dispatch.Account{ID: account}}
	shape := fleet.Shape{MilliCPU: 1000, MemoryMB: 1000}
	limits := map[int64]fleet.Limits{account: {MilliCPU: 1000 * int64(budget), MemoryMB: 1000 * int64(budget), Jobs: int64(budget)}}
	for live := range d.room {
		n := int64(live)
		usage := map[int64]fleet.Usage{account: {MilliCPU: 1000 * n, MemoryMB: 1000 * n, Jobs: n}}
		admitted := d.rules.admit([]dispatch.Lane{lane}, limits, usage, shape, 1)
		d.room[live] = len(admitted.Allowances) > 0
	}
	for queued := range d.chosen {
		var jobs []dispatch.QueuedJob
		for j := maxJobs - 1; j >= 0; j-- { // the youngest first: the choice is not to depend on it
			if queued>>j&1 == 1 {
				jobs = append(jobs, dispatch.QueuedJob{ID: int64(j), AccountID: account, LabelKey: lane.LabelKey, QueuedAt: noon.Add(time.Duration(j))})
			}
		}
		d.chosen[queued] = -1
		for _, job := range d.rules.choose(jobs, map[int64]int64{account: 1}, map[int64]int64{}, 1, false) {
			d.chosen[queued] = int8(job.ID) //nolint:gosec // at most maxJobs
		}
	}
}
