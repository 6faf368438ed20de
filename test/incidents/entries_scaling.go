package incidents

var aboutScaling = []Incident{
	{
		ID: "blocked-work-livelock", Title: "Work that waited for its account's budget had no pod to take it later", Source: ReferenceFleet,
		Elsewhere: `Nine Mac places were held by one pool. Two other pools' jobs were all blocked, so they reported no demand, had no runner, and
			when the budget was free no pod polled for them.`,
		Here:    `Blocked work asks for exactly one runner, as a job would: enough to take freed room, too little to squat.`,
		Rules:   []string{"SCALE-2", "SCALE-1"},
		Shown:   join(in("", "TestScaling_SCALE2_BlockedWorkIsThereWhenRoomIsFreed"), in("internal/server/dispatch", "TestDemand_SCALE2_Table")),
		Control: `With blocked work asking for nothing the plan gives its pool no runner, and after room is freed its jobs wait on.`,
	},
	{
		ID: "stale-head-pins-the-queue", Title: "One stale job at the head of the queue held up all others", Source: ReferenceFleet,
		Elsewhere: `The head was claimed, could not be minted or run, went back to the head, and was claimed again.`,
		Here: `Lanes, one for each account and set of labels: one that cannot be served is passed over. A dead job at the head of its own
			lane costs nothing, as a runner takes whichever job GitHub has; GitHub is asked about it after an hour.`,
		Rules:   []string{"CLAIM-5", "CLAIM-9", "CLAIM-11"},
		Shown:   in("", "TestQueue_CLAIM9_AStaleHeadPinsNothing"),
		Control: `The oldest job of all, which the obvious pick begins with, is still the one that cannot be run.`,
	},
	{
		ID: "hot-queue-store", Title: "The queue grew too large for the store that it was kept in", Source: ReferenceFleet,
		Elsewhere: `Jobs were queued in an analytics store, whose queries met their memory limit as history grew; a crash between it and the
			database stranded jobs.`,
		Here:    `Job, claim and lane are in one database and move in one transaction. A pick reads the head of a lane, however long the backlog.`,
		Rules:   []string{"CLAIM-2", "CLAIM-5"},
		Shown:   join(in("", "TestQueue_CLAIM5_TheCostOfAPickIsFlat"), in("internal/server/dispatch", "TestUnclaim_CLAIM2_ClaimAndJobMoveTogether", "TestBacklog_LooksNoFurtherThanAsked")),
		Control: `The obvious query for the oldest job reads every one that waits.`,
	},
	{
		ID: "large-shapes-starve", Title: "Large shapes were starved by a trickle of small ones", Source: ReferenceFleet,
		Elsewhere: `Each freed corner of a node went to a small runner at once, and a hole large enough for the large one never came about. Inside an
			account's budget it was the same, and stayed so.`,
		Here: `Of jobs that cannot all be funded each pool gets its share by seats that its nodes really have, and warm runners yield their places.
			A job that is too large for what its account has left waits, with the reason in the signals.`,
		Rules:   []string{"SCALE-1"},
		Shown:   in("internal/plan/scaling", "TestPlan_SCALE1_WarmRunnersFitIntoWhatJobsLeave", "TestPlan_ShapesAndNodes"),
		Missing: `Keeping a node free for a shape that waits for long. What the pool waits for is said in its conditions.`,
	},
	{
		ID: "fragmented-room", Title: "Room enough in sum, and no hole that was large enough", Source: ReferenceFleet,
		Elsewhere: `38 GiB were free on all nodes together and none had the 34.5 GiB of one runner. A budget in bytes said that it fits.`,
		Here:      `Room is counted in seats: for each node how many runners of that shape, with their overhead, still fit.`,
		Rules:     []string{"SCALE-1"},
		Shown:     in("internal/controller/nodes", "TestSeats_AreTheLeastOfWhatShapeAndOverheadAllow", "TestSeats_AlwaysFitAndNoMoreWould"),
	},
	{
		ID: "one-shape-takes-the-ceiling", Title: "One pool took every place to start a runner in", Source: ReferenceFleet,
		Elsewhere: `The ceiling of concurrent starts was one number for the fleet, first come first served, and did not grow with its nodes; pods stuck in
			their deletion held two of four nodes for hours.`,
		Here: `The ceiling grows with the usable nodes, what is free goes to the pool that has the fewest starting, and one that has none may
			always start one. A pod that does not go is named by a condition after its grace and a minute.`,
		Rules: []string{"POOL-6", "POOL-10"},
		Shown: join(
			in("internal/controller/pool", "TestAdmitStarts", "TestAdmitStarts_Properties", "TestPlan_POOL10_APodThatDoesNotGoIsSeenInTime"),
			in("internal/controller", "TestPool_POOL10_APodThatDoesNotGoIsSeen"),
		),
	},
	{
		ID: "roll-without-a-spare-host", Title: "A roll waited two months for a host that it could surge onto", Source: ReferenceFleet,
		Elsewhere: `Machines were replaced with one more at a time, and there was no host for one more. The roll stood still, unnoticed.`,
		Here: `A roll takes at least one runner at a time without a place to surge into. Pods that do not go, or do not start, hold up no
			roll, and conditions say what is in the way.`,
		Rules: []string{"POOL-5"},
		Shown: join(
			in("internal/plan/lifecycle", "TestMakePlan_POOL5_WhatDoesNotGoHoldsUpNoRoll", "TestHistory_POOL5_SCALE3_ConvergesWhenFaultsStop"),
			in("internal/controller/pool", "TestPlan_POOL5_APoolWhoseStartsAreLimitedRolls"),
		),
		Missing: `Rolls of machines; what is rolled here is pods.`,
	},
	{
		ID: "blip-shrinks-the-fleet", Title: "A server that did not answer read as no demand", Source: ReferenceFleet, Flaw: true,
		Elsewhere: `Whatever asks for demand and takes silence for zero shrinks the fleet at each hiccup. Theirs left the numbers alone.`,
		Here:      `What cannot be read whole is an error, and an error leaves every number where it is.`,
		Rules:     []string{"POOL-8"},
		Shown: join(
			in("internal/controller", "TestAutoscale_POOL8_ADeafControllerLeavesTheNumberAlone"),
			in("internal/server/dispatch", "TestSignals_POOL8_WholeOrNotAtAll"),
		),
	},
	{
		ID: "ghosts-count-as-capacity", Title: "Runners that had failed or hung still counted as capacity", Source: Peer,
		Report: Report{URL: "https://github.com/actions/actions-runner-controller/issues/3700", Date: "2024-08-07"},
		Elsewhere: `Objects of runners stayed in "running" or "failed" after their pods had gone, counted against the maximum, and nothing new was
			started.`,
		Here: `A runner is a pod and has no object beside it. What has ended is removed and replaced before anything is counted; what does not
			start in time is retired; what does not go is named.`,
		Rules: []string{"POOL-4", "POOL-6", "POOL-10"},
		Shown: in("internal/plan/lifecycle", "TestMakePlan_POOL4_EndedRunnersAreReplacedAtOnce"),
	},
	{
		ID: "zero-maximum", Title: "A maximum of zero emptied the pool that it was meant to leave alone", Source: ReferenceFleet, Flaw: true,
		Elsewhere: `Zero was documented as "no change" and computed as a limit of zero. Defaults that are not zero came back when the controller
			wrote the object.`,
		Here:  `Fields whose default is not zero are pointers, and an explicit zero stays one. Limits out of order are refused with a sentence.`,
		Rules: []string{"SCALE-3"},
		Shown: in("internal/controller", "TestRunnerPool_DefaultsAreVisibleAndAnExplicitZeroStays", "TestRunnerPool_SCALE3_LimitsOutOfOrderAreRefusedWithASentence"),
	},
	{
		ID: "two-writers-of-replicas", Title: "Chart and autoscaler fought over the number of replicas", Source: ReferenceFleet, Flaw: true,
		Elsewhere: `The autoscaler wrote the field that the chart also sets: each upgrade put the fleet back to the chart's number.`,
		Here:      `The autoscaler writes into the status; the spec is its author's.`,
		Rules:     []string{"SCALE-3"},
		Shown:     in("internal/controller", "TestAutoscale_SCALE3_GrowsAtOnceAndShrinksAfterTheWindow", "TestRunnerPool_ScaleSubresource"),
	},
	{
		ID: "two-pools-one-label", Title: "Two pools served one label", Source: ReferenceFleet, Flaw: true,
		Elsewhere: `That labels are unique was assumed in the cluster and checked on the server alone, which refused the jobs.`,
		Here:      `The jobs wait and both pools say with whom they conflict; a pool that is being deleted does not count. It heals by itself.`,
		Rules:     []string{"CLAIM-12"},
		Shown: join(
			in("internal/server/dispatch", "TestRoute_CLAIM12_NeitherOfTwoPoolsServes"),
			in("internal/controller", "TestPool_CLAIM12_LabelConflictIsSeenAndHealsByItself"),
		),
	},
}
