package incidents

var aboutClaims = []Incident{
	{
		ID: "deploy-wedges-the-warm-pool", Title: "A deploy leaked a whole warm pool at once", Source: ReferenceFleet,
		Elsewhere: `A pod was labelled with its owner when it won a claim, before anything was minted. Servers that were stopped between the
			two left pods with a label and, once the stale claims had been released, no claim: busy for ever to the controller,
			unknown to the recovery. 28 pods of one second held the memory of both nodes, and jobs waited for hours.`,
		Here: `A claim whose server died is taken over by the pod's next poll, once its lease is over: a new generation, whatever was
			registered is found by its name and removed, a fresh registration is minted. No label was written yet. No pod is lost.`,
		Rules: []string{"CLAIM-16", "CLAIM-15", "CLAIM-6", "EXCL-6"},
		Shown: join(
			in("", "TestDeploy_CLAIM16_AWholeWarmPoolInFlight", "TestDeploy_CLAIM16_TheWholeFleetGoesOn"),
			in("internal/server/dispatch", "TestPoll_CLAIM16_ClaimOfADeadServerIsTakenOver"),
		),
		Control: `With the label written at the claim, and a recovery that releases rows alone, every pod of the pool stays labelled and has no owner.`,
	},
	{
		ID: "failed-mint-leaves-a-label", Title: "A mint that failed left the pod labelled and the claim released", Source: ReferenceFleet,
		Elsewhere: `After a failed mint the claim was given back and the label stayed. The pod looked busy, was polled for ever and held its
			memory.`,
		Here: `A mint that definitely failed gives job and pod back, and the pod, which never had a label, serves the next job. One
			that may have happened keeps the claim, and the pod's next poll sorts it out.`,
		Rules:   []string{"CLAIM-8", "CLAIM-16", "CLAIM-6"},
		Shown:   join(in("", "TestMint_CLAIM8_AFailureLeavesNoLabel"), in("internal/server/dispatch", "TestPoll_CLAIM8_RefusedMintReturnsThePodAndTheJob")),
		Control: `With the label before the mint the pod looks busy and has no owner.`,
	},
	{
		ID: "label-patch-fails", Title: "One failed patch left a busy pod in the idle pods' network policy", Source: ReferenceFleet,
		Elsewhere: `The owner label became what the network policies go by, and was still written once, best effort: after a moment's
			failure of the API server a busy pod stayed exposed to the next deploy.`,
		Here: `Three attempts, 100 ms apart, for which the runner waits. Giving up fails no dispatch, as ownership is the row: the runner runs
			without the label. Nothing writes it later, because that would change the pod's policies in the middle of the job.`,
		Rules: []string{"CLAIM-6", "TEN-8"},
		Shown: join(in("", "TestLabel_CLAIM6_PatchesThatFail"), in("internal/server/dispatch", "TestAcknowledge_CLAIM6_GivesUpAfterThreeAttempts", "TestSweep_TEN8_NoLabelAfterThePollersEnd")),
	},
	{
		ID: "egress-cut-before-the-answer", Title: "The label could cut the way on which the answer was coming", Source: ReferenceFleet,
		Elsewhere: `The label was written before the configuration was sent. When the network layer was quick, a pod lost its way to the
			server before it had its answer, and pod and job were lost. It was accepted as a race.`,
		Here: `The label is written when the pod has said that it has its configuration: there is nothing left to lose on the way. The runner
			starts when the answer to that has ended, or was cut off by the label.`,
		Rules:   []string{"CLAIM-6", "CLAIM-7"},
		Shown:   join(in("", "TestEgress_CLAIM6_CutAtTheLabel"), in("internal/server/dispatch", "TestAcknowledge_CLAIM6_EgressCutAtTheLabelCostsNothing")),
		Control: `With the label at the claim and egress cut by it, no configuration arrives and no job starts.`,
	},
	{
		ID: "release-by-job-id", Title: "Releasing by the job's id freed the slot of a runner that was working", Source: ReferenceFleet,
		Elsewhere: `GitHub gives a job to any runner with its labels. When job A, for which runner 1 was minted, ended on runner 2, runner 1's claim was
			released: it ran job B, uncharged and unprotected, while runner 2 stayed charged.`,
		Here:    `A completed job ends the claim of the runner that GitHub names, within the account that sent the event, and no other.`,
		Rules:   []string{"CLAIM-8", "CLAIM-9"},
		Shown:   join(in("", "TestRelease_CLAIM8_ByJobIDWouldFreeAWorkingRunner"), in("internal/server/dispatch", "TestRecordJob_CLAIM8_ReleaseIsByExecutor")),
		Control: `With the claim deleted that was made for the ended job, a runner works without a claim.`,
	},
	{
		ID: "job-given-to-another-runner", Title: "A job ran on another runner than the one that was minted for it", Source: ReferenceFleet,
		Elsewhere: `The displaced job could not be claimed until the pod that had been minted for it stopped, and the one that ran was shown as
			queued all the while, and scaled for.`,
		Here: `in_progress names the runner, and the claim follows it: the job that runs is executing, the one that was displaced is
			queued again at once, and a claim that has lost its job takes the next of its lane.`,
		Rules: []string{"CLAIM-9"},
		Shown: join(in("", "TestJob_CLAIM9_GivenToAnotherRunner"), in("internal/server/dispatch", "TestRecordJob_CLAIM9_InProgressReBinds")),
	},
	{
		ID: "runner-steals-a-job", Title: "Ephemeral runners took each other's jobs, and one was left over", Source: Peer,
		Report: Report{URL: "https://github.com/github-aws-runners/terraform-aws-github-runner/issues/3130", Date: "2023-03-29"},
		Elsewhere: `A machine was started for each queued job. The first to register took whichever job was oldest, a second one found
			nothing, idled until it was cleared away, and its own job waited for a machine that was not started.`,
		Here:  `A claim is a pod's slot and not a reservation of a job. Two runners that swap jobs need no third mint.`,
		Rules: []string{"CLAIM-9"},
		Shown: join(in("", "TestJob_CLAIM9_GivenToAnotherRunner"), in("internal/server/dispatch", "TestRecordJob_CLAIM9_SwappedRunnersNeedNoThirdMint")),
	},
	{
		ID: "lost-answer-costs-a-pod", Title: "An answer that was lost on its way cost a pod and stranded a job", Source: ReferenceFleet, Flaw: true,
		Elsewhere: `Dispatch was not idempotent. A pod whose answer was lost had been committed and was sent away when it asked again; its job
			waited until GitHub was asked about it minutes later.`,
		Here:  `Until the pod acknowledges it is served the same claim again, under a fresh registration; the earlier one is removed first.`,
		Rules: []string{"CLAIM-7", "EXCL-6"},
		Shown: in("internal/server/dispatch", "TestPoll_CLAIM7_LostAnswerIsServedAgain", "TestPoll_CLAIM7_ReMintStopsWhenTheFirstRegistrationRuns"),
	},
	{
		ID: "stale-copy-is-saved", Title: "A scheduler re-read a row, then checked and saved its stale copy", Source: Peer, Flaw: true,
		Elsewhere: `Inside its transaction it read the fresh row into one variable and went on with another. Two schedulers could give one machine
			away twice.`,
		Here: `Whoever acts on a claim first takes a new generation by compare-and-set; every later write and the answer itself are void
			when it no longer holds. A model walks the interleavings.`,
		Rules: []string{"CLAIM-15", "EXCL-1"},
		Shown: join(
			in("internal/server/dispatch", "TestStore_CLAIM15_CLAIM16_StaleActorsAreVoid", "TestMint_CLAIM15_StaleMinterIsVoid"),
			in("test/model", "TestMutants"),
		),
	},
	{
		ID: "token-outlives-its-read", Title: "Warm pods died every hour of a token that had been renewed", Source: ReferenceFleet, Flaw: true,
		Elsewhere: `The poller read its token once at its start, and the file was renewed without it. A pod that was warm for longer than an
			hour was refused and recycled.`,
		Here:  `The token is read anew for each request.`,
		Rules: []string{"NET-3"},
		Shown: in("internal/agent", "TestPoll_ReadsTheTokenAgain"),
	},
}
