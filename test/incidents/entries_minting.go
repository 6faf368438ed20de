package incidents

var aboutMinting = []Incident{
	{
		ID: "runner-name-too-long", Title: "Runner names longer than GitHub allows were refused for ever", Source: ReferenceFleet,
		Elsewhere: `Names were made of the pod's name. A long pool name went over 64 characters, each mint was answered 422, and its jobs
			never ran.`,
		Here:    `A name is made of the pod's UID and the claim's generation: at most 43 characters, whatever the pool is called.`,
		Rules:   []string{"CLAIM-10"},
		Shown:   join(in("", "TestName_CLAIM10_OfAPoolWithALongName"), in("internal/runnerpod", "TestRunnerName_CLAIM10_IsUniquePerMintAndShort")),
		Control: `A mint under the pod's own name is refused.`,
	},
	{
		ID: "runner-name-used-again", Title: "A name used again after a lost answer was refused for ever", Source: ReferenceFleet,
		Elsewhere: `The answer to a mint was lost, the same name was tried again, and GitHub answered that it exists: without end.`,
		Here: `Each mint has a name of its own, written down before GitHub is asked. What may have been registered under the former one is
			found by it and removed.`,
		Rules:   []string{"CLAIM-10", "CLAIM-16"},
		Shown:   join(in("", "TestName_CLAIM10_CLAIM16_UsedAgainAfterALostAnswer"), in("internal/server/dispatch", "TestPoll_CLAIM16_AmbiguousMintIsFoundByNameAndRemoved")),
		Control: `The same name again is refused as often as it is tried.`,
	},
	{
		ID: "wrong-organization", Title: "Runners were asked for at an organization that does not exist", Source: ReferenceFleet,
		Elsewhere: `Mints went to the account's handle in the product instead of the repository owner's login. Where the two differed GitHub
			answered 404, and the pool spun: claim, fail, release, every two seconds.`,
		Here: `Where a runner registers is read from the repository owner of the job's own events. An installation that fails backs
			off by itself and lets one mint at a time ask whether that is over; other accounts do not notice.`,
		Rules: []string{"CLAIM-11", "CLAIM-8"},
		Shown: join(in("", "TestInstallation_CLAIM11_AWrongLoginPinsAndSpinsNothing"), in("internal/server/dispatch", "TestPoll_CLAIM11_OneOutageCountsOnce")),
	},
	{
		ID: "one-refusal-stops-an-account", Title: "One repository that GitHub refused stopped all others", Source: Peer,
		Report: Report{URL: "https://github.com/runs-on/runs-on/issues/417", Date: "2025-12"},
		Elsewhere: `The App had no right to register runners in one repository. Its job stayed at the head of the queue, each attempt was refused, and
			the other jobs of the organization waited behind it.`,
		Here: `GitHub's answer is classed by what it speaks of. A job or a repository that is refused is set aside, out of the queue, and one job tries
			again after a growing wait; the others of the account are served at once. The pool's condition, doctor and why have GitHub's words.`,
		Rules: []string{"CLAIM-19"},
		Shown: join(
			in("", "TestRefusal_CLAIM19_EveryStatusAndRoute"),
			in("internal/server/dispatch", "TestRefusal_CLAIM19_OnlyWhatItSpeaksOfWaits", "TestRefusal_CLAIM19_ARepositoryIsTriedByOneJob"),
			in("internal/fleet", "TestRefusedBy_CLAIM19_EveryStatusAndRoute"),
		),
	},
	{
		ID: "runner-takes-other-jobs", Title: "Runners of one fleet took jobs that were meant for another", Source: Peer,
		Report: Report{URL: "https://github.com/actions/actions-runner-controller/issues/737", Date: "2021-08-19"},
		Elsewhere: `Runners were registered with the labels self-hosted and linux beside their own, and GitHub gave them every job that asked for those
			alone.`,
		Here: `A runner is registered with the labels of the job that it was made for and no others, and a pool takes a job only if it lists all of the
			job's labels. So no job of another kind can run there, whatever GitHub chooses.`,
		Rules: []string{"CLAIM-18"},
		Shown: in("internal/server/dispatch", "TestLabels_CLAIM18_NoJobRunsOnAPoolThatDoesNotServeIt", "TestMint_CLAIM18_RegistersTheLabelsOfTheJob"),
	},
	{
		ID: "runner-group-does-not-serve", Title: "Runners idled because their group did not serve the repository", Source: Peer,
		Report: Report{URL: "https://github.com/cloudbase/garm/issues/236", Date: "2024-03"},
		Elsewhere: `The runner group was open to selected repositories, and the job's was none of them. Runners were registered, idled, were removed and
			registered again, for as long as the job was queued.`,
		Here: `After two such runners the repository's jobs wait in that pool with a growing back-off, and hold nothing of the account's limit. Which
			setting it is, is read at GitHub and told, with the command that changes it.`,
		Rules: []string{"CLAIM-20"},
		Shown: join(
			in("internal/server/dispatch", "TestNotAssigned_CLAIM20_TheRepositoryWaitsInThatPool"),
			in("internal/server/recovery", "TestPass_CLAIM20_AGroupThatDoesNotServeTheRepository"),
			in("internal/github", "TestGroupAccess_CLAIM20_EachVisibility"),
		),
	},
	{
		ID: "burst-beyond-the-rate-limit", Title: "A burst of mints ran into GitHub's limits and every claim waited", Source: Peer, Flaw: true,
		Elsewhere: `Clients that sleep inside a call until the limit is over hold what they have locked, for minutes.`,
		Here:      `A mint slot is reserved before a claim is made; what GitHub will not mint now waits in the queue. No client sleeps.`,
		Rules:     []string{"CLAIM-14", "CLAIM-11"},
		Shown: join(
			in("internal/server/dispatch", "TestPoll_CLAIM14_BurstBeyondTheBudgetWaitsInTheQueue", "TestPoll_CLAIM14_LooksAgainAtTheReset"),
			in("internal/github", "TestStandin_RegistrationBudgetEmpties"),
		),
	},
	{
		ID: "forbidden-means-gone", Title: "A refused look was taken for a runner that is gone", Source: Peer, Flaw: true,
		Elsewhere: `A removal answered 403 or 404 counted as done. After a permission was withdrawn every runner looked unregistered, and pods were
			deleted under their jobs.`,
		Here:  `403 and 404 count only beside a successful read of the same scope just then; otherwise nothing is known, and nothing goes.`,
		Rules: []string{"EXCL-6", "EXCL-3"},
		Shown: join(
			in("internal/server/dispatch", "TestPoll_EXCL6_WhatProvesARegistrationGone"),
			in("internal/github", "TestToken_RefusalIsNeverNotFound_EXCL6"),
		),
	},
	{
		ID: "clock-ahead-of-github", Title: "A host whose clock was ahead got no token", Source: Peer,
		Report: Report{URL: "https://github.com/microsoft/AL-Go/pull/2289", Date: "2026-06-22"},
		Elsewhere: `GitHub refuses an App's token that was issued in its future, even by a second. The tokens were dated ten seconds back, and a machine
			whose clock was further ahead failed with 401, now and then.`,
		Here: `Tokens are dated a minute back, and by GitHub's clock: each answer says what time it is there. A call that was refused for its date is
			repeated once with the right one, so hosts may be ten minutes off either way.`,
		Shown: in("internal/github", "TestClient_R13_TheHostsClockMayBeTenMinutesOff", "TestClient_R13_AClockThatJumpsIsFollowed"),
	},
}
