package runnerkinds

// Sections is the whole list.
func Sections() []Section {
	return []Section{
		{"Runner", runner}, {"RunnerReplicaSet", replicaSet}, {"RunnerDeployment: rollouts", rollouts}, {"RunnerSet", runnerSet},
		{"Unregistration", unregistration}, {"Autoscaling", autoscaling}, {"Failures", failures},
		{"Regressions of others", regressions},
	}
}

var runner = []Item{
	{ID: "1.1", Standard: Matched, Expected: `A runner is registered with exactly one enterprise, organization or repository.`,
		Here:  `The API server refuses anything else, with a sentence.`,
		Shown: in("internal/controller", "TestKinds_BadRunnersAreRefusedWithASentence")},
	{ID: "1.2", Standard: Matched, Expected: `Runners are ephemeral unless something else is said, and an ephemeral one runs at most one job.`,
		Shown: join(
			in("internal/controller", "TestKinds_WhatIsNotWrittenHasTheDefaultsThatTheDocumentsName"),
			in("internal/controller/selfregistering/runner", "TestRunner_RUN7_759349de_e46b90f7_b09c5404_79a31328_GetsNoSecondPod"),
			in("internal/agent", "TestSupervise_RUN7_SecondStartWaitsForItsEnd"),
		)},
	{ID: "1.3", Standard: Matched, Expected: `One pod, of the runner's name; that it exists already is success.`,
		Shown: in("internal/controller/selfregistering/runner", "TestRunner_NET3_HasOneRegistrationOneSecretAndOnePod")},
	{ID: "1.4", Standard: Matched, Expected: `RUNNER_NAME and RUNNER_TOKEN occur exactly once, however often a pod is made from what was made before.`,
		Here:  `The second is blank, because jobs can read it: the token is in a file, until GitHub knows the runner. Ephemeral runners have no token: they have a configuration in a file.`,
		Shown: in("internal/runnerpod", "TestBuildRegistered_RUN5_fa287c43_NameAndTokenOccurExactlyOnceHoweverOftenItIsBuilt")},
	{ID: "1.5", Standard: Matched, Expected: `A pod is never restarted, whatever its template says.`,
		Here: `restartPolicy is Never. Pods of StatefulSets must have Always; there the supervisor starts no runner a second time.`,
		Shown: join(
			in("internal/runnerpod", "TestBuildRegistered_RUN7_759349de_RestartPolicyIsNeverWhateverTheTemplateSays"),
			in("internal/agent", "TestSupervise_RUN7_SecondStartWaitsForItsEnd"),
		)},
	{ID: "1.6", Standard: Matched, Expected: `A pod that has ended is not started again; its Runner goes.`,
		Shown: in("internal/controller/selfregistering/runner", "TestRunner_RUN7_759349de_e46b90f7_b09c5404_79a31328_GetsNoSecondPod")},
	{ID: "1.7", Standard: Matched, Expected: `Deleting the pod marks its Runner for deletion; there is no second pod.`,
		Shown: in("internal/controller/selfregistering/runner", "TestRunner_APodThatSomebodyDeletesTakesItsRunnerWithIt")},
	{ID: "1.8", Standard: Better, Expected: `A registration token is renewed when it is missing, about to expire, or for another repository, organization or enterprise.`,
		Shown: in("internal/controller/selfregistering/runner", "TestRunner_RUN5_AStaticRunnersTokenIsRenewedUntilGitHubKnowsTheRunner")},
	{ID: "1.9", Standard: Better, Expected: `No token is in a status or in a pod's environment as text.`,
		Shown: join(
			in("internal/controller/selfregistering/runner", "TestRunner_NET3_ShowsNoSecret"),
			in("internal/runnerpod", "TestBuildRegistered_NET3_TheSecretIsInTheRunnerAloneAndNoTokenOfKubernetesIs"),
			in("internal/agent", "TestStatic_RUN5_NET3_RegistersByTheEnvironmentAlone"),
		)},
	{ID: "1.10", Standard: Matched, Expected: `Container mode Kubernetes needs a work volume that can be written; a second volume for the same purpose is refused.`,
		Shown: join(
			in("internal/runnerpod", "TestBuildRegistered_KubernetesMode"),
			in("internal/controller", "TestKinds_BadRunnersAreRefusedWithASentence"),
		)},
	{ID: "1.11", Standard: Matched, Expected: `Editing a Runner's spec does not replace its pod.`,
		Shown: in("internal/controller/selfregistering/runner", "TestRunner_AnEditedSpecLeavesTheLivePodAlone")},
}

