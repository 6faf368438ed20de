package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

var (
	podNames = [maxPods]string{"pod A", "pod B"}
	jobNames = [maxJobs]string{"job 1", "job 2"}
)

// trace tells in words how a rule is broken: every step from the first state, one to a line.
func (w *walk) trace(rule string) string {
	var path []uint32
	for n := w.firstAt[rule]; n != 0; n = w.parent[n] {
		path = append(path, n)
	}
	slices.Reverse(path)
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", rule)
	swapped := false
	at := w.states[0]
	line := 0
	tell := func(e *step) {
		line++
		fmt.Fprintf(&b, "%4d. %s\n", line, e.words(swapped))
		swapped = swapped != e.swapped
	}
	for _, n := range path {
		steps := w.m.next(&at)
		i := slices.IndexFunc(steps, func(e step) bool { return e.to == w.states[n] })
		tell(&steps[i])
		at = w.states[n]
	}
	if e, ok := w.byStep[rule]; ok {
		tell(&e)
	}
	for p := range w.m.pods {
		b.WriteString("      " + at.podWords(p, swapped) + "\n")
	}
	for j := range w.m.jobs {
		fmt.Fprintf(&b, "      %s: row %s, at GitHub %s\n", jobNames[j], word(fleet.JobStates()[at.db.job[j]]), jobWords[at.job[j]])
	}
	return b.String()
}

// words of a step; swapped says that the pods have changed names since the first state.
func (e *step) words(swapped bool) string {
	words := e.name
	if e.pod >= 0 {
		words += " " + podNames[trueName(int(e.pod), swapped)]
	}
	switch {
	case e.job >= 0 && e.reg != 0:
		words += fmt.Sprintf(" (%s, runner %d)", jobNames[e.job], int(e.reg-1)%mints+1)
	case e.job >= 0:
		words += " (" + jobNames[e.job] + ")"
	case e.reg != 0:
		words += fmt.Sprintf(" (runner %d)", int(e.reg-1)%mints+1)
	}
	return words
}

func trueName(p int, swapped bool) int {
	if swapped {
		return 1 - p
	}
	return p
}

var (
	lifeWords   = [...]string{up: "up", deleted: "deleted by the fleet", dropped: "deleted by others", gone: "gone"}
	pollerWords = [...]string{
		pollIdle: "idle", pollWaiting: "waiting", pollStaged: "staged", pollDone: "exited 0", pollDismissed: "dismissed",
		pollFailed: "failed", pollFailedStaged: "failed after staging",
	}
	runnerWords = [...]string{runWaiting: "waiting", runConfigured: "configured", runOnline: "online", runExited: "exited", runHung: "hung"}
	regWords    = [...]string{
		regNone: "none", regPending: "pending", regOffline: "offline", regOnline: "online", regBusy: "busy", regGone: "gone",
		regShadow: "removed, and works on",
	}
	rowWords = [...]string{rowNone: "no row", rowOpen: "open", rowGone: "gone"}
	jobWords = [...]string{ghQueued: "queued", ghRunning: "running", ghCompleted: "completed", ghCancelled: "cancelled"}
)

func word[T ~string](w T) string {
	if w == "" {
		return "none"
	}
	return string(w)
}

func (s *state) podWords(p int, swapped bool) string {
	q, c := &s.pod[p], &s.db.claim[p]
	var regs []string
	s.eachReg(p, func(reg uint8) bool {
		regs = append(regs, regWords[s.reg[reg-1]]+"/"+rowWords[s.db.reg[reg-1]])
		return true
	})
	ack := ""
	if c.ack == 1 {
		ack = " acknowledged"
	}
	return fmt.Sprintf("%s: %s, poller %s, runner %s, claim %s%s (job %d), registrations at GitHub/row %s",
		podNames[trueName(p, swapped)], lifeWords[q.life], pollerWords[q.poller], runnerWords[q.runner],
		word(fleet.ClaimStates()[c.st]), ack, c.job, strings.Join(regs, " "))
}
