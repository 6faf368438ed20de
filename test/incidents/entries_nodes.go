package incidents

var aboutNodes = []Incident{
	{
		ID: "node-that-fails-every-sandbox", Title: "A node that failed every sandbox attracted all replacements", Source: ReferenceFleet,
		Elsewhere: `A mismatch of cgroup drivers leaked some 130,000 cgroups on one node over 85 days. It stayed Ready, failed every start, and
			being the emptiest was preferred for each replacement, whose dead pods held the fleet's ceiling of starts. 160 runners were asked
			for, 5 ran, 111 jobs waited for five and a half hours, and no alert fired.`,
		Here: `Starts are limited for each node, so that a node on which they hang takes up its own share only. What does not start in time is
			retired through the fence, the pool slows down on starts that fail and says why, and the other nodes go on. Nothing steers
			runners away from such a node: where the scheduler packs nodes instead of spreading, a short time-out is what helps.`,
		Control:    `What hangs on the bad node is as much as a ceiling for the whole fleet would allow: nothing could be started beside it.`,
		Rules:      []string{"POOL-6"},
		Shown:      join(in("", "TestNode_POOL6_OneThatFailsEverySandbox"), in("internal/controller/pool", "TestAdmitStarts", "TestPodSeen_StartsThatFailSlowThePoolDown")),
		Impossible: `The leak itself: it needs a kernel, a kubelet and a microVM runtime, and 85 days. Its conditions are brought about.`,
	},
	{
		ID: "terminal-and-deleting", Title: "504 ended pods hung in their deletion", Source: ReferenceFleet,
		Elsewhere: `The node agent evaluated the phase first and did nothing for pods that had ended. So one that had ended and was being
			deleted kept its finalizer. The controller skipped pods that were being deleted, and reported no problem.`,
		Here: `Deletion comes before the phase. A pod that has ended and is being deleted loses its finalizer and goes; one that does not go in
			time is named by the pool's conditions.`,
		Rules: []string{"NODE-1", "POOL-10"},
		Shown: join(in("internal/node", "TestDelete_NODE1_APodThatHasSucceededGoes", "TestDecide_NODE1_ASucceededPodThatIsDeletedLosesItsFinalizer"), in("internal/controller", "TestPool_POOL10_APodThatDoesNotGoIsSeen")),
	},
	{
		ID: "immortal-pods-of-gone-hosts", Title: "Pods of hosts that had been given back could not be deleted", Source: ReferenceFleet,
		Elsewhere: `The agent that would have taken its finalizer off was gone with its host. Pools hung in their deletion, and releases with them.`,
		Here: `Only an uncached "not found" makes a node absent. Then our own finalizer is taken off and no other; a runner with a sign of work
			goes only when GitHub confirms that none of its registrations exists any more.`,
		Rules: []string{"POOL-7", "EXCL-6"},
		Shown: join(
			in("internal/controller", "TestPool_POOL7_RunnersOfAVanishedNode", "TestPool_POOL7_ATerminatingPoolIsFreedOfItsLostRunners", "TestPool_POOL7_NODE8_DoubtAndARegisteredNodeChangeNothing"),
			in("internal/controller/pool", "TestRemove_POOL7_OfALostPodOnlyOurFinalizerGoes"),
		),
	},
	{
		ID: "node-stuck-unknown", Title: "A healthy node stayed Unknown after a patch of its metadata", Source: ReferenceFleet,
		Elsewhere: `The answer to a patch carried the server's older status, which was then written back over the agent's Ready.`,
		Here:      `The agent writes what it knows and nothing it has read; the lease has a client of its own and is never behind a slow call.`,
		Rules:     []string{"NODE-6", "NODE-8"},
		Shown:     in("internal/node", "TestNode_IsRegisteredAsAKubeletWould", "TestNode_NODE8_ADeletedNodeIsRegisteredAgainAndNothingStops"),
	},
	{
		ID: "one-pod-blocks-the-other", Title: "One pod's slow start held up the other's end", Source: ReferenceFleet, Flaw: true,
		Elsewhere: `One worker did everything of a host: a pull of twenty minutes, or an agent in the guest that did not answer, delayed deletions and the
			heartbeat.`,
		Here:  `Each pod has its own worker, and the lease has one more.`,
		Rules: []string{"NODE-6"},
		Shown: join(in("internal/node", "TestPods_NODE6_AHangDelaysNeitherOtherPodsNorTheLease"), in("internal/node/sandbox/tart", "TestPods_NODE6_DoNotWaitForEachOther")),
	},
	{
		ID: "unknown-exit-is-success", Title: "An exit that was not observed was recorded as success", Source: ReferenceFleet, Flaw: true,
		Elsewhere: `A machine that was gone without a word looked like one that had finished: exit code 0.`,
		Here:      `An exit that was not observed is a failure, and is reported as one.`,
		Rules:     []string{"NODE-4"},
		Shown:     join(in("internal/node", "TestRestart_NODE4_WhatNobodySawEndHasFailed"), in("internal/node/sandbox/tart", "TestExit_NODE4_UnknownIsNoSuccess")),
	},
	{
		ID: "running-with-a-dead-poller", Title: "A guest was Running and its poller was dead", Source: ReferenceFleet,
		Elsewhere: `A Mac pod was as ready as its machine: nothing showed that what asks for work had died. Heartbeats were added, and a missing one
			was not to mean death.`,
		Here: `The poller is a container of its own whose state is seen. It asks for work only while the runner's container waits, and one that
			ends without an answer ends the pod, which is replaced.`,
		Rules: []string{"POOL-4", "CLAIM-6"},
		Shown: join(
			in("internal/agent", "TestPoll_AsksOnlyWhileTheRunnersContainerWaits", "TestPoll_StagingThatFailsEndsThePod"),
			in("internal/server/cluster", "TestToPod_CLAIM6_OnlyAPollerThatExited0HasAcknowledged"),
			in("internal/node/sandbox/tart", "TestGuest_NODE3_SilenceAloneEndsNoMachine"),
		),
	},
	{
		ID: "api-outage-stops-machines", Title: "An outage of the API server, and a node object that was deleted", Source: ReferenceFleet, Flaw: true,
		Elsewhere: `Nodes that are silent for long enough lose their pods to the garbage collector, jobs included.`,
		Here:      `However long the outage, running jobs continue. A node that is deleted registers again before the garbage collector acts.`,
		Rules:     []string{"NODE-8", "EXCL-7"},
		Shown: join(
			in("internal/node", "TestNode_NODE8_ADeletedNodeIsRegisteredAgainAndNothingStops"),
			in("internal/controller", "TestBusyRunner_EXCL7_ThePodGarbageCollectorLeavesItAlone"),
		),
	},
	{
		ID: "collector-deletes-foreign-machines", Title: "A collector of leftovers deleted machines that were not its own", Source: ReferenceFleet,
		Elsewhere: `Whatever it did not recognise was deleted; on a host that builds images it took machines in the middle of an upload.`,
		Here:      `Only what carries the agent's own mark is ever removed.`,
		Rules:     []string{"NODE-7"},
		Shown: join(in("internal/node/sandbox/process", "TestConformance", "TestCleanupEndsEverythingAndNothingElse"),
			in("internal/node/sandbox/tart", "TestOwnership_NODE7_NeedsMarkAndRecord", "TestImages_NODE7_OnlyWhatWasFetchedIsRemoved")),
	},
	{
		ID: "idle-runners-hold-nodes", Title: "Idle runners kept nodes that nothing else needed", Source: Peer,
		Report: Report{URL: "https://github.com/actions/actions-runner-controller/issues/299", Date: "2021-02-08"},
		Elsewhere: `A deployment of runners was scaled from one to ten, and back. The one that was left was on the second node, and the cluster autoscaler
			removed none: its runners were owned by a kind that the autoscaler does not know, so it moved none of them.`,
		Here: `A pool that shrinks takes runners from the nodes that have the fewest, so that nodes become empty. An idle runner says that it may be
			moved, no disruption budget covers it, and it leaves a node through the fence as soon as Karpenter, the cluster autoscaler or
			another tool puts its taint on it. A busy one says the contrary, in the write that puts its owner on it.`,
		Rules: []string{"SCALE-5", "POOL-9", "EXCL-4"},
		Shown: join(
			in("internal/controller", "TestPool_R5_EXCL4_ANodeThatAToolTakesAwayIsLeftByIdleRunnersAlone", "TestIdleRunner_R5_POOL9_HoldsNoNode",
				"TestPool_SCALE5_R5_AShrinkingPoolLeavesTheEmptiestNode"),
			in("internal/plan/lifecycle", "TestMakePlan_SCALE5_R5_LeavesAsManyNodesAsAnyChoice"),
			in("internal/server/cluster", "TestView_POOL9_TEN8_PodsLabelsAndEnds"),
		),
	},
	{
		ID: "safe-to-evict-until-it-is-not", Title: "A runner that said it might be moved was moved with its job", Source: Peer,
		Report: Report{URL: "https://github.com/actions/actions-runner-controller/issues/1581", Date: "2022-06-29"},
		Elsewhere: `With safe-to-evict on every runner, the cluster autoscaler now and then evicted one that was running a workflow. The job stayed in progress
			until it timed out.`,
		Here: `The annotation follows busy and idle. In the moment in which a job was claimed and nothing shows it, the fence keeps the controller from
			the runner, the cluster autoscaler's evictions are refused because they cut the grace period, and any other eviction leaves the whole
			grace period, in which the job is queued again or finished.`,
		Rules: []string{"EXCL-1", "EXCL-7", "EXCL-8", "POOL-9"},
		Shown: join(
			in("internal/controller", "TestPool_R5_EXCL1_EXCL7_ARunnerThatWasJustClaimedKeepsItsJobWhenKarpenterTakesTheNode",
				"TestPool_R5_EXCL7_TheClusterAutoscalersEvictionsEndWhenTheFenceHasLetTheRunnerGo", "TestIdleRunner_R5_EXCL7_AnEvictionLeavesItsWholeGracePeriod", "TestBusyRunner_EXCL7_POOL9_RunnersThatRunAreNotEvicted"),
			in("test/e2e", "TestStopped_EXCL8_AStopAtAnyInstantCostsNoJob"),
		),
	},
	{
		ID: "node-upgrade-ends-jobs", Title: "A node upgrade of the provider ended running jobs", Source: Peer,
		Report: Report{URL: "https://github.com/actions/actions-runner-controller/issues/4618", Date: "2026-09-03"},
		Elsewhere: `An automatic upgrade of nodes drained those that ran jobs. Budgets had no effect, because the runners' owners have no number of replicas for
			a share of it to be computed from, and annotations for autoscalers are not read by a drain.`,
		Here: `The budget of busy runners is a number that is never met, which needs no owner's replicas: a drain waits for the job. The provider's own
			time limit is beyond that; a page says what each does then and which settings help, and the doctor warns where jobs may take longer.`,
		Rules: []string{"POOL-9", "EXCL-7"},
		Shown: join(
			in("internal/controller", "TestBusyRunner_EXCL7_POOL9_RunnersThatRunAreNotEvicted", "TestPool_POOL9_KubectlDrainWaitsForTheJob"),
			in("internal/cli/doctor", "TestExamine_R17_NodesThatAreReplacedUnderLongJobs", "TestDoctor_R17_NodeUpgrades"),
		),
	},
}