var replicaSet = []Item{
	{ID: "2.1", Standard: Matched, Expected: `What is missing is made in one pass, no more, each with a name of its own.`,
		Shown: in("internal/controller/selfregistering/runnerowner", "TestScenarios_RUN1_bed92705_14a878bf_c95e84a5")},
	{ID: "2.2", Standard: Matched, Expected: `A runner that is registering is no victim of a scale-down.`,
		Here:  `Ephemeral ones that have not begun may be: GitHub knows their id already, and a removal that it grants leaves nothing that could be given a job.`,
		Shown: in("internal/plan/lifecycle", "TestMakePlan_RUN1_PendingRunnersAreNoVictimsOfANumber", "TestMakePlan_RUN2_ABootingRunnerIsAVictimOnlyWhereItCannotBeRegistering", "TestHistory_RUN2_WhatRegistersItselfIsNotAskedFor")},
	{ID: "2.3", Standard: Matched, Expected: `A scale-down keeps the newest.`,
		Shown: in("internal/controller/selfregistering/runnerowner", "TestScenarios_RUN1_bed92705_14a878bf_c95e84a5")},
	{ID: "2.4", Standard: Matched, Expected: `A runner whose pod is ready and that GitHub does not know in time is replaced.`,
		Shown: join(
			in("internal/controller/selfregistering/runnerowner", "TestScenarios_RUN1_bed92705_14a878bf_c95e84a5"),
			in("internal/controller/selfregistering/registered", "TestRunner_RUN7_EXCL4_EveryStateHasAStage"),
		)},
	{ID: "2.5", Standard: Matched, Expected: `What has ended is removed before anything is counted.`,
		Shown: in("internal/controller/selfregistering/runnerowner", "TestScenarios_RUN1_bed92705_14a878bf_c95e84a5")},
	{ID: "2.6", Standard: Matched, Expected: `A runner that was made and is not seen yet counts: no second one is made for it.`,
		Shown: in("internal/controller/selfregistering/runnerowner", "TestPlan_RUN1_AnOwnCreationThatNobodyHasSeenCounts")},
	{ID: "2.7", Standard: Matched, Expected: `Static runners that are missing are made at once, ephemeral ones after a need was met only when the hold is over.`,
		Here: `The hold is a field, applies where an autoscaler chooses the number, and ends early with a newer need.`,
		Shown: join(
			in("internal/plan/lifecycle", "TestHoldUntil_RUN4", "TestCompleteAt_RUN4_CountsFromTheLastScaleUpAndNotFromTheLastLook"),
			in("internal/controller/selfregistering/runnerowner", "TestPlan_RUN4_HoldsEphemeralRunnersThatHaveEnded"),
			in("internal/controller/selfregistering/runnerowner", "TestScenarios_RUN1_bed92705_14a878bf_c95e84a5"),
		)},
	{ID: "2.8", Standard: Better, Expected: `Members are those whose owner reference says so, not whoever has the label.`,
		Shown: in("internal/controller/selfregistering/runnerowner", "TestTakePod_APodOfAnotherIsNoMembers")},
	{ID: "2.9", Standard: Better, Expected: `A removal that was asked for and not granted is withdrawn when the runner is wanted again.`,
		Shown: join(
			in("internal/controller/selfregistering/runnerowner", "TestScenarios_RUN1_bed92705_14a878bf_c95e84a5"),
			in("internal/plan/lifecycle", "TestMakePlan_RUN6_AVictimAskedIsKeptInMind"),
		)},
	{ID: "2.10", Standard: Better, Expected: `No number of runners makes the controller panic.`,
		Shown: join(
			in("internal/plan/lifecycle", "TestMakePlan_POOL2_POOL5_Converges"),
			in("internal/controller/selfregistering/runnerdeployment", "TestPlanRollout_RUN3_EndsWithExactlyOneSet"),
		)},
}

