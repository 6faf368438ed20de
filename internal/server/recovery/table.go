package recovery

// The choices that rows share.
var (
	live     = in(Claimed, Minted, Executing)
	unproven = in(Claimed, Minted) // GitHub has not said that it runs a job
	over     = in(NoRow, Spent, Retired)
	listed   = in(Present, Deleting)
	ended    = in(Terminal, Gone)
	notBusy  = in(RunnerAbsent, RunnerOffline, RunnerIdle)
	away     = in(RunnerAbsent, RunnerOffline)
	yes, no  = in(Yes), in(No)
)

// table is what recovery knows. It is read from above: the first row that matches decides. Rows that end a claim stand
// below those that ask GitHub, those that doubt, and those by which the runner works or may work (RECV-3, EXCL-6).
var table = [...]row{
	// A live claim that must not be touched, or whose pod may be back in a moment.
	{claim: live, leased: yes, do: Wait, why: "a replica is processing it until its lease expires"},            // CLAIM-15
	{claim: live, pod: in(Missing), do: Wait, why: "its pod is not listed, which counts only after some time"}, // RECV-4

	// A live claim: its runner has started, or is about to, so it no longer gets a label (TEN-8). What keeps its node is written beside it
	// (POOL-9).
	{claim: live, acked: yes, pod: in(Present), label: no, do: NoteOwner, kind: MissingLabel,
		why: "its configuration has arrived, and its pod has no owner annotation"},

	// A live claim: GitHub is asked when the pod has ended, when it is being stopped and shows no job (EXCL-8), or when it has looked like
	// this for long.
	{claim: live, pod: ended, at: in(RunnerNotAsked), do: Ask, why: "its pod has finished"},
	{claim: in(Executing), pod: listed, age: in(Young), do: Leave, why: "it is busy"},
	{claim: unproven, pod: in(Present), age: in(Young), do: Wait, why: "it may still start"}, // RECV-2
	{claim: unproven, pod: in(Deleting), runner: in(NotReady, Stopped), age: in(Young), do: Wait, why: "a job has started in it, or it has finished"},
	{claim: in(Minted), pod: in(Deleting), regs: in(AllGone), age: in(Young), do: Wait,
		why: "its registrations were removed: it exits, or shows that a job had started"},
	{claim: unproven, pod: in(Deleting), at: in(RunnerNotAsked), do: Ask, why: "its pod is being deleted, and shows no job"},
	{claim: live, at: in(RunnerNotAsked), do: Ask, why: "it has not reported for a long time"},
	{claim: live, at: in(RunnerUnreadable), do: Leave, doubt: true, why: "GitHub cannot be asked about its runner"},
	{claim: live, says: in(JobUnreadable), do: Leave, doubt: true, why: "GitHub cannot be asked about its job"},

	// A live claim: what GitHub says of its job is recorded first, before the claim is judged.
	{claim: live, says: in(JobCompleted), do: Complete, kind: OrphanCompleted, why: "GitHub reports its job as completed"},
	{claim: live, says: in(JobGone), at: in(RunnerBusy), do: Leave, why: "GitHub has no such job, and shows its runner busy"},
	{claim: live, says: in(JobGone), do: Complete, kind: OrphanCompleted, why: "GitHub no longer has the job"},
	{claim: live, job: in(Bound), says: in(JobHere), do: MarkExecuting, kind: UnstartedExecution,
		why: "GitHub reports that its runner has the job"},
	{claim: live, job: in(Bound), says: in(JobElsewhere), do: MarkExecuting, kind: UnstartedExecution,
		why: "GitHub reports that another runner has its job"},

	// A live claim: it is busy, as far as is known.
	{claim: live, says: in(JobHere), do: Leave, why: "GitHub reports it busy, and fails the job of a lost runner"}, // RECV-3
	{claim: live, at: in(RunnerBusy), do: Leave, why: "GitHub shows its runner busy"},                              // EXCL-6
	{claim: in(Executing), says: in(JobQueued), at: in(RunnerIdle), pod: listed, runner: in(Starting, Ready, NotReady), do: Leave,
		why: "GitHub may be about to assign the job to a runner that is online; a queued job does not prove that the runner is idle"}, // RECV-3

	// A live claim of a pod that is being stopped before its job has begun. Nothing in the pod signals its runner, which
	// exits once it is not registered. GitHub refuses that if it has given the runner a job already (EXCL-8).
	{claim: in(Claimed), regs: in(AllGone), pod: in(Deleting), runner: in(Ready), at: notBusy, do: Release, kind: StoppedPod,
		why: "its pod is being deleted, and nothing was registered for it"},
	{claim: in(Claimed), regs: in(AllGone), pod: in(Deleting), runner: in(Starting), at: away, do: Release, kind: StoppedPod,
		why: "its pod is being deleted before it was ready, and nothing was registered for it"},
	{claim: unproven, regs: in(SomeOpen), pod: in(Deleting), runner: in(Ready), at: notBusy, do: Unregister, kind: StoppedPod,
		why: "its pod is being deleted, and no job has started in it"},
	{claim: unproven, regs: in(SomeOpen), pod: in(Deleting), runner: in(Starting), at: away, do: Unregister, kind: StoppedPod,
		why: "its pod is being deleted before it was ready, and its runner is not online"},

	// A live claim: it does not work.
	{claim: live, pod: in(Gone), do: Release, kind: PodMissingClaim, why: "its pod is gone, and its runner is not busy"},
	{claim: unproven, acked: no, pod: in(Terminal), do: Release, kind: StaleClaim,
		why: "its pod has finished, and its configuration was never acknowledged"},
	{claim: live, pod: in(Terminal), do: Release, kind: OrphanedRunner, why: "its pod has finished, and its runner is not busy"},
	{claim: in(Claimed), poller: in(Polls), runner: in(Ready), pod: in(Present), do: Release, kind: StaleClaim,
		why: "nothing was registered for it for a long time; it is healthy and may get another job"}, // CLAIM-8
	{claim: unproven, acked: no, runner: in(Stopped), do: ReleaseRetire, kind: StaleClaim,
		why: "its configuration was never acknowledged, and its runner has exited"},
	{claim: live, runner: in(Stopped), do: ReleaseRetire, kind: OrphanedRunner, why: "its runner has exited without a report"},
	{claim: unproven, acked: no, at: away, poller: in(Polls), runner: in(Starting, Ready), do: ReleaseRetire, kind: StaleClaim,
		why: "its configuration was never acknowledged, and its poller still requests it"}, // RECV-2
	{claim: in(Claimed), acked: no, at: away, poller: in(Failed), runner: in(Starting, Ready), do: ReleaseRetire, kind: StaleClaim,
		why: "nothing was registered for it for a long time, and its poller has failed"}, // RECV-2

	// A live claim whose runner may have its configuration, and GitHub does not report it as busy. GitHub's state may lag, and it refuses
	// removals by that state only, so the pod's own signs are required too (EXCL-6).
	{claim: unproven, acked: no, poller: in(Failed), regs: in(SomeOpen), at: in(RunnerAbsent), do: ReleaseRetire, kind: StaleClaim,
		why: "its configuration was never acknowledged, its poller has failed, and GitHub has no runner of it"}, // RECV-2
	{claim: unproven, regs: in(SomeOpen), at: in(RunnerAbsent), do: ReleaseRetire, kind: AgentNeverRegistered,
		why: "it has its configuration, and GitHub has no runner of it"},
	{claim: live, regs: in(AllGone), runner: in(Ready), do: ReleaseRetire, kind: UnregisteredRunner,
		why: "its registrations were removed, and no job has started in it since"},
	{claim: live, regs: in(AllGone), do: Leave, doubt: true,
		why: "its registrations were removed, and a job may have started in it before: its runner exits"},
	{claim: in(Executing), at: away, do: ReleaseRetire, kind: OrphanedRunner,
		why: "its runner is not online, and GitHub does not report it busy"},
	{claim: live, runner: in(NotReady), do: Leave, doubt: true, why: "a job has started in it, which GitHub has not reported yet"},
	{claim: live, at: in(RunnerIdle), runner: in(Starting), do: Leave, doubt: true,
		why: "its runner is online, and its pod does not show whether a job has started in it"},
	{claim: live, at: in(RunnerIdle), do: Unregister, kind: IdleRunner, why: "its runner is online and gets no job"},
	{claim: in(Minted), acked: no, poller: in(Failed), do: Unregister, kind: StaleClaim,
		why: "its configuration was never acknowledged, and its poller has failed"}, // RECV-2
	{claim: unproven, do: Unregister, kind: AgentNeverRegistered,
		why: "it has its configuration, and its runner has not come online"},

	// A job that a claim should have, and that none has (RECV-5).
	{claim: over, job: in(Bound), do: Requeue, kind: UnclaimedJob, why: "no claim has it"},
	{claim: over, job: in(Runs), age: in(Young), do: Wait, why: "no runner of this fleet has it; GitHub may report its completion"},
	{claim: over, job: in(Runs), says: in(JobNotAsked), do: Ask, why: "no runner of this fleet has it, and it has not reported for a long time"},
	{claim: over, job: in(Runs), says: in(JobUnreadable), do: Leave, doubt: true, why: "GitHub cannot be asked about it"},
	{claim: over, job: in(Runs), says: in(JobCompleted, JobGone), do: Complete, kind: OrphanCompleted, why: "GitHub reports it as completed"},
	{claim: over, job: in(Runs), says: in(JobQueued), do: Requeue, kind: UnclaimedJob, why: "GitHub reports it as queued"},
	{claim: over, job: in(Runs), do: Leave, why: "it runs on a runner outside of this fleet"},
	{claim: over, job: in(Waits), do: Leave, why: "the queue handles it"},
	{claim: over, job: in(Ended), do: Leave, why: "it has finished"},

	// A pod that has ended or is not seen, without a claim.
	{claim: over, session: yes, do: CloseSession, kind: OrphanedSession, why: "its pod is gone"},
	{claim: over, pod: in(Missing), do: Wait, why: "its pod is not listed, which counts only after some time"}, // RECV-4
	{claim: over, pod: ended, regs: in(SomeOpen), age: in(Young), do: Wait, why: "GitHub removes the registration of a runner that has exited"},
	{claim: over, pod: ended, regs: in(SomeOpen), at: in(RunnerNotAsked), do: Ask, why: "a registration of it is not known to be gone"},
	{claim: over, pod: ended, regs: in(SomeOpen), at: in(RunnerUnreadable), do: Leave, doubt: true, why: "GitHub cannot be asked about its registrations"},
	{claim: over, pod: ended, regs: in(SomeOpen), at: in(RunnerBusy), do: Leave, why: "GitHub fails the job of a lost runner"},
	{claim: over, pod: ended, regs: in(SomeOpen), do: CloseRegistrations, kind: OrphanedRegistration, why: "its job is over, and it still has a registration"},
	{claim: over, pod: ended, do: Leave, why: "it has finished"},
	{claim: over, pod: in(Deleting), do: Leave, why: "it is in progress"},

	// A pod that is there, without a claim.
	{claim: over, proven: yes, do: Leave, why: "the signals name it, and the controller removes it"},
	{claim: over, shows: no, do: Leave, why: "it shows no job: it is idle, or the controller removes it"},
	{claim: over, age: in(Young), do: Wait, why: "it may be about to exit"}, // RECV-1
	{claim: in(NoRow), label: yes, poller: in(Polls), runner: in(Starting, Ready), do: TakeOffLabel, kind: StaleLabel,
		why: "its label says that it is busy, and it polls for a job"}, // CLAIM-6
	{claim: over, at: in(RunnerNotAsked), do: Ask, why: "it shows a job without a claim"},
	{claim: over, at: in(RunnerUnreadable), do: Leave, doubt: true, why: "GitHub cannot be asked about its runner"},
	{claim: over, at: in(RunnerBusy), do: Adopt, kind: UnknownRunner, why: "GitHub reports its runner as busy"}, // CLAIM-13
	{claim: over, at: in(RunnerIdle), runner: in(Starting, NotReady), do: Leave, doubt: true,
		why: "its runner is online, and its pod does not show that no job has started in it"}, // EXCL-4
	{claim: over, at: notBusy, do: RetirePod, kind: OrphanedLabelledPod,
		why: "it shows a job without a claim, and GitHub has no busy runner for it"}, // RECV-1, EXCL-4
}
