package incidents

var aboutClusters = []Incident{
	{
		ID: "quota-refuses-every-pod", Title: "A quota on limits refused every runner", Source: Peer,
		Report: Report{URL: "https://github.com/actions/actions-runner-controller/issues/1071", Date: "2022-01-25"},
		Elsewhere: `A ResourceQuota that limits CPU or memory refuses each pod with a container that has no limit. The runner's container had one, the
			containers beside it had none, and no field set any.`,
		Here: `Every container that Bullpen makes requests and limits CPU, memory and ephemeral storage, in pods of runners, in the chart and in its
			hooks. Pools and chart values change them. The doctor names the quota or the LimitRange, the container, and the field.`,
		Shown: join(
			in("internal/controller", "TestRules_POD1_R6_AQuotaOnLimitsTakesRunners", "TestRules_POD1_R6_ALimitRangeWithMinimaTakesRunners"),
			in("test/chart", "TestPods_POD1_R6_EveryContainerHasRequestsAndLimits", "TestPods_POD1_POD2_ANamespaceWithRulesTakesThem"),
			in("internal/cli/doctor", "TestRemedies_R6_R11_NameTheRuleAndTheField"),
		),
	},
	{
		ID: "sidecar-keeps-the-pod", Title: "A container beside the runner kept the ended pod Running", Source: Peer,
		Report: Report{URL: "https://github.com/actions/actions-runner-controller/issues/112", Date: "2020-10-06"},
		Elsewhere: `The runner had exited, another container of its pod ran on, and so the pod's phase was Running for ever. The controller went by the phase,
			and the runner was not replaced.`,
		Here: `The end of the poller and the runner is the end of the pod, whatever the phase says and whatever was injected. It is reported, replaced, and
			deleted with a grace period of 2 seconds, also when it was being deleted with hours for its job. Labels and annotations of the pool's template
			opt out of a mesh.`,
		Rules: []string{"POOL-4"},
		Shown: join(
			in("internal/controller", "TestRules_POD3_R10_AnInjectedSidecarKeepsNoRunner"),
			in("internal/controller/pool", "TestObserve_POD3_R10_TheEndOfItsContainersIsTheEndOfAPod", "TestRemove_POD3_R10_WhatWasInjectedIsStopped"),
		),
	},
	{
		ID: "pod-security-refuses-every-pod", Title: "Pod Security refused every runner, and no field helped", Source: Peer, Flaw: true,
		Report:    Report{URL: "https://github.com/actions/actions-runner-controller/issues/263", Date: "2021-01-19"},
		Elsewhere: `The runner's container had no security context, or one that could not be changed, so namespaces that enforce the level restricted took no runner.`,
		Here: `A runner's pod conforms to restricted unless its pool asks for more. A pool can set the container's security context, and leave the user to the
			cluster, as OpenShift requires.`,
		Shown: join(
			in("internal/controller", "TestRules_POD2_R11_PodSecurityTakesRunners", "TestRules_POD1_POD2_R10_PoliciesTakeRunners"),
			in("internal/runnerpod", "TestBuild_POD2_R11_ConformsToRestricted", "TestBuild_POD2_R11_APoolAsksForMore"),
		),
	},
	{
		ID: "pull-secrets-without-effect", Title: "Pull secrets of the namespace had no effect on runners", Source: Peer,
		Report:    Report{URL: "https://github.com/actions/actions-runner-controller/issues/3652", Date: "2024-07-11"},
		Elsewhere: `A private image needs a pull secret. The one of the namespace's ServiceAccount reaches only pods without an account of their own.`,
		Here:      `The template has imagePullSecrets, and those of the ServiceAccount default are added to each runner's pod and account. The doctor names secrets that do not exist.`,
		Shown: join(
			in("internal/controller", "TestRules_POD4_R18_PullSecretsOfTheDefaultAccount"),
			in("internal/cli/doctor", "TestDoctor_R10_R16_R18_ByTheRealCluster"),
		),
	},
	{
		ID: "nodes-of-two-architectures", Title: "Runners started on nodes of an architecture that their image lacks", Source: Peer, Flaw: true,
		Report:    Report{URL: "https://github.com/actions/actions-runner-controller/issues/3539", Date: "2024-05-24"},
		Elsewhere: `Nothing in the specification of a runner said which architecture it is for, so the scheduler chose either.`,
		Here:      `A pool has an architecture. Without one its runners get amd64 where nodes for Linux differ, and any node where they do not.`,
		Shown: join(
			in("internal/controller", "TestRules_POD5_R16_NodesOfTwoArchitectures"),
			in("internal/runnerpod", "TestDefaultArchitecture_POD5_R16_OnlyWhereNodesDiffer"),
		),
	},
}