var rollouts = []Item{
	{ID: "3.1", Standard: Matched, Expected: `A changed template makes a new set at full size at once.`,
		Shown: in("internal/controller/selfregistering/runnerdeployment", "TestPlanRollout_RUN3")},
	{ID: "3.2", Standard: Matched, Expected: `The old sets are left alone until the new one has as many ready as are wanted.`,
		Shown: in("internal/controller/selfregistering/runnerdeployment", "TestPlanRollout_RUN3", "TestPlanRollout_RUN3_OldOnesGoOnlyWhereOthersServe")},
	{ID: "3.3", Standard: Matched, Expected: `Then an old set is lowered to zero, observed at zero, and deleted.`,
		Shown: join(
			in("internal/controller/selfregistering/runnerdeployment", "TestPlanRollout_RUN3"),
			in("internal/controller/selfregistering/runnerowner", "TestDeployment_RUN3_RollsWithoutEndingAJobAndEndsWithOneSet"),
		)},
	{ID: "3.4", Standard: Matched, Expected: `A job of six hours in an old set finishes; no time-out ends it.`,
		Shown: join(
			in("internal/controller/selfregistering/runnerowner", "TestDeployment_RUN3_RollsWithoutEndingAJobAndEndsWithOneSet"),
			in("test/e2e", "TestSelfRegistering_RUN2_RUN3_EveryJobProvesItsCompletion"),
		)},
	{ID: "3.5", Standard: Matched, Expected: `A changed number, or a newer need at the same number, makes no new set.`,
		Shown: join(
			in("internal/controller/selfregistering/runnerdeployment", "TestPlanRollout_RUN3"),
			in("internal/controller/selfregistering/runnerowner", "TestDeployment_RUN4_e2c8163b_af96de61_ANewerNeedAloneReachesTheSetAndMakesNone"),
		)},
	{ID: "3.6", Standard: Matched, Expected: `In the end there is one set.`,
		Shown: join(
			in("internal/controller/selfregistering/runnerdeployment", "TestPlanRollout_RUN3_EndsWithExactlyOneSet"),
			in("internal/controller/selfregistering/runnerowner", "TestDeployment_RUN3_RollsWithoutEndingAJobAndEndsWithOneSet"),
			in("test/e2e", "TestSelfRegistering_RUN2_RUN3_EveryJobProvesItsCompletion"),
		)},
	{ID: "3.7", Standard: Better, Expected: `Going back to an earlier template whose set is still there takes that set.`,
		Shown: join(
			in("internal/controller/selfregistering/runnerdeployment", "TestPlanRollout_RUN3"),
			in("internal/controller/selfregistering/runnerowner", "TestDeployment_RUN3_AnEarlierTemplateTakesTheSetThatIsStillThere"),
		)},
	{ID: "3.8", Standard: Better, Expected: `Surge and unavailability of a roll can be set.`,
		Shown: in("internal/controller/selfregistering/runnerdeployment", "TestPlanRollout_RUN3_OldOnesGoOnlyWhereOthersServe", "TestPlanRollout_RUN3_EndsWithExactlyOneSet")},
	{ID: "3.9", Standard: Better, Expected: `Templates are told apart by a hash that two templates do not share by accident, over one way of writing them.`,
		Shown: in("internal/runnerpod", "TestRegisteredHash_IsOfWhatShapesARunner", "TestRegisteredHash_EqualSpecsHashEqually")},
}

var runnerSet = []Item{
	{ID: "4.1", Standard: Matched, Expected: `A StatefulSet of one pod for each runner.`,
		Shown: in("internal/controller/selfregistering/runnerowner", "TestScenarios_RUN1_bed92705_14a878bf_c95e84a5")},
	{ID: "4.2", Standard: Matched, Expected: `The rules are those of a RunnerReplicaSet.`, Here: `One table of scenarios runs on both (RUN-1).`,
		Shown: in("internal/controller/selfregistering/runnerowner", "TestScenarios_RUN1_bed92705_14a878bf_c95e84a5")},
	{ID: "4.3", Standard: Matched, Expected: `Volumes outlive their runner, and the next one has them.`,
		Here:  `By name: a set's StatefulSets are numbered, and the claims of a number that is free wait for the next runner of that number. No PersistentVolume is touched.`,
		Shown: in("internal/controller/selfregistering/runnerowner", "TestRunnerSet_K43_VolumesWaitForTheNextRunner")},
	{ID: "4.4", Standard: Matched, Expected: `With more than 1,000 StatefulSets no more are added for now.`,
		Shown: in("internal/controller/selfregistering/runnerowner", "TestPlan_NoMoreThanThereIsRoomFor")},
	{ID: "4.5", Standard: Better, Expected: `StatefulSets of an older template are unregistered before they are deleted.`,
		Shown: join(
			in("internal/controller/selfregistering/runnerowner", "TestScenarios_RUN1_bed92705_14a878bf_c95e84a5"),
			in("test/e2e", "TestSelfRegistering_RUN2_RUN3_EveryJobProvesItsCompletion"),
		)},
	{ID: "4.6", Standard: Better, Expected: `A pod whose name or configuration is missing does not start, and an Event says why.`,
		Here: `The kubelet waits for the Secret, and says nothing on the pod: after half a minute an Event and the condition Registered do. A static runner gets another
			token, an ephemeral one is replaced.`,
		Shown: join(
			in("internal/runnerpod", "TestBuildRegistered_NET3_TheSecretIsInTheRunnerAloneAndNoTokenOfKubernetesIs"),
			in("internal/controller/selfregistering/runner", "TestRunner_RUN7_F46_AMissingSecretIsSaidOnceAndNothingIsTriedOverAndOver"),
			in("internal/controller/selfregistering/runnerowner", "TestScenarios_RUN1_bed92705_14a878bf_c95e84a5"),
		)},
}

