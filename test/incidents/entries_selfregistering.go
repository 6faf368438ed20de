package incidents

var aboutSelfRegistering = []Incident{
	{
		ID: "two-implementations-of-one-rule", Title: "Two kinds of owners had two implementations of the same rules", Source: Peer,
		Report: Report{URL: "https://github.com/actions/actions-runner-controller/pull/1179", Date: "2022-03-05"},
		Elsewhere: `Pods of replica sets and of stateful sets were counted, held and torn down by code of their own, which drifted apart; merging them
			brought out the bugs below.`,
		Here:  `One engine plans for every owner, and one table of scenarios runs on both backings of runners that register themselves.`,
		Rules: []string{"RUN-1"},
		Shown: in("internal/controller/selfregistering/runnerowner", "TestScenarios_RUN1_bed92705_14a878bf_c95e84a5"),
	},
	{
		ID: "missed-completion-stops-resync", Title: "A missed completion event stopped all growth", Source: Peer,
		Report: Report{URL: "https://github.com/actions/actions-runner-controller/pull/1180", Date: "2022-03-06"},
		Elsewhere: `With more runners wished for than pods to be seen, the set waited for an event that had been lost, for ever; a time-out of first
			thirty seconds, then ten minutes was put in its place.`,
		Here: `A pool creates exactly what is missing and waits for no event: an ended runner is replaced because its pod has ended, whatever
			GitHub has said. Runners that register themselves are held where an autoscaler counts jobs, for ten minutes at most, and no longer than until
			GitHub shows a need that is newer.`,
		Rules: []string{"POOL-4", "RUN-4"},
		Shown: join(
			in("internal/controller", "TestPool_POOL4_TheReportedEndPrecedesDeletionAndReplacementWaitsForNobody"),
			in("internal/plan/lifecycle", "TestHoldUntil_RUN4"),
		),
	},
	{
		ID: "duplicate-environment", Title: "Name and token were in the pod's environment twice", Source: Peer,
		Report:    Report{URL: "https://github.com/actions/actions-runner-controller/pull/1212", Date: "2022-03-12"},
		Elsewhere: `A webhook that changes pods and the controller both added them.`,
		Here:      `A pod is built by one pure function, which may be given what it made before; there is no webhook.`,
		Rules:     []string{"RUN-5"},
		Shown:     in("internal/runnerpod", "TestBuildRegistered_RUN5_fa287c43_NameAndTokenOccurExactlyOnceHoweverOftenItIsBuilt"),
	},
	{
		ID: "rollout-never-finishes", Title: "A roll created the new set and could not take down the old one", Source: Peer,
		Report:    Report{URL: "https://github.com/actions/actions-runner-controller/pull/1213", Date: "2022-03-12"},
		Elsewhere: `The old set was deleted before it was empty, and what should have emptied it was already going.`,
		Here: `A roll of a pool converges whenever faults stop, and takes at least one runner at a time. A RunnerDeployment lowers old sets to zero, waits until
			they are observed there, and deletes them then; from any state it ends with exactly one.`,
		Rules: []string{"RUN-3", "POOL-5"},
		Shown: join(
			in("internal/plan/lifecycle", "TestHistory_POOL5_SCALE3_ConvergesWhenFaultsStop", "TestMakePlan_POOL2_POOL5_Converges"),
			in("internal/controller/selfregistering/runnerdeployment", "TestPlanRollout_RUN3_EndsWithExactlyOneSet"),
			in("test/e2e", "TestSelfRegistering_RUN2_RUN3_EveryJobProvesItsCompletion"),
		),
	},
	{
		ID: "static-runners-never-scale-up", Title: "Static runners did not grow when asked to", Source: Peer,
		Report:    Report{URL: "https://github.com/actions/actions-runner-controller/pull/1214", Date: "2022-03-13"},
		Elsewhere: `A hold that was meant to keep ephemeral runners from being created again in vain also held up static ones.`,
		Here:      `The hold is a field, and of ephemeral runners alone.`,
		Rules:     []string{"RUN-4"},
		Shown:     join(in("internal/plan/lifecycle", "TestHoldUntil_RUN4"), in("internal/controller/selfregistering/runnerowner", "TestScenarios_RUN1_bed92705_14a878bf_c95e84a5")),
	},
	{
		ID: "unregistration-given-up", Title: "Runners were deleted before GitHub had let go of them", Source: Peer,
		Report:    Report{URL: "https://github.com/actions/actions-runner-controller/pull/1214", Date: "2022-03-13"},
		Elsewhere: `Retries of the removal ended too early, mostly for static runners; pods went under their jobs, which then hung.`,
		Here: `There is no time after which the engine gives up and deletes all the same: a fence that cannot be asked, or says busy, is asked
			again for ever, and the owner says why.`,
		Rules: []string{"RUN-2", "EXCL-3"},
		Shown: join(
			in("internal/controller", "TestPool_EXCL3_AFenceThatCannotBeAskedDeletesNothing"),
			in("internal/controller/pool", "TestAnswered_EXCL3_UnknownIsAskedAgainLessAndLessOften"),
			in("internal/controller/selfregistering/runner", "TestRunner_RUN2_c4b24f83_ABusyRunnerIsWaitedForWithoutADeadline"),
		),
	},
	{
		ID: "lower-number-skips-unregistration", Title: "Lowering the number again during a scale-down skipped the removal", Source: Peer,
		Elsewhere: `A second, lower number met runners that were on their way out and took others, or took them without waiting.`,
		Here:      `A victim that was asked and is not free yet stays counted and stays the victim; demand that returns withdraws it.`,
		Rules:     []string{"RUN-6"},
		Shown: in("internal/plan/lifecycle", "TestMakePlan_SCALE3_WhatWasGrantedIsOneOfThoseThatGo", "TestMakePlan_EXCL1_EXCL3_AskedIsNeverDeletedAndGrantedIsNeverWithdrawn",
			"TestMakePlan_RUN6_AVictimAskedIsKeptInMind"),
	},
}
