package incidents

var aboutRemovals = []Incident{
	{
		ID: "deploy-rewrites-egress", Title: "A deploy of the server cut off jobs that were running", Source: ReferenceFleet,
		Elsewhere: `One network policy selected every runner and also named the server's pods as a peer. Each deploy replaced those
			pods, so the network layer rewrote the egress of every runner, and running jobs lost their connection to GitHub.`,
		Here: `Two policies. The one that selects every runner names nothing that a deploy changes; the one that leads to the server
			selects idle runners only, and the owner label, which is written before the runner starts or never, takes a runner
			out of it.`,
		Rules:   []string{"NET-1", "NET-2", "CLAIM-6"},
		Control: `With one policy for every runner, what a runner mid-job is selected by changes with each rollout of the server.`,
		Shown: join(
			in("test/network", "TestPolicies_NET1_ARolloutChangesNothingForAPodMidJob", "TestPolicies_NET2_ARunnerMidJobDoesNotReachDispatch"),
			in("internal/server/dispatch", "TestAcknowledge_CLAIM6_LabelFollowsTheAcknowledgement"),
		),
	},
	{
		ID: "pool-deletion-cascades", Title: "Renaming or deleting a pool killed its busy runners", Source: ReferenceFleet,
		Elsewhere: `Pods were owned by their pool. When an upgrade dropped or renamed the pool, the garbage collector deleted all of
			them, idle or busy, past every guard of the controller.`,
		Here: `A finalizer holds the pool until its last busy runner has ended by itself, whatever the cascade and however often the
			controller dies meanwhile; the admission policies refuse the garbage collector. The new pool serves the same label at once.`,
		Rules: []string{"POOL-2", "EXCL-2", "EXCL-7", "CLAIM-12"},
		Shown: join(
			in("", "TestPool_POOL2_RenamedWithBusyPodsAndAControllerThatRestarts"),
			in("internal/controller", "TestPool_POOL2_ADeletedPoolWaitsForItsBusyRunners", "TestRunner_EXCL2_TheGarbageCollectorTakesNone"),
		),
	},
	{
		ID: "foreground-deletion", Title: "A foreground deletion of a pool went past its drain", Source: ReferenceFleet,
		Elsewhere: `The finalizer covered deletion in the background. With --cascade=foreground the garbage collector begins with the
			dependents, and took busy pods; that was documented and left so.`,
		Here: `No pod blocks its owner's deletion, and a busy one may not be deleted by the garbage collector at all: foreground,
			background and orphan deletion all end in the same drain. A forced deletion stops no busy runner either.`,
		Rules: []string{"EXCL-2", "EXCL-7", "POOL-2"},
		Shown: in("internal/controller", "TestPool_EXCL2_POOL2_ForegroundDeletionTakesNoRunnerThatWasJustClaimed",
			"TestPool_POOL2_AForcedDeletionKillsNobody"),
	},
	{
		ID: "finalizer-after-the-pods", Title: "Pools that no new controller had seen yet were not protected", Source: ReferenceFleet, Flaw: true,
		Elsewhere: `The guard against cascades existed only once the new controller had reconciled a pool; a change of the pools in the
			same release could come first, so releases had to be ordered by hand.`,
		Here:  `No pod is made for a pool that cannot be held: the finalizer is written before the first pod.`,
		Rules: []string{"POOL-2"},
		Shown: in("internal/controller/pool", "TestReconcile_POOL2_TheFinalizerComesBeforeTheFirstPod", "TestReconcile_POOL2_APoolThatCannotBeHeldGetsNoRunner"),
	},
	{
		ID: "controller-dies-mid-drain", Title: "A controller that was replaced in the middle of a drain", Source: ReferenceFleet, Flaw: true,
		Elsewhere: `What a controller had begun and remembered only in memory (reservations, what was reported) was lost at each of its
			deploys; orphaned finalizers and pods had to be swept by later versions.`,
		Here: `A drain is told by the objects alone: the pool's deletion time, its finalizer, the rows. A new leader goes on from any
			step; one that lost its lease in the middle of a step is met by preconditions.`,
		Rules: []string{"POOL-2", "EXCL-2"},
		Shown: join(
			in("", "TestPool_POOL2_RenamedWithBusyPodsAndAControllerThatRestarts"),
			in("internal/controller", "TestPool_POOL2_ADrainSurvivesTheControllersDeathAtEachStep", "TestPool_RestartCreatesNothingTwice"),
		),
	},
	{
		ID: "node-drain-evicts-jobs", Title: "Draining a node evicted running jobs", Source: ReferenceFleet,
		Elsewhere: `What marked a pod as busy was best effort, so no disruption budget could rest on it, and draining a node for
			maintenance ended the jobs on it.`,
		Here: `A busy runner is never evicted: a budget that is never met refuses it. The controller retires the
			idle runners of a cordoned node through the fence, so the drain is through when the last job has ended.`,
		Rules: []string{"POOL-9", "EXCL-4", "EXCL-7"},
		Shown: join(in("", "TestNode_POOL9_DrainedWithBusyPods"), in("internal/controller", "TestPool_POOL9_KubectlDrainWaitsForTheJob")),
	},
	{
		ID: "unfenced-scale-down", Title: "Scale-down deleted a runner that had just been given a job", Source: ReferenceFleet, Flaw: true,
		Elsewhere: `Idleness was read from a cache and an unconditional delete followed; a claim between the two lost its job. Only rolls
			asked the server first.`,
		Here: `Every removal asks the server, whose answer is an insert into the same primary key as a claim. Of the two exactly one wins,
			and what is deleted is deleted by UID and resource version.`,
		Rules: []string{"EXCL-1", "EXCL-2", "EXCL-4"},
		Shown: join(
			in("internal/server/dispatch", "TestRetire_EXCL1_ExactlyOneOfClaimAndRetireWins"),
			in("internal/controller", "TestPool_EXCL2_AClaimedPodIsNotScaledDown"),
			in("internal/plan/lifecycle", "TestHistory_EXCL4_NoPodWithAJobIsDeleted"),
		),
	},
	{
		ID: "scale-down-takes-the-first", Title: "Scale-down took whichever machine came first, busy or not", Source: Peer, Flaw: true,
		Elsewhere: `To shrink, the first entries of a map were stopped. Whether one of them ran a job was not asked.`,
		Here: `Victims are chosen by a pure function: old template first, then booting, then idle, those first whose nodes are nearest to being
			empty, busy never, in no map's order. Then the fence is asked.`,
		Rules: []string{"EXCL-2", "EXCL-4", "SCALE-4"},
		Shown: in("internal/plan/lifecycle", "TestMakePlan_EXCL2_EXCL4_OnlyEndedOrGrantedAreDeletedAndBusyIsNeverAVictim", "TestMakePlan_IsDeterministic"),
	},
	{
		ID: "restart-kills-machines", Title: "Restarting the control plane killed the machines", Source: Peer, Flaw: true,
		Elsewhere: `A daemon that was restarted or upgraded began by clearing away every machine it found.`,
		Here:      `Pods outlive the server, the controller and the node agent; each finds again what runs. Nobody removes what it did not make.`,
		Rules:     []string{"NODE-3", "NODE-7", "POOL-2"},
		Shown:     in("internal/node", "TestRestart_NODE3_ANewAgentAdoptsWhatRuns", "TestRestart_NODE3_KillNineOfTheAgentStopsNothing"),
	},
	{
		ID: "upgrade-kills-the-process-group", Title: "Upgrading the node agent killed the machines it had started", Source: ReferenceFleet,
		Elsewhere: `Virtual machines were children in the agent's own process group, so that whatever stopped the agent stopped them.`,
		Here: `What runs for a pod is in sessions of its own. A node agent that is killed stops nothing, and the next one knows the exit codes of
			what ended meanwhile.`,
		Rules: []string{"NODE-3"},
		Shown: join(
			in("internal/node/sandbox/process", "TestAgent_NODE3_KillNineStopsNothingAndTheExitCodeIsKnown"),
			in("internal/node", "TestRestart_NODE3_KillNineOfTheAgentStopsNothing"),
		),
	},
	{
		ID: "github-removes-a-busy-runner", Title: "GitHub removed a runner that was running a job", Source: Peer,
		Report: Report{URL: "https://github.com/github-aws-runners/terraform-aws-github-runner/pull/5228", Date: "2026-07-28"},
		Elsewhere: `The list said that a runner was not busy, for up to a minute after it had begun, and removing it succeeded all the same.
			Its pod was deleted then, under the job.`,
		Here: `The pod's own sign comes first: once its container idle has exited a job has started, and no answer of
			GitHub outweighs that. Recovery reads it past every cache right before it takes anything, and once more a minute after
			a removal, before the claim ends. A grant is necessary and never sufficient.`,
		Rules: []string{"EXCL-4", "EXCL-6"},
		Shown: join(
			in("internal/plan/lifecycle", "TestMayDelete_EXCL2_EXCL4_NeedsAGrantAndNoSignOfWork"),
			in("internal/controller/pool", "TestObserve_EXCL4_AnyOneSignOfWorkIsBusy"),
			in("internal/server/recovery", "TestPass_EXCL6_RECV3_ARunnerThatGitHubShowsIdleKeepsItsJob", "TestPass_EXCL6_ThePodIsReadAgainBeforeAnythingIsDone",
				"TestPass_EXCL6_ARemovalThatRacesWithAnAssignmentCostsNoPod"),
		),
	},
}
