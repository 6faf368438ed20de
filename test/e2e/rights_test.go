package e2e

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bullpen-ci/bullpen/charts"
	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
	"github.com/bullpen-ci/bullpen/test/rights"
)

const (
	controllerUser  = "system:serviceaccount:bullpen-system:bullpen-controller"
	runnerNamespace = "bullpen-runners"
)

// unusedBySelfRegistering are rights of the role for runners that register themselves that the storm does not use, or not always.
var unusedBySelfRegistering = []rights.Exception{
	{
		User: controllerUser, Verbs: []string{"update"}, Group: "bullpen.dev", Resource: "runnerdeployments/finalizers", Namespace: runnerNamespace,
		Why: blocking, Test: blockingTest,
	},
	{
		User: controllerUser, Verbs: []string{"update"}, Group: "bullpen.dev", Resource: "runnerreplicasets/finalizers", Namespace: runnerNamespace,
		Why: blocking, Test: blockingTest,
	},
	{
		User: controllerUser, Verbs: []string{"update"}, Group: "bullpen.dev", Resource: "runnersets/finalizers", Namespace: runnerNamespace,
		Why: blocking, Test: blockingTest,
	},
	{
		User: controllerUser, Verbs: []string{"update"}, Group: "bullpen.dev", Resource: "runners/finalizers", Namespace: runnerNamespace,
		Why: blocking, Test: blockingTest,
	},
	{
		User: controllerUser, Verbs: []string{"update"}, Group: "apps", Resource: "statefulsets/finalizers", Namespace: runnerNamespace,
		Why: blocking, Test: blockingTest,
	},
	{
		User: controllerUser, Verbs: []string{"list"}, Group: "bullpen.dev", Resource: "runnerdeployments", Namespace: runnerNamespace, Sometimes: true,
		Why: streamed, Test: streamedTest,
	},
	{
		User: controllerUser, Verbs: []string{"list"}, Group: "bullpen.dev", Resource: "runnersets", Namespace: runnerNamespace, Sometimes: true,
		Why: streamed, Test: streamedTest,
	},
	{
		User: controllerUser, Verbs: []string{"list"}, Resource: "secrets", Namespace: runnerNamespace, Sometimes: true,
		Why: "as above, and by the end of a runner in container mode Kubernetes", Test: "TestPods_HelpersOfJobsGoBeforeTheRunner",
	},
	{
		User: controllerUser, Verbs: []string{"get"}, Group: "bullpen.dev", Resource: "runners", Namespace: runnerNamespace, Sometimes: true,
		Why: "one that the cache lacks while a pod names it as its owner is looked for past the cache", Test: "TestPods_RUN2_EXCL2_AnOrphanIsUnregisteredAndRemoved",
	},
	{
		User: controllerUser, Verbs: []string{"get"}, Group: "bullpen.dev", Resource: "runnerreplicasets", Namespace: runnerNamespace, Sometimes: true,
		Why: "a set that was created and that the cache lacks is looked for past the cache", Test: "TestDeployment_RUN3_RollsWithoutEndingAJobAndEndsWithOneSet",
	},
}

const (
	blocking     = "it is no request: whoever names an owner whose deletion waits for what it owns is asked whether they may"
	blockingTest = "TestRoles_NET8_WhatBlocksItsOwnersDeletionNeedsTheOwnersFinalizers"
	streamed     = "a watch that the API server begins with all there is asks for no list; one that was broken off, or an older server, does"
	streamedTest = "TestRoles_NET8_AreLeastPrivilege"
)

// checkSelfRegisteringRights compares what the role grants with the requests to the API server: each right is used, and no
// request was refused. The controller's other roles are the soak's matter.
func checkSelfRegisteringRights(t *testing.T, auditLog string) {
	t.Helper()
	log, err := os.Open(auditLog)
	require.NoError(t, err)
	defer func() { _ = log.Close() }()
	uses, err := rights.ReadLog(log)
	require.NoError(t, err)
	files, err := charts.Rendered()
	require.NoError(t, err)
	var manifests []helmchart.Manifest
	for _, file := range files {
		manifests = append(manifests, helmchart.Manifest{Path: file.Name, Content: string(file.Content)})
	}
	objects, err := helmchart.Objects(manifests)
	require.NoError(t, err)
	all, err := rights.Granted(objects)
	require.NoError(t, err)
	own, err := rights.Granted(slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetName() != "bullpen-self-registering" }))
	require.NoError(t, err)
	require.NotEmpty(t, own)
	for _, found := range rights.Compare(all, uses, unusedBySelfRegistering) {
		if found.Kind == rights.Refused || slices.Contains(own, found.Right) {
			t.Error(found)
		}
	}
	t.Run("control: a right too many is found", func(t *testing.T) {
		many := append(slices.Clone(all), rights.Right{User: controllerUser, Verb: "update", Group: "apps", Resource: "statefulsets", Namespace: runnerNamespace})
		require.Condition(t, func() bool {
			return slices.ContainsFunc(rights.Compare(many, uses, unusedBySelfRegistering), func(f rights.Finding) bool {
				return f.Kind == rights.Unused && f.Right == many[len(many)-1]
			})
		})
	})
}
