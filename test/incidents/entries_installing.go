package incidents

var aboutInstalling = []Incident{
	{
		ID: "a-private-ca-for-github", Title: "An Enterprise Server whose certificate a private CA had signed could not be reached", Source: Peer,
		Report: Report{URL: "https://github.com/actions/actions-runner-controller/issues/949", Date: "2021-11-15"},
		Elsewhere: `The controller could not register runners ("certificate signed by unknown authority"), and no setting gave it the CA; runners needed another
			image of their own.`,
		Here: `One value of the chart gives the CA to the server, the controller and runners, and one the proxy; the API's address is derived from the web
			address. Runners trust the CA beside their image's, whichever variable a tool reads.`,
		Rules: []string{"NET-12"},
		Shown: join(
			in("cmd/bullpen", "TestGitHub_R7_NET12_AnEnterpriseServerBehindAProxy"), in("internal/github", "TestAPIAddress_R7_IsDerivedFromAnyAddressOfAGitHub"),
			in("internal/agent", "TestSupervise_R7_TrustsTheCABesideTheImages"), in("internal/runnerpod", "TestBuild_R7_NET12_RunnersUseTheProxyAndTrustTheCA"),
			in("test/chart", "TestNetworkPolicy_R7_LeadsToAPrivateGitHub"),
		),
	},
	{
		ID: "ownership-marks-copied", Title: "Objects that the fleet had made were pruned by Argo CD", Source: Peer,
		Report: Report{URL: "https://github.com/actions/actions-runner-controller/pull/3575", Date: "2024-06-05"},
		Elsewhere: `The label by which Argo CD finds what it has applied was copied from the owner to what was made for it. Argo CD did not find that in its source,
			and deleted it at each synchronization.`,
		Here:  `No object that the product makes carries a mark of Argo CD, Flux, Helm or another tool, whatever its owner or template carries.`,
		Rules: []string{"RUN-9"},
		Shown: in("internal/runnerpod", "TestBuild_RUN9_NoObjectIsMarkedAsATools"),
	},
	{
		ID: "no-hook-before-the-deletion", Title: "An uninstallation by a GitOps tool never ended", Source: Peer,
		Report: Report{URL: "https://github.com/argoproj/argo-cd/issues/22063", Date: "2025-02-27"},
		Elsewhere: `What had to be done before a deletion was a hook of Helm's, which Argo CD does not run. The controller was deleted first, and what it had to let
			go stayed Terminating, with its namespace, until people took finalizers off.`,
		Here: `A pool says in advance who takes its finalizer off. Where no controller is left, one command removes idle runners behind the fence, waits for busy
			ones, and takes the finalizers off last. Rendered without Helm the chart has no hooks, which would drain the pools at once.`,
		Rules: []string{"POOL-13", "POOL-2"},
		Shown: join(
			in("internal/cli/uninstall", "TestRun_R9_POOL13_EndsWithoutAController", "TestRun_R9_EXCL3_WithoutAServerAPersonDecides"),
			in("internal/controller/pool", "TestConditions_POOL13_SayInAdvanceWhatADeletionWaitsFor"),
			in("test/chart", "TestTemplate_R9_POOL13_AppliedAndDeletedAtOnceInAnyOrder", "TestTemplate_R9_HasNoHooks"),
		),
	},
}
