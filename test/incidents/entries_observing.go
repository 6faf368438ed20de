package incidents

var aboutObserving = []Incident{
	{
		ID: "gauges-never-scraped", Title: "Gauges of request paths were never scraped, or stuck at their last value", Source: ReferenceFleet,
		Elsewhere: `Numbers that were set while a request was served were seen only by the replica that had served it, and those of pools that
			were gone stayed. A query that took the minimum of all replicas was empty, silently.`,
		Here:    `The controller's gauges are written by the pass that decides, and those of a pool that has gone are taken away with it.`,
		Rules:   []string{"POOL-3"},
		Shown:   in("internal/controller/autoscaler", "TestMetrics_TellWhatIsDecidedAndForgetWhatIsGone"),
		Missing: `Gauges of the queue on the server.`,
	},
	{
		ID: "page-for-a-parked-queue", Title: "An alert paged for a queue that only waited for its own limit", Source: ReferenceFleet,
		Elsewhere: `The alert used the age of the oldest job, whether or not any runner could have taken it.`,
		Here:      `The signals distinguish jobs that can start now from blocked ones, with the reason.`,
		Rules:     []string{"SCALE-2"},
		Shown:     in("internal/server/dispatch", "TestSignals_SCALE2_IsWhatPollsAreGiven", "TestDemand_SCALE2_Table"),
		Missing:   `Alerts, and the age of the oldest job that could be handed out.`,
	},
	{
		ID: "ids-as-metric-labels", Title: "Job ids and runner names as metric labels", Source: Peer, Flaw: true,
		Report:    Report{URL: "https://github.com/actions/actions-runner-controller/issues/2873", Date: "2023-09-06"},
		Elsewhere: `Each job made new series. The store of metrics grew without bound.`,
		Here:      `No metric has a label whose values have no bound: no account, job, pod, runner or repository.`,
		Shown:     in("", "TestMetrics_NoLabelNamesWhatHasNoEnd"),
	},
	{
		ID: "why-is-my-job-pending", Title: "Nobody could say why a job was pending", Source: Peer, Flaw: true,
		Elsewhere: `A job that waits looks the same whether no machine fits it, a budget is used up, GitHub limits calls or a label is misspelt.`,
		Here:      `The signals say for each pool how many jobs are blocked and for which reason; a pool's conditions say what its runners wait for.`,
		Rules:     []string{"SCALE-2"},
		Shown:     join(in("internal/server/dispatch", "TestSignals_SCALE2_Suspended", "TestSignals_CLAIM11_Backoff", "TestSignals_CLAIM12_ConflictAndTerminating"), in("internal/controller", "TestPool_StarvedRepeatsWhatTheSchedulerSays")),
		Missing:   `The answer for one job, for a person.`,
	},
	{
		ID: "wrapped-exit-codes", Title: "The runner's exit code said success whatever had happened", Source: ReferenceFleet, Flaw: true,
		Elsewhere: `The runner's own wrapper turns most exit codes into 0, so nothing could be concluded from them.`,
		Here:      `No decision goes by a runner's exit code: what a job came to is GitHub's word, and that a pod has ended is its node's.`,
		Rules:     []string{"NODE-4", "POOL-4"},
		Shown:     in("internal/agent", "TestSupervise_RunsOnceAndKeepsTheExitCode"),
	},
}
