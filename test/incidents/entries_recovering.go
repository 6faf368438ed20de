package incidents

var aboutRecovering = []Incident{
	{
		ID: "agent-never-registers", Title: "A runner that never registered kept its pod for ever", Source: ReferenceFleet,
		Elsewhere: `The recovery of rows released the claim and queued the job again, and knew nothing of the pod, which went on with its label
			and its memory.`,
		Here: `Recovery removes the registration, ends the claim with the proof, queues the job again and has the controller remove the
			pod and its ServiceAccount.`,
		Rules: []string{"RECV-1", "EXCL-6"},
		Shown: join(in("", "TestRecovery_RECV1_RECV5_PodsThatWaitForNothing"), in("internal/server/recovery", "TestPass_RECV1_AnAgentThatNeverRegistersGoes")),
	},
	{
		ID: "unstamped-zombie", Title: "A leaked pod that was un-stamped would have looked warm", Source: ReferenceFleet, Flaw: true,
		Elsewhere: `Taking the label off a pod whose agent hangs makes it look available: nothing replaces it and no job reaches it. So leaked
			pods were deleted instead, which the server had no right to do until it was granted.`,
		Here: `A pod that still asks for work, with a runner that waits, is healthy: a label that lies is taken off it, and it serves again. Any
			other leak is retired in the ledger with a proof, and the controller deletes it with its ServiceAccount. The server has no right to
			delete anything in Kubernetes.`,
		Rules: []string{"RECV-1", "EXCL-2", "NET-8"},
		Shown: join(
			in("", "TestRecovery_RECV1_RECV5_PodsThatWaitForNothing"),
			in("internal/server/recovery", "TestPass_RECV1_AStampedPodWithoutAClaimGoes", "TestPass_RECV1_OnlyTheOrphansOfAMixedBatchGo", "TestPass_RECV1_PodsAreListedBeforeClaims"),
			in("test/architecture", "TestDeletions_EXCL2_NobodyElseDeletesInKubernetes"),
		),
	},
	{
		ID: "service-account-left-behind", Title: "Deleting a pod past the reconciler left its ServiceAccount", Source: ReferenceFleet,
		Elsewhere: `The account of a pod was removed when the pod was seen to have ended by itself; of one that was deleted otherwise it stayed.`,
		Here:      `Pod and account share a name and go together. An account without a pod is found by itself, and a failure of either is retried.`,
		Rules:     []string{"POOL-1"},
		Shown: join(
			in("internal/controller", "TestPool_POOL1_ServiceAccountOfAVanishedPodIsRemoved"),
			in("internal/controller/pool", "TestRemovals_POOL1_AFailureOfEitherIsRetriedAndNeverForgotten", "TestRemovals_POOL1_AServiceAccountWithoutAPodIsFound"),
		),
	},
	{
		ID: "stopped-report-misses-the-displaced", Title: "The report of a pod's end did nothing for displaced jobs", Source: ReferenceFleet,
		Elsewhere: `What followed from a pod's end hung on the deletion of its claim. A job that another runner had displaced from it had no
			claim there any more: exactly the jobs that needed help were passed over.`,
		Here:  `A displaced job is queued again when it is displaced, so the pod's end has nothing left to do for it.`,
		Rules: []string{"CLAIM-9", "RECV-5"},
		Shown: join(in("", "TestJob_CLAIM9_GivenToAnotherRunner"), in("internal/server/recovery", "TestCheckPod_RECV4_AReportedEndIsBelieved", "TestCheckPod_RECV3_AnOrphanedRunnerIsReleasedAtOnce")),
	},
	{
		ID: "late-recovery-takes-the-replacement", Title: "A recovery that came late released its successor's claim", Source: ReferenceFleet,
		Elsewhere: `A check that had been scheduled for one run of a job found the job again on another pod, and released that.`,
		Here: `A verdict is about one pod's row in one generation. Whoever acts takes a new generation first, and what has changed since
			the evidence was gathered makes it void.`,
		Rules: []string{"CLAIM-15", "RECV-2"},
		Shown: join(in("internal/server/recovery", "TestCheckPod_CLAIM15_ALateCheckTouchesNoOtherClaim"), in("internal/server/dispatch", "TestRetireLost_CLAIM15_StaleGenerationsReleaseNothing")),
	},
	{
		ID: "cancelled-while-queued", Title: "A job that was cancelled while it was queued left its runner over", Source: ReferenceFleet,
		Elsewhere: `The event of a job that no runner ever had names none, so nothing was released: the pod idled, charged to its account, until a
			watchdog in the guest gave up.`,
		Here:  `The claim stays a slot and takes the next job of its lane. Without one the runner is idle, and recovery frees it.`,
		Rules: []string{"CLAIM-8", "RECV-5"},
		Shown: join(in("", "TestRecovery_RECV1_RECV5_PodsThatWaitForNothing"), in("internal/server/recovery", "TestPass_RECV5_AnIdleRunnerGoes"), in("internal/server/dispatch", "TestRecordJob_CLAIM8_ReleaseIsByExecutor")),
	},
	{
		ID: "empty-list-means-gone", Title: "An empty or failed list was taken for a world without pods", Source: ReferenceFleet, Flaw: true,
		Elsewhere: `Recovery that compares rows with pods releases everything when the list of pods is wrong. It was built to stop at an empty or
			failed list, to wait for an absence to persist, and to release few at a time.`,
		Here: `A row is forgotten only after an uncached read that finds no such UID. Whatever cannot be asked is unknown, and unknown
			removes nothing.`,
		Rules: []string{"RECV-4", "EXCL-1", "EXCL-3"},
		Shown: join(
			in("internal/server/recovery", "TestPass_RECV4_AnEmptyOrFailedListAbortsThePass", "TestPass_RECV4_AMissingPodIsGoneWhenItsAbsenceLasts", "TestPass_RECV6_CapsHold"),
			in("internal/server/dispatch", "TestForget_EXCL1_RowLivesUntilTheUIDIsProvenGone"),
			in("internal/plan/scaling", "TestPlan_POOL8_AnyReadErrorLeavesEveryNumber"),
		),
	},
	{
		ID: "cron-leader-without-jobs", Title: "The leader of all periodic work had none to do", Source: ReferenceFleet,
		Elsewhere: `A pod of another role, whose table of periodic jobs was empty, was elected leader. Every periodic job of the installation
			stood still.`,
		Here: `No replica is in charge of the schedule. Each queues what is due of its own list, by the database's clock, and each replica that knows a pass
			takes it. A leader that knows none halts none.`,
		Shown: in("internal/server/periodic", "TestRun_ALeaderWithAnEmptyListHaltsNothing", "TestRun_OneAtATimeOnAnyReplica", "TestRun_AKilledReplicaIsSucceededWithinTheBound"),
	},
	{
		ID: "log-fetch-for-ever", Title: "Logs of jobs that never ran were fetched for ever", Source: ReferenceFleet,
		Elsewhere: `GitHub has no log of a job that was never executed, and answers 404 each time it is asked.`,
		Here:      `Logs of jobs are not fetched; GitHub keeps them.`,
		Missing:   `Nothing here fetches logs of jobs.`,
	},
	{
		ID: "two-leaders", Title: "A lock by name made two leaders", Source: Peer, Flaw: true,
		Elsewhere: `A named lock of the database belonged to a connection. When that was lost, a second process began its work while the first went
			on with its own.`,
		Here: `No work is right only because one process does it: every write is a compare-and-set, every deletion has preconditions.
			Leadership saves work, no more.`,
		Rules: []string{"CLAIM-15", "EXCL-2"},
		Shown: join(in("internal/controller", "TestController_OneLeaderAtATime"), in("internal/server/periodic", "TestRun_AHolderThatLosesTheLockEnds", "TestRun_AHolderThatIsSilentLosesTheLockAfterTheLease")),
	},
	{
		ID: "unclosed-sessions", Title: "A fifth of all sessions were never closed", Source: ReferenceFleet,
		Elsewhere: `A pod was deleted before its end was reported; the report then found nothing that could be told.`,
		Here:      `The end is reported first and the pod deleted afterwards; without the report it stays.`,
		Rules:     []string{"POOL-4"},
		Shown: join(
			in("internal/controller", "TestPool_POOL4_TheReportedEndPrecedesDeletionAndReplacementWaitsForNobody"),
			in("internal/controller/pool", "TestRemovals_POOL4_NoReportNoDeletion"),
		),
	},
	{
		ID: "restored-backup", Title: "A database restored from yesterday knew no busy runner", Source: ReferenceFleet, Flaw: true,
		Elsewhere: `Rows were the only protection of a pod whose label had not been written, and every pod without a row was idle.`,
		Here: `A grant is necessary and never sufficient: any sign of work on the pod vetoes it. Restored rows are rebuilt before anything is
			handed out or granted.`,
		Rules: []string{"EXCL-4", "CLAIM-17"},
		Shown: join(in("test/restore", "TestRestore_CLAIM17_UnderRunningServers", "TestRestore_CLAIM17_AllStoppedAndStartedAgain", "TestRestore_CLAIM17_AnEmptyDatabase"), in("internal/plan/lifecycle", "TestHistory_EXCL4_LostRowsDeleteNoPodWithAJob"),
			in("internal/server/recovery", "TestCheckPod_EXCL1_EXCL8_AGrantThatAFailoverLostCostsNoJob")),
	},
}
