package incidents

var aboutMessages = []Incident{
	{
		ID: "late-redelivery-resurrects", Title: "A late redelivery brought a finished job back to life", Source: ReferenceFleet,
		Elsewhere: `A queued event that arrived, or was redelivered, after the job had ended or been cancelled queued it again. A runner was spent on a
			job that GitHub would never hand out.`,
		Here:    `A finished job leaves a tombstone, which outlives its row. Terminal states never move.`,
		Rules:   []string{"CLAIM-3", "CLAIM-4"},
		Shown:   join(in("", "TestWebhook_CLAIM4_RedeliveredAfterTheEnd"), in("internal/server/dispatch", "TestRecordJob_CLAIM4_TombstoneBarsAPrunedJob")),
		Control: `Without the tombstone a pod is claimed for the job that ended long ago.`,
	},
	{
		ID: "completed-before-queued", Title: "Completed arrived before queued", Source: ReferenceFleet,
		Elsewhere: `GitHub promises no order. A completed event of an unknown job was ignored, and the queued event after it made a job that
			never ended.`,
		Here:  `Completed of an unknown job inserts its terminal row and its tombstone; queued after it changes nothing.`,
		Rules: []string{"CLAIM-3", "CLAIM-4"},
		Shown: join(in("", "TestWebhook_CLAIM3_CompletedBeforeQueued"), in("internal/server/dispatch", "TestRecordJob_CLAIM3_CLAIM4_TerminalJobsNeverMove")),
	},
	{
		ID: "webhook-stalls", Title: "Webhooks were worked off while GitHub waited, and timed out", Source: ReferenceFleet,
		Elsewhere: `The handler asked the database, the API server and an analytics store. When one was slow GitHub's ten seconds ran out, the ingress
			answered 502 and 504, and the events were lost. Afterwards everything was accepted at once and worked off later.`,
		Here: `One transaction and nothing else. What is not committed within eight seconds is answered 503, so that GitHub has it on its list
			of failed deliveries, and a redelivery makes it good. What is accepted is stored.`,
		Rules:   []string{"RECV-8"},
		Shown:   join(in("", "TestWebhook_RECV8_ADatabaseThatStandsStill"), in("internal/server/http", "TestWebhook_NotCommittedIsNotAcknowledged")),
		Control: `A handler that accepts at once and dies before it has worked off what it accepted leaves nothing on GitHub's list of failures.`,
	},
	{
		ID: "lost-webhook-loses-a-job", Title: "A webhook that never arrived lost its job", Source: Peer,
		Report: Report{URL: "https://github.com/actions/actions-runner-controller/issues/2788", Date: "2023-07-31"},
		Elsewhere: `GitHub does not repeat a delivery. Several fleets wait for events alone: a job whose event was lost waits for a day and is
			cancelled.`,
		Here:  `Missed deliveries are found on GitHub's list and redelivered; a sweep of GitHub's queue is the last resort.`,
		Rules: []string{"RECV-8"},
		Shown: in("internal/server/events/catchup", "TestDeliveries_RECV8_AWebhookThatFailedIsDeliveredAgainOnce", "TestDeliveries_RECV8_WhatRedeliveryDoesNotHealIsFetched", "TestPoll_RECV8_JobsAreTakenFromTheListAlone"),
	},
	{
		ID: "sweep-costs-the-budget", Title: "Asking GitHub for every repository's jobs used up the rate limit", Source: Peer, Flaw: true,
		Elsewhere: `Missed events were looked for by listing the runs and jobs of every active repository every few seconds, and by a
			call for each running job a minute.`,
		Here:  `The list of deliveries is read from where the last look ended; the queue's sweep has a budget from GitHub's own headers.`,
		Rules: []string{"RECV-8"},
		Shown: in("internal/server/events/catchup", "TestDeliveries_UnchangedCostsNothing", "TestDeliveries_TheShareOfTheLimitIsKept"),
	},
	{
		ID: "full-pool-drops-the-job", Title: "A job that found the pool full was dropped", Source: Peer, Flaw: true,
		Report: Report{URL: "https://github.com/cloudbase/garm/issues/47", Date: "2022-10-21"},
		Elsewhere: `The event was answered by trying to start a machine. When the pool had reached its limit nothing was kept that could be
			tried later.`,
		Here:  `A job is queued in the ledger whatever the pools hold, and stays until it is handed out or ends; freed room is used at once.`,
		Rules: []string{"RECV-7", "CLAIM-5"},
		Shown: in("internal/server/dispatch", "TestPoll_CLAIM5_FreedRoomWakesTheQueue"),
	},
	{
		ID: "deleted-before-handled", Title: "A message was acknowledged before it was handled", Source: Peer, Flaw: true,
		Elsewhere: `The listener of a message queue deleted each message and then worked on it. One that died in between had lost it.`,
		Here:      `2xx follows the commit. Deliveries are told apart by their GUID, so one that comes again is applied once.`,
		Rules:     []string{"RECV-8"},
		Shown:     join(in("", "TestWebhook_RECV8_ADatabaseThatStandsStill"), in("internal/server/dispatch", "TestRecordJob_DeliveriesAreDeduplicated")),
	},
	{
		ID: "waiting-jobs", Title: "Jobs that were announced as waiting were never announced as queued", Source: ReferenceFleet,
		Elsewhere: `For jobs behind an approval the second event did not always come, so both were treated alike and runners were
			spent on jobs that were not free to run.`,
		Here:  `A waiting job is kept and not handed out; queued, or that it runs, moves it on, in whichever order they come.`,
		Rules: []string{"CLAIM-3"},
		Shown: join(
			in("internal/fleet", "TestNextJobState_CLAIM3_EveryPair"),
			in("internal/dev/github/standin", "TestWebhooks_WaitingUntilApproved"),
		),
	},
	{
		ID: "event-without-labels", Title: "An event without labels was taken for every pool's", Source: Peer,
		Report: Report{URL: "https://github.com/actions/actions-runner-controller/issues/1370", Date: "2022-04-21"},
		Elsewhere: `An event of a job came with an empty list of labels. It was matched to every pool, and pools were scaled down for a job that had never
			been theirs.`,
		Here: `A list that is null, absent or empty is an empty set of labels, which no pool serves. Each member of each event is tried null, absent
			and of another type, through the real database, by GitHub's own descriptions of its webhooks.`,
		Rules: []string{"RECV-10"},
		Shown: join(
			in("internal/server/events/intake", "TestTake_R12_AJobWithoutLabelsIsRecorded", "TestTake_RECV10_R12_NoMemberOfAPayloadIsAskedForAgain"),
			in("test/descriptions", "TestWebhooks_R12_WhateverTheDescriptionAllowsIsTaken"),
		),
	},
	{
		ID: "event-without-a-job", Title: "An event whose job is null ended the server", Source: Peer,
		Report: Report{URL: "https://github.com/runs-on/runs-on/issues/528", Date: "2026-08-10"},
		Elsewhere: `GitHub delivered events of jobs whose job was null. The server read its members and ended, 57 times in a day, because the event was
			delivered again.`,
		Here:  `The answer is a 400 that names the missing member, and catching up asks for such a delivery twice at most.`,
		Rules: []string{"RECV-10"},
		Shown: join(
			in("internal/github", "TestParseWebhook_R12_ARefusalNamesTheMemberAndNotItsValue"),
			in("internal/server/events/intake", "TestTake_RECV10_R12_NoMemberOfAPayloadIsAskedForAgain"),
		),
	},
	{
		ID: "webhook-of-an-organization", Title: "A webhook that was set on an organization named no installation", Source: Peer,
		Report: Report{URL: "https://github.com/github-aws-runners/terraform-aws-github-runner/pull/515", Date: "2021-02-04"},
		Elsewhere: `Events of a webhook that is set on an organization or a repository, and not on the App, hold no installation id. The server failed on
			each of them.`,
		Here: `The owner's installation is looked up, in the ledger and then at GitHub, and the event is served. Where the App is not installed the answer, the
			log, a metric and doctor say so.`,
		Rules: []string{"TEN-10"},
		Shown: join(
			in("internal/server/events/intake", "TestTake_R14_AnEventWithoutAnInstallationIsServedByItsOwner", "TestTake_R14_WhereTheAppIsNotInstalledIsSaid", "TestTake_TEN10_ManyUnknownOwnersCostFewCalls"),
		),
	},
}