var unregistration = []Item{
	{ID: "5.1", Standard: Matched, Expected: `A removal has an order: asked for, begun, granted by GitHub, recorded once, deleted.`,
		Here:  `The grant is recorded on the pod; the steps before it are the plan's, and asked for anew after a restart.`,
		Shown: in("internal/controller/selfregistering/runner", "TestRunner_RUN2_EXCL2_GoesWhenGitHubHasRemovedIt")},
	{ID: "5.2", Standard: Matched, Expected: `Nothing is marked for deletion before GitHub has let go, so that no grace period cuts a job.`,
		Shown: in("internal/controller/selfregistering/runner", "TestRunner_RUN2_EXCL2_GoesWhenGitHubHasRemovedIt")},
	{ID: "5.3", Standard: Matched, Expected: `A runner whose id is not known: one that runs is looked for again, one that has not begun, has ended or never registered in time is let go.`,
		Shown: join(
			in("internal/controller/selfregistering/registered", "TestLeaving_RUN2_7ff5b7da_23c8fe4a_EveryStateHasAWayOut"),
			in("internal/controller/selfregistering/runner", "TestFence_a3072c11_AStaticRunnerThatIsRegisteringIsNotAskedAbout"),
			in("internal/controller/selfregistering/registration", "TestRemove_RUN2_WithoutAnIDItIsLookedForByItsName"),
		)},
	{ID: "5.4", Standard: Matched, Expected: `A pod that has ended needs no call.`,
		Shown: in("internal/controller/selfregistering/registered", "TestLeaving_RUN2_7ff5b7da_23c8fe4a_EveryStateHasAWayOut")},
	{ID: "5.5", Standard: Matched, Expected: `GitHub says that it is busy: an ephemeral runner is waited for without another call, a static one is asked about once a minute.`,
		Shown: in("internal/controller/selfregistering/runner", "TestFence_RUN2_9628bb29_ABusyEphemeralRunnerIsAskedAboutOnceAndAStaticOneOncePerMinute")},
	{ID: "5.6", Standard: Better, Expected: `A 403 blocks no removal for ever, and gives up no runner that may get a job.`, Here: `It lets go of a runner that a successful read of the same place does not list, or whose container has ended (EXCL-6). One that is listed may be given a job: it stays, and a condition asks for the permission.`,
		Shown: join(
			in("internal/controller/selfregistering/runner", "TestRunner_EXCL6_f153870f_AForbiddenRemovalKeepsARunnerUntilItHasEnded"),
			in("internal/controller/selfregistering/registration", "TestRemove_RUN2_EXCL6_EveryAnswerBesideEveryControlRead", "TestStandin_EXCL6_WhatRefusalsMean"),
		)},
	{ID: "5.7", Standard: Better, Expected: `A rate limit is waited out until the moment that GitHub names.`,
		Shown: join(
			in("internal/plan/lifecycle", "TestPace_RUN6_AskedAgain"),
			in("internal/controller/selfregistering/registration", "TestUnasked_WaitsForTheLimitThatKeepsFromAsking", "TestRemove_RUN2_AsGitHubAnswersIt"),
		)},
	{ID: "5.8", Standard: Matched, Expected: `An ephemeral container that has ended before is taken for ended, whatever it does now.`,
		Shown: in("internal/controller/selfregistering/registered", "TestRunner_RUN7_EXCL4_EveryStateHasAStage")},
	{ID: "5.9", Standard: Matched, Expected: `A pod that somebody else deletes is held until GitHub has let go.`,
		Shown: in("internal/controller/selfregistering/runner", "TestRunner_APodThatSomebodyDeletesTakesItsRunnerWithIt", "TestPods_RUN2_EXCL2_AnOrphanIsUnregisteredAndRemoved")},
	{ID: "5.10", Standard: Matched, Expected: `A pod that is still there a minute after its deletion is deleted by force.`,
		Here:  `Only where its node is gone: a kubelet that is late may still run the job. A pod that does not go is a condition (POOL-10).`,
		Shown: in("internal/controller/selfregistering/runner", "TestRunner_POOL7_EXCL3_ARunnerOfAVanishedNodeGoesOnProofOnly")},
	{ID: "5.11", Standard: Matched, Expected: `In container mode Kubernetes the pods and Secrets of jobs go first.`,
		Shown: in("internal/controller/selfregistering/runner", "TestPods_HelpersOfJobsGoBeforeTheRunner")},
	{ID: "5.12", Standard: Better, Expected: `GitHub compares and removes in one step; a list that says "not busy" is never enough.`,
		Shown: join(
			in("internal/controller/selfregistering/registration", "TestRemove_RUN2_EXCL6_EveryAnswerBesideEveryControlRead"),
			in("internal/controller/selfregistering/runner", "TestFence_EXCL3_WhatIsNotKnownDeletesNothingAndIsAskedMoreAndMoreSlowly"),
		)},
}

