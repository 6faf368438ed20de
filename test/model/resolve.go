package model

import (
	"fmt"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// question is what dispatch.Resolve is asked: an event, and the rows that it can touch.
type question struct {
	kind               eventKind
	job, reg           uint8 // reg 0: the event names no runner
	state              uint8
	byRunner, byJob    uint8 // 1 + pod
	runnerSt, runnerOf uint8
	jobSt              uint8
}

type eventKind uint8

const (
	eventQueued eventKind = iota
	eventStarted
	eventCompleted
	eventCancelled
)

var eventKinds = [...]fleet.JobEvent{
	eventQueued: fleet.JobEventQueued, eventStarted: fleet.JobEventStarted, eventCompleted: fleet.JobEventCompleted,
	eventCancelled: fleet.JobEventCancelled,
}

// change is a dispatch.Change: pods are 1 + pod, 0 for none.
type change struct {
	move                          bool
	state                         uint8
	execute, spend, unbind, adopt uint8
	requeue                       uint8 // 1 + job
}

func uidOf(p int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", p) }

func nameOf(reg uint8) string {
	if reg == 0 {
		return ""
	}
	name, err := runnerpod.RunnerName(uidOf(podOf(reg)), int64(reg))
	if err != nil {
		panic(err) // the UID is ours
	}
	return name
}

var podOfUID = map[string]uint8{uidOf(0): 1, uidOf(1): 2}

func (d *decisions) resolved(q question) change {
	c, known := d.changes[q]
	if known {
		return c
	}
	const account = 1
	facts := dispatch.Facts{State: fleet.JobStates()[q.state]}
	if q.byRunner != 0 {
		facts.ByRunner = &dispatch.ClaimFacts{
			PodUID: uidOf(int(q.byRunner - 1)), AccountID: account, State: fleet.ClaimStates()[q.runnerSt], JobID: int64(q.runnerOf),
		}
	}
	if q.byJob != 0 {
		facts.ByJob = &dispatch.ClaimFacts{
			PodUID: uidOf(int(q.byJob - 1)), AccountID: account, State: fleet.ClaimStates()[q.jobSt], JobID: int64(q.job),
		}
	}
	got := d.rules.resolve(dispatch.JobEvent{
		Kind: eventKinds[q.kind], Account: dispatch.Account{ID: account}, JobID: int64(q.job), RunnerName: nameOf(q.reg),
	}, facts)
	c = change{
		move: got.Outcome == fleet.Move, state: jobIndex[got.State],
		execute: podOfUID[got.Execute], spend: podOfUID[got.Spend], unbind: podOfUID[got.Unbind], adopt: podOfUID[got.Adopt],
		requeue: uint8(got.Requeue), //nolint:gosec // at most maxJobs
	}
	d.changes[q] = c
	return c
}
