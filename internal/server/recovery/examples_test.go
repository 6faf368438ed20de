package recovery

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The rows of the contract, one evidence each: counters and kill switches use the kind.
func TestJudge_RECV9_Examples(t *testing.T) {
	minted := Evidence{Claim: Minted, Age: Old, Job: Bound, Runner: Ready, Registrations: SomeOpen, RunnerAtGitHub: RunnerOffline, JobAtGitHub: JobQueued}
	arrived := Evidence{
		Claim: Minted, Acked: Yes, Age: Old, Job: Bound, Poller: Delivered, Runner: Ready, Label: Yes, Registrations: SomeOpen,
		RunnerAtGitHub: RunnerOffline, JobAtGitHub: JobQueued,
	}
	works := arrived
	works.Claim, works.Job, works.Runner = Executing, Runs, NotReady
	unregistered := arrived
	unregistered.Registrations, unregistered.RunnerAtGitHub = AllGone, RunnerAbsent
	leak := Evidence{Age: Old, Label: Yes, Poller: Failed, Runner: Ready}
	with := func(e Evidence, change func(*Evidence)) Evidence {
		change(&e)
		return e
	}
	at := func(e Evidence, runner RunnerSays, job JobSays) Evidence {
		e.RunnerAtGitHub, e.JobAtGitHub = runner, job
		return e
	}
	in := func(e Evidence, pod PodIs) Evidence {
		e.Pod, e.Poller, e.Runner, e.Label = pod, Polls, Starting, No
		return e
	}
	alone := Evidence{Pod: Gone, Age: Old, Job: Runs}

	for name, c := range map[string]struct {
		e    Evidence
		do   Action
		kind Kind
	}{
		"minted, never acknowledged":          {minted, ReleaseRetire, StaleClaim},
		"claimed, and the pod is healthy":     {with(minted, func(e *Evidence) { e.Claim = Claimed }), Release, StaleClaim},
		"claimed, and the poller has crashed": {with(minted, func(e *Evidence) { e.Claim, e.Poller = Claimed, Failed }), ReleaseRetire, StaleClaim},
		"unacknowledged, and the pod ended":   {in(minted, Terminal), Release, StaleClaim},
		"just stopped, its job waits":         {with(in(arrived, Terminal), func(e *Evidence) { e.Age = Young }), Release, OrphanedRunner},
		"executing, stopped, its job waits":   {in(works, Terminal), Release, OrphanedRunner},
		"just stopped: GitHub is asked":       {at(with(in(works, Terminal), func(e *Evidence) { e.Age = Young }), RunnerNotAsked, JobNotAsked), Ask, None},
		"executing, offline, its job waits":   {works, ReleaseRetire, OrphanedRunner},
		"the runner's container ended alone":  {with(arrived, func(e *Evidence) { e.Runner = Stopped }), ReleaseRetire, OrphanedRunner},
		"never online":                        {arrived, Unregister, AgentNeverRegistered},
		"never online, and unheard":           {with(arrived, func(e *Evidence) { e.Acked, e.Label = No, No }), Unregister, AgentNeverRegistered},
		"never online, a job has started":     {with(arrived, func(e *Evidence) { e.Runner = NotReady }), Leave, None},
		"unknown to GitHub, a job has begun":  {at(with(arrived, func(e *Evidence) { e.Runner = NotReady }), RunnerAbsent, JobQueued), ReleaseRetire, AgentNeverRegistered},
		"online and idle":                     {at(arrived, RunnerIdle, JobQueued), Unregister, IdleRunner},
		"idle, and a job has started":         {at(with(arrived, func(e *Evidence) { e.Runner = NotReady }), RunnerIdle, JobQueued), Leave, None},
		"idle, and its pod does not say":      {at(with(arrived, func(e *Evidence) { e.Runner = Starting }), RunnerIdle, JobQueued), Leave, None},
		"idle for a job that went elsewhere":  {with(at(works, RunnerIdle, JobElsewhere), func(e *Evidence) { e.Runner = Ready }), Unregister, IdleRunner},
		"unregistered, and nothing started":   {unregistered, ReleaseRetire, UnregisteredRunner},
		"unregistered, and a job had started": {with(unregistered, func(e *Evidence) { e.Runner = NotReady }), Leave, None},
		"unregistered a moment ago":           {with(unregistered, func(e *Evidence) { e.Age = Young }), Wait, None},
		"its poller failed, unacknowledged":   {with(minted, func(e *Evidence) { e.Poller = Failed }), Unregister, StaleClaim},
		"busy, whatever else is said":         {at(arrived, RunnerBusy, JobQueued), Leave, None},
		"executing and idle, its job waits":   {at(works, RunnerIdle, JobQueued), Leave, None},
		"its job ended":                       {at(works, RunnerAbsent, JobCompleted), Complete, OrphanCompleted},
		"its run was deleted":                 {at(works, RunnerAbsent, JobGone), Complete, OrphanCompleted},
		"its job ended, nobody has a claim":   {at(alone, RunnerNotAsked, JobCompleted), Complete, OrphanCompleted},
		"it waits, nobody has a claim":        {at(alone, RunnerNotAsked, JobQueued), Requeue, UnclaimedJob},
		"bound, and nobody has a claim":       {with(alone, func(e *Evidence) { e.Job, e.Age = Bound, Young }), Requeue, UnclaimedJob},
		"the pod is gone":                     {in(arrived, Gone), Release, PodMissingClaim},
		"the pod is not listed now":           {in(arrived, Missing), Wait, None},
		"in progress here, unheard":           {at(arrived, RunnerBusy, JobHere), MarkExecuting, UnstartedExecution},
		"in progress elsewhere, unheard":      {at(arrived, RunnerIdle, JobElsewhere), MarkExecuting, UnstartedExecution},
		"a stamped pod without a claim":       {at(leak, RunnerAbsent, JobNotAsked), RetirePod, OrphanedLabelledPod},
		"a crashed poller, nobody's":          {at(with(leak, func(e *Evidence) { e.Label = No }), RunnerAbsent, JobNotAsked), RetirePod, OrphanedLabelledPod},
		"retired, then it hung":               {at(Evidence{Claim: Retired, Age: Old, Poller: Delivered, Runner: NotReady}, RunnerAbsent, JobNotAsked), RetirePod, OrphanedLabelledPod},
		"retired, no longer ready":            {at(Evidence{Claim: Retired, Age: Old, Runner: NotReady}, RunnerOffline, JobNotAsked), RetirePod, OrphanedLabelledPod},
		"spent without a proof":               {at(Evidence{Claim: Spent, Age: Old}, RunnerAbsent, JobNotAsked), RetirePod, OrphanedLabelledPod},
		"a leak in its grace":                 {with(leak, func(e *Evidence) { e.Age = Young }), Wait, None},
		"a leak whose runner works":           {at(leak, RunnerBusy, JobNotAsked), Adopt, UnknownRunner},
		"a leak, GitHub is silent":            {at(leak, RunnerUnreadable, JobNotAsked), Leave, None},
		"a label, and the poller asks":        {Evidence{Age: Old, Label: Yes, Runner: Ready}, TakeOffLabel, StaleLabel},
		"acknowledged, no label":              {with(arrived, func(e *Evidence) { e.Label = No }), NoteOwner, MissingLabel},
		"a session without a pod":             {Evidence{Pod: Gone, Session: Yes}, CloseSession, OrphanedSession},
		"a registration without a pod":        {Evidence{Pod: Gone, Age: Old, Registrations: SomeOpen, RunnerAtGitHub: RunnerOffline}, CloseRegistrations, OrphanedRegistration},
		"idle":                                {Evidence{Runner: Ready, Age: Old}, Leave, None},
		"nobody's, idle, and a job started":   {at(with(leak, func(e *Evidence) { e.Runner = NotReady }), RunnerIdle, JobNotAsked), Leave, None},
		"busy":                                {with(works, func(e *Evidence) { e.Age = Young }), Leave, None},
	} {
		t.Run(name, func(t *testing.T) {
			require.True(t, c.e.possible(), c.e)
			v := Judge(c.e)
			require.Equal(t, [2]string{c.do.String(), string(c.kind)}, [2]string{v.Do.String(), string(v.Kind)}, "%s\n%s", v.Why, c.e)
		})
	}
}