var autoscaling = []Item{
	{ID: "6.1", Standard: Matched, Expected: `The number is never below the least and never above the most.`,
		Shown: join(
			in("internal/plan/scaling/selfregistering", "TestDecide_61_WithinTheBounds"),
			in("internal/controller/selfregistering/runnerscaler", "TestScaler_61_UpAndDown"),
		)},
	{ID: "6.2", Standard: Matched, Expected: `A queued job adds one, its completion takes one away; a skipped job, or one that no runner took, changes nothing.`,
		Shown: join(
			in("internal/server/http", "TestDemand_62_63_WhatChangesNothing"),
			in("internal/server/dispatch", "TestTargetDemand_66_ThroughAJobsLife"),
		)},
	{ID: "6.3", Standard: Matched, Expected: `A message with a bad signature is refused; one that concerns no target is taken and changes nothing.`,
		Shown: in("internal/server/http", "TestDemand_62_63_WhatChangesNothing")},
	{ID: "6.4", Standard: Matched, Expected: `Many messages at once make one write for each target.`,
		Shown: in("internal/controller/selfregistering/runnerscaler", "TestScaler_64_e2c8163b_af96de61_EventsMergeIntoOneWritePerOwner")},
	{ID: "6.5", Standard: Matched, Expected: `A job beyond the most is not forgotten while it waits.`,
		Shown: in("internal/plan/scaling/selfregistering", "TestDecide_65_JobsBeyondMaxAreNotForgotten")},
	{ID: "6.6", Standard: Better, Expected: `Jobs are known by their id: a message that comes twice adds nothing, and a completion frees that job.`,
		Shown: join(
			in("internal/plan/scaling/selfregistering", "TestDecide_66_JobsCountByTheirIDs", "TestGather_66_Property_ASetOfIDs"),
			in("internal/controller/selfregistering/runnerscaler", "TestScaler_66_ByJobIDs"),
		)},
	{ID: "6.7", Standard: Better, Expected: `Messages that were lost are made good from GitHub's queue.`,
		Shown: join(
			in("internal/plan/scaling/selfregistering", "TestDecide_67_LostMessagesAreMadeGood"),
			in("internal/controller/selfregistering/runnerscaler", "TestScaler_67_GitHubsQueueRepairsWhatWasLost"),
		)},
	{ID: "6.8", Standard: Better, Expected: `A target that is broken delays no other, and what waits survives a restart.`,
		Shown: in("internal/controller/selfregistering/runnerscaler", "TestScaler_68_ABrokenTargetDelaysNoOther", "TestReadings_68_EachSetOfCredentialsHasItsShare")},
	{ID: "6.9", Standard: Matched, Expected: `A schedule that is active replaces the least number; the first counts, and one that has run out does not come again.`,
		Shown: join(
			in("internal/plan/scaling/selfregistering", "TestSchedule_69_Boundaries", "TestDecide_69_SchedulesReplaceTheMinimum"),
			in("internal/controller/selfregistering/runnerscaler", "TestScaler_69_Schedules"),
		)},
	{ID: "6.10", Standard: Better, Expected: `The number is the working ones, and for those that wait or are to be idle the larger number; what is idle beyond that goes while others work.`,
		Shown: in("internal/plan/scaling/selfregistering", "TestDecide_610_BusyAndTheLargerOfIdleAndQueued")},
	{ID: "6.11", Standard: Better, Expected: `A preferred pool fills before another, and caps of a repository hold under a burst.`,
		Here: `Of RunnerPools: which pool is asked for is the label's, and caps are checked in the claim's transaction (CLAIM-5). GitHub chooses among
			runners that register themselves.`,
		Shown: in("internal/server/dispatch", "TestCap_CLAIM5_HoldsUnderConcurrencyAndBlocksNobody")},
}

