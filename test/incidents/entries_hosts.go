package incidents

// onAModel says what the tests of Mac hosts cannot show.
const onAModel = `On a real Mac: the project has none, and the tests run on a model of macOS. docs/guides/macos.md lists what to try on one.`

var aboutMacHosts = []Incident{
	{
		ID: "duplicated-firewall-block", Title: "The firewall's configuration held one block twice and no longer loaded", Source: ReferenceFleet,
		Elsewhere: `An anchor was appended when a search did not find it, and then it was there twice: the same tables were defined twice, the load failed, and
			an old rule set stayed in force. A later version removed the marked blocks and kept the older unmarked one.`,
		Here: `Exactly one canonical block, whatever the file held before: marked, unmarked, or both. The file is checked before it is replaced, and what is in
			force is compared with what it says.`,
		Rules: []string{"HOST-2"},
		Shown: join(in("internal/machost/steps", "TestIncident_HOST2_TheBlockWasThereTwice", "TestIncident_HOST2_TheOlderUnmarkedStanza"),
			in("internal/machost/pfconf", "TestAttach_HOST2_MendsTheFileThatPfRefused", "TestAttach_HOST2_UnmarkedLinesDoNotSurviveBesideABlock")),
		Impossible: onAModel,
	},
	{
		ID: "sealed-auto-login", Title: "A wrong password silently disabled auto-login", Source: ReferenceFleet,
		Elsewhere: `The system replaced the file of the encoded password by a word that means "sealed". No desktop session came up, and every machine on
			four hosts failed to start; the manual preparation did not look either.`,
		Here: `The file is read again after each restart of the login window and in every apply, by hand or from afar, whether or not anything was changed: a
			sealed one fails it. The same password is not tried twice, and one that worked is put back. A host without a session says so in a condition, offers no slot for
			another machine, and fails no pod.`,
		Rules: []string{"HOST-3", "NODE-9"},
		Shown: join(in("internal/machost/steps", "TestIncident_HOST3_AWrongPasswordIsSealed", "TestIncident_HOST3_EverythingWasThereAndTheFileIsSealed",
			"TestAutoLogin_HOST3_ARefusedPasswordIsTriedOnce", "TestAutoLogin_HOST3_AMistypedPasswordDoesNotCostTheOneThatWorks"),
			in("cmd/bullpen", "TestIncident_HOST3_PrepareWhereSudoersAreThereAndThePasswordIsMistyped", "TestIncident_HOST3_PrepareWhereAllIsThereAndTheFileSealedSince"),
			in("internal/machost/autologin", "TestDecode_HOST3_SealedIsNoPassword"),
			in("internal/node/sandbox/tart", "TestSession_NODE9_IsEnsuredBeforeEachStart")),
		Impossible: onAModel,
	},
	{
		ID: "login-window-is-gone", Title: "Restarting the login window failed when it was not running", Source: ReferenceFleet,
		Elsewhere: `A signal needs a process. One that had ended at an earlier signal was not started again by the system, and there was nothing to signal.`,
		Here:      `The service manager is asked, which starts it whether or not it runs; and never while a machine runs in the session.`,
		Rules:     []string{"HOST-4", "NODE-9"},
		Shown: join(in("internal/machost/steps", "TestIncident_HOST4_TheLoginWindowIsDead", "TestAutoLogin_WaitsForMachines"),
			in("internal/node/sandbox/tart", "TestSession_NODE9_ComesBackWithoutAPod", "TestSession_NODE9_IsEnsuredBeforeEachStart")),
		Impossible: onAModel,
	},
	{
		ID: "nat-stops-silently", Title: "Address translation stopped, and machines were Ready and useless", Source: ReferenceFleet,
		Elsewhere: `Rules that were right were never evaluated, because the rule set that should have called them had failed to load.`,
		Here: `Each apply asks the filter for the rule set that is in force, and fails loudly where it does not call the system's translation, or where machines
			run and nothing is translated or forwarded for them.`,
		Rules: []string{"HOST-1", "HOST-2"},
		Shown: in("internal/machost/steps", "TestNAT_HOST2_FindsThatApplesHookIsNotInForce", "TestNAT_WhileMachinesRunTheyMustHaveANetwork",
			"TestNAT_WantsApplesLinesInTheFile", "TestIncident_HOST2_TheBlockWasThereTwice", "TestEgress_HOST2_FindsOutThatItIsNotInForce"),
		Impossible: onAModel + ` Between two applies nothing looks.`,
	},
	{
		ID: "image-size-read-twice", Title: "A size that two subcommands write differently had images pulled again each time", Source: ReferenceFleet,
		Elsewhere: `One command prints a number and the other a text. The base image never looked complete.`,
		Here:      `A base is known by its image's digest and by a record of its own that it was made to the end; no size decides anything.`,
		Shown:     in("internal/node/sandbox/tart", "TestGolden_IsMadeOncePerDigest"),
	},
	{
		ID: "recovery-spends-its-time-on-stopped-machines", Title: "Recovery used up its time on stopped machines, and start-up looped", Source: ReferenceFleet,
		Elsewhere: `Finding again what runs had thirty seconds, spent on images that cannot answer; what did run was started a second time and
			refused.`,
		Here: `Adoption asks the records of what was started and looks at nothing else; a look that fails is repeated and starts
			nothing.`,
		Rules: []string{"NODE-3", "NODE-6"},
		Shown: join(in("internal/node", "TestRestart_NODE3_ANewAgentAdoptsWhatRuns", "TestOrphan_IsEndedAlthoughTheFirstLookFails"),
			in("internal/node/sandbox/tart", "TestKilledAgent_NODE3_ConvergesFromEveryStep", "TestClose_NODE3_StopsNoMachine")),
	},
	{
		ID: "management-path-closed", Title: "A flood of connections closed every way to manage a host", Source: ReferenceFleet,
		Elsewhere: `Rules against it were added step by step; each could have locked out the administrator who added it.`,
		Here: `Who may open SSH connections is one rule set in an anchor of its own. It is written for good only after a new connection was made under it; until then
			a process of its own, or a restart, takes it back, also when the apply was killed. Whoever would shut out himself is refused, and machines never get in.`,
		Rules: []string{"HOST-7"},
		Shown: join(in("internal/machost/steps", "TestSSHGuard_HOST7_IsKeptOnceItIsConfirmed", "TestSSHGuard_HOST7_RefusesToShutOutWhoAsks",
			"TestSSHGuard_HOST7_IsTakenBackWhenNobodyConfirms", "TestSSHGuard_HOST7_AKilledApplyLeavesTheWayOpen", "TestSSHGuard_HOST7_WhatIsNotConfirmedDoesNotLast"),
			in("cmd/bullpen", "TestWatchdog_HOST7_OutlivesTheApply"),
			in("internal/machost/remote", "TestModel_HOST7_AGuardThatWouldLockUsOutIsRefused", "TestModel_HOST7_AGuardThatIsNotConfirmedIsTakenBack")),
		Impossible: `The flood itself: what bounds it is the list of networks, and sshd's own settings. ` + onAModel,
	},
	{
		ID: "host-loses-its-identity", Title: "A host lost its place in the private network", Source: ReferenceFleet,
		Elsewhere: `It had been registered as ephemeral, and was forgotten while it was off.`,
		Here:      `Hosts are reached at the address that their object names; how they join a private network is up to their administrator.`,
		Missing:   `Joining hosts to a private network.`,
	},
	{
		ID: "pushed-but-never-applied", Title: "A configuration was pushed and silently never applied", Source: ReferenceFleet,
		Elsewhere: `A service skipped each new version of its configuration, and no check compared the two.`,
		Here: `What was applied is recorded only when every step has proven itself, and the node agent's only once a new process has stayed up. The record says
			which configuration it was, and the controller compares.`,
		Rules:      []string{"HOST-5"},
		Shown:      in("internal/machost/steps", "TestNodeAgent_HOST5_CountsOnlyOnceANewProcessHasStayed"),
		Impossible: onAModel,
	},
	{
		ID: "more-machines-than-licensed", Title: "Three machines were advertised where two are allowed", Source: ReferenceFleet, Flaw: true,
		Elsewhere: `The limit was left to the virtual machine's own refusal, while the node offered one place more.`,
		Here:      `The agent itself counts, others' machines included, and offers what it can start.`,
		Rules:     []string{"NODE-5"},
		Shown: join(in("internal/node/sandbox/tart", "TestSlots_NODE5_AreCountedByTheAgent", "TestSlots_NODE5_OthersMachinesCount"),
			in("internal/runnerpod", "TestBuild_NODE5_AMacRunnerTakesOneSlotOfAMac")),
	},
}