var failures = []Item{
	{ID: "8.1", Standard: Matched, Expected: `A runner that exits 0 has succeeded, whatever other containers say.`,
		Shown: in("internal/controller/selfregistering/registered", "TestObserve_ExitCodes")},
	{ID: "8.2", Standard: Better, Expected: `Exit 7, a version that GitHub no longer takes: a condition and an Event say so, and a new image ends it by itself.`,
		Shown: join(
			in("internal/controller/selfregistering/registered", "TestObserve_ExitCodes"),
			in("internal/controller/selfregistering/runnerowner", "TestDeployment_RUN7_ANewImageEndsOutdatedByItself"),
		)},
	{ID: "8.3", Standard: Matched, Expected: `Runners that fail before they have a job are made again less and less often.`,
		Shown: in("internal/controller/selfregistering/runnerowner", "TestPlan_RUN7_FailedStartsAreReplacedSlowly")},
	{ID: "8.4", Standard: Better, Expected: `A runner that has failed holds no place.`,
		Shown: in("internal/controller/selfregistering/runnerowner", "TestPlan_RUN7_FailedStartsAreReplacedSlowly", "TestPlan_RUN7_NothingIsStartedAgainInPlace")},
	{ID: "8.5", Standard: Better, Expected: `A pod that is gone, or whose node is lost, after its job began, is never made again with its spent configuration, and its place is free in a bounded time.`,
		Shown: in("internal/controller/selfregistering/runner", "TestPrepare_RUN7_NeverMintsForAPodThatHasExisted", "TestRunner_POOL7_EXCL3_ARunnerOfAVanishedNodeGoesOnProofOnly")},
	{ID: "8.6", Standard: Matched, Expected: `A name that is taken by a registration of ours is freed and another one used; one of somebody else's is left alone.`,
		Shown: in("internal/controller/selfregistering/runner", "TestRunner_TakesAnotherNameWhereSomebodyElseHasIt", "TestRunner_MintsExactlyOnceWhateverAnswerIsLost")},
	{ID: "8.7", Standard: Matched, Expected: `A quota that refuses a pod is waited for; a spec that is no pod is final, with the reason.`,
		Shown: join(
			in("internal/controller/selfregistering/runner", "TestRunner_BadInputIsShownOnceAndNotTriedAgain", "TestRunner_RUN7_K87_AQuotaThatRefusesThePodIsWaitedForWithoutMintingAnew"),
			in("internal/controller/selfregistering/runnerowner", "TestScenarios_RUN1_bed92705_14a878bf_c95e84a5"),
		)},
	{ID: "8.8", Standard: Matched, Expected: `Deleting a runner that works waits for it, without a bound.`,
		Shown: in("internal/controller/selfregistering/runner", "TestRunner_RUN2_c4b24f83_ABusyRunnerIsWaitedForWithoutADeadline")},
	{ID: "8.9", Standard: Better, Expected: `Runners that work are protected from drains and evictions for as long as they do; an idle one on a drained node is unregistered and goes.`,
		Shown: join(
			in("internal/controller", "TestSelfRegistering_EXCL7_ABusyRunnerIsDeletedByNobody", "TestSelfRegistering_EXCL7_NobodyCutsItsGrace", "TestBusyRunner_EXCL7_POOL9_RunnersThatRunAreNotEvicted"),
			in("internal/controller/selfregistering/registered", "TestRunner_RUN7_EXCL4_EveryStateHasAStage"),
		)},
	{ID: "8.10", Standard: Better, Expected: `Every call has a deadline; what hangs blocks nobody else, and recovers without a restart.`,
		Shown: join(
			in("internal/controller/selfregistering/registration", "TestBulkhead_EveryCallHasADeadline", "TestBulkhead_AHangingGitHubDelaysNobodyElse"),
			in("internal/controller/selfregistering/runner", "TestFence_AGitHubThatHangsDelaysNoOther"),
			in("internal/controller/selfregistering/runnerowner", "TestCrew_RUN2_AHangingOneDelaysNoOther"),
		)},
	{ID: "8.11", Standard: Better, Expected: `A controller of another version deletes nothing of a user's.`,
		Here: `Nothing compares versions. A version that builds pods otherwise, such as each that brings another agent, rolls as a changed template does: idle runners are
			unregistered and replaced, busy ones finish. What a given spec hashes to is written down in a test, so that no version rolls unnoticed.`,
		Shown: join(
			in("internal/controller/selfregistering/runnerowner", "TestScenarios_RUN1_bed92705_14a878bf_c95e84a5"),
			in("internal/runnerpod", "TestRegisteredHash_F811_IsWhatItWasInEveryVersion"),
		)},
	{ID: "8.12", Standard: Better, Expected: `Whatever is uninstalled first, nothing hangs on a finalizer in the end.`,
		Shown: join(
			in("internal/controller/selfregistering/runner", "TestRunner_UninstallingLeavesNoStuckFinalizer"),
			in("internal/controller/chartjobs", "TestDrain_RUN2_WaitsForRunnersThatRegisterThemselves"),
		)},
	{ID: "8.13", Standard: Better, Expected: `No metric has a label that grows with jobs or runners.`,
		Here: `Counters have kinds, outcomes and reasons; gauges of autoscaling have the owner's name, and go with it.`,
		Shown: join(
			in("internal/controller/selfregistering/runnerowner", "TestScenarios_RUN1_bed92705_14a878bf_c95e84a5"),
			in("internal/controller/selfregistering/runnerscaler", "TestMetrics_F813_NoSeriesGrowsWithJobsOrRunners"),
		)},
	{ID: "8.14", Standard: Better, Expected: `An eviction before a job's first step may have it queued again; after it, the reason is on the job's record.`,
		Here: `A job that no runner has begun never leaves GitHub's queue, and counts for the runner that replaces the evicted one. GitHub lets nobody write on
			the record of another's job, and queues none again: it makes a new attempt of a failed one, which repeats what was done, and which is left to
			people here (a server may ask for it for jobs of pools, see recovery). So the reason is in an Event of the owner, under the runner's name at GitHub,
			which the job's page shows.`,
		Shown: join(
			in("internal/controller/selfregistering/runnerowner", "TestEnded_F814_TheReasonIsToldByTheNameThatTheJobHas"),
			in("internal/controller/selfregistering/runner", "TestRunner_APodThatSomebodyDeletesTakesItsRunnerWithIt"),
			in("internal/plan/scaling/selfregistering", "TestDecide_66_JobsCountByTheirIDs"),
		)},
}

var regressions = []Item{
	{ID: "R.1", Standard: Regression, Commits: []string{"bed92705", "14a878bf", "c95e84a5"}, Expected: `Pools of pods and pools of StatefulSets drifted apart: rules of counting, holding and tearing down differ no more.`,
		Shown: in("internal/controller/selfregistering/runnerowner", "TestScenarios_RUN1_bed92705_14a878bf_c95e84a5")},
	{ID: "R.2", Standard: Regression, Commits: []string{"fa287c43"}, Expected: `Name and token occurred twice, because two parties wrote them.`,
		Shown: in("internal/runnerpod", "TestBuildRegistered_RUN5_fa287c43_NameAndTokenOccurExactlyOnceHoweverOftenItIsBuilt")},
	{ID: "R.3", Standard: Regression, Commits: []string{"adc889ce"}, Expected: `A roll returned early when the new set was complete, and old sets stayed for ever.`,
		Shown: in("internal/controller/selfregistering/runnerdeployment", "TestPlanRollout_RUN3", "TestPlanRollout_RUN3_EndsWithExactlyOneSet")},
	{ID: "R.4", Standard: Regression, Commits: []string{"c612e87d"}, Expected: `Old sets were deleted with jobs in them.`,
		Shown: join(
			in("internal/controller/selfregistering/runnerdeployment", "TestPlanRollout_RUN3"),
			in("internal/controller/selfregistering/runnerowner", "TestDeployment_RUN3_RollsWithoutEndingAJobAndEndsWithOneSet"),
		)},
	{ID: "R.5", Standard: Regression, Commits: []string{"791634fb"}, Expected: `Static pools never grew, for a hold that was meant for ephemeral ones.`,
		Shown: join(
			in("internal/plan/lifecycle", "TestHoldUntil_RUN4"),
			in("internal/controller/selfregistering/runnerowner", "TestScenarios_RUN1_bed92705_14a878bf_c95e84a5"),
		)},
	{ID: "R.6", Standard: Regression, Commits: []string{"4551309e"}, Expected: `A victim of a scale-down was killed before its unregistration.`,
		Shown: join(
			in("internal/plan/lifecycle", "TestMakePlan_RUN6_AVictimAskedIsKeptInMind"),
			in("internal/controller/selfregistering/runnerowner", "TestScenarios_RUN1_bed92705_14a878bf_c95e84a5"),
		)},
	{ID: "R.7", Standard: Regression, Commits: []string{"cbbc383a"}, Expected: `A completion that was lost kept a pool short for ever.`,
		Shown: join(
			in("internal/plan/lifecycle", "TestHoldUntil_RUN4"),
			in("internal/controller/selfregistering/runnerowner", "TestScenarios_RUN1_bed92705_14a878bf_c95e84a5"),
		)},
	{ID: "R.8", Standard: Regression, Commits: []string{"c4b24f83"}, Expected: `The removal was given up after a minute, and long jobs were killed.`,
		Shown: in("internal/controller/selfregistering/runner", "TestRunner_RUN2_c4b24f83_ABusyRunnerIsWaitedForWithoutADeadline")},
	{ID: "R.9", Standard: Regression, Commits: []string{"9628bb29"}, Expected: `Asking about busy runners again and again used up the rate limit.`,
		Shown: in("internal/controller/selfregistering/runner", "TestFence_RUN2_9628bb29_ABusyEphemeralRunnerIsAskedAboutOnceAndAStaticOneOncePerMinute")},
	{ID: "R.10", Standard: Regression, Commits: []string{"f153870f"}, Expected: `A 403 blocked a removal for ever.`,
		Shown: in("internal/controller/selfregistering/runner", "TestRunner_EXCL6_f153870f_AForbiddenRemovalKeepsARunnerUntilItHasEnded")},
	{ID: "R.11", Standard: Regression, Commits: []string{"efb7fca3"}, Expected: `A pod that somebody had deleted blocked its owner.`,
		Shown: in("internal/controller/selfregistering/runner", "TestRunner_efb7fca3_AVanishedPodBlocksNobodyAndIsStillUnregistered")},
	{ID: "R.12", Standard: Regression, Commits: []string{"a3072c11"}, Expected: `Runners were unregistered before they had registered.`,
		Shown: in("internal/controller/selfregistering/runner", "TestFence_a3072c11_AStaticRunnerThatIsRegisteringIsNotAskedAbout")},
	{ID: "R.13", Standard: Regression, Commits: []string{"7ff5b7da", "23c8fe4a"}, Expected: `An id that was never written down, and a volume that was never bound, blocked a removal.`,
		Shown: join(
			in("internal/controller/selfregistering/registered", "TestLeaving_RUN2_7ff5b7da_23c8fe4a_EveryStateHasAWayOut"),
			in("internal/controller/selfregistering/runner", "TestRunner_7ff5b7da_23c8fe4a_APodThatNeverStartedGoesAtOnce"),
		)},
	{ID: "R.14", Standard: Regression, Commits: []string{"759349de", "e46b90f7", "b09c5404", "79a31328"}, Expected: `Pods hung in Terminating, and ephemeral ones were started again.`,
		Shown: join(
			in("internal/controller/selfregistering/runner", "TestRunner_RUN7_759349de_e46b90f7_b09c5404_79a31328_GetsNoSecondPod"),
			in("internal/runnerpod", "TestBuildRegistered_RUN7_759349de_RestartPolicyIsNeverWhateverTheTemplateSays"),
		)},
	{ID: "R.15", Standard: Regression, Commits: []string{"e2c8163b", "af96de61"}, Expected: `Messages that came at once overwrote each other, and a newer need at the same number was not passed on.`,
		Shown: join(
			in("internal/controller/selfregistering/runnerscaler", "TestScaler_64_e2c8163b_af96de61_EventsMergeIntoOneWritePerOwner"),
			in("internal/controller/selfregistering/runnerowner", "TestDeployment_RUN4_e2c8163b_af96de61_ANewerNeedAloneReachesTheSetAndMakesNone"),
		)},
}
