package soak

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/rights"
)

const (
	controllerUser = "system:serviceaccount:bullpen-system:bullpen-controller"
	adminUser      = "system:serviceaccount:bullpen-system:bullpen-admin"
	serverUser     = "system:serviceaccount:bullpen-system:bullpen-server"
)

// unusedRights are those that everythingOnce does not use, or not always. The tests that they name run under the same roles.
var unusedRights = []rights.Exception{
	{
		User: controllerUser, Verbs: []string{"update"}, Group: "bullpen.dev", Resource: "runnerpools/finalizers", Namespace: runnerNamespace,
		Why:  "it is no request, and only a controller of an earlier release needs it, during an upgrade: its pods block their pool's deletion",
		Test: "TestRoles_NET8_AreLeastPrivilege",
	},
	{
		User: controllerUser, Verbs: []string{"list", "watch"}, Group: "node.k8s.io", Resource: "runtimeclasses",
		Why: "only pools that name a runtime class have it looked for", Test: "TestRoles_NET8_AreLeastPrivilege",
	},
	{
		User: controllerUser, Verbs: []string{"create", "update", "delete"}, Group: "apps", Resource: "daemonsets", Namespace: runnerNamespace,
		Why: "only pools with spec.imagePrepull have one", Test: "TestPrepull_NET8_TheDaemonSetFollowsItsPool",
	},
	{
		User: controllerUser, Verbs: []string{"list"}, Group: "apps", Resource: "daemonsets", Namespace: runnerNamespace, Sometimes: true,
		Why: "a watch that the API server begins with all there is asks for no list; one that was broken off, or an older server, does", Test: "TestPrepull_NET8_TheDaemonSetFollowsItsPool",
	},
	{
		User: controllerUser, Verbs: []string{"patch"}, Group: "events.k8s.io", Resource: "events", Namespace: runnerNamespace, Sometimes: true,
		Why: "an Event that occurs again within minutes is counted in the first one", Test: "TestRoles_NET8_AnEventThatOccursAgainIsCounted",
	},
	{
		User: controllerUser, Verbs: []string{"get"}, Group: "bullpen.dev", Resource: "runnerpools", Namespace: runnerNamespace, Sometimes: true,
		Why:  "a pool that the cache lacks while runners of it are left is looked for past the cache: its finalizer was taken off by force",
		Test: "TestPool_POOL2_AForcedDeletionKillsNobody",
	},
	{
		User: controllerUser, Verbs: []string{"get"}, Resource: "serviceaccounts", Namespace: runnerNamespace, Sometimes: true,
		Why:  "one without a pod is looked at past the cache (POOL-1): a controller died between the two",
		Test: "TestPool_POOL1_ServiceAccountOfAVanishedPodIsRemoved",
	},
	{
		User: controllerUser, Verbs: []string{"patch"}, Resource: "pods", Namespace: runnerNamespace, Sometimes: true,
		Why:  "takes the sandbox's finalizer off a pod whose node is gone (POOL-7), or writes down the proof that lets a runner go (EXCL-7)",
		Test: "TestPool_POOL7_RunnersOfAVanishedNode",
	},
	{
		User: controllerUser, Verbs: []string{"get"}, Resource: "nodes", Sometimes: true,
		Why:  "a node that runners are bound to and the watch lacks is looked for past the cache (POOL-7), unless it is back before that",
		Test: "TestPool_POOL7_RunnersOfAVanishedNode",
	},
	{
		User: controllerUser, Verbs: []string{"get"}, Resource: "pods/log", Namespace: runnerNamespace, Sometimes: true,
		Why: "only of runners that died is the log read", Test: "TestUp",
	},
	{
		User: serverUser, Verbs: []string{"get"}, Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies", Name: "bullpen-authors", Sometimes: true,
		Why: "it is read for tokens and changes of pools that name a user", Test: "TestAuthors_NET5_TheClusterVerifiesNames",
	},
	{
		User: serverUser, Verbs: []string{"get"}, Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings", Name: "bullpen-authors", Sometimes: true,
		Why: "as above", Test: "TestAuthors_NET5_TheClusterVerifiesNames",
	},
	{
		User: adminUser, Verbs: []string{"get", "list", "update", "delete"}, Group: "bullpen.dev", Resource: "accounts",
		Why: "the resource is in roles only: the server asks what an administrator may do", Test: "TestAdmins_NET5_NET8_EveryEndpointAsksTheCluster",
	},
	{
		User: adminUser, Verbs: []string{"list"}, Group: "bullpen.dev", Resource: "audits",
		Why: "as above", Test: "TestAdmins_NET5_NET8_EveryEndpointAsksTheCluster",
	},
	{
		User: adminUser, Verbs: []string{"get", "list"}, Group: "bullpen.dev", Resource: "jobs",
		Why: "as above", Test: "TestAdmins_NET5_NET8_EveryEndpointAsksTheCluster",
	},
	{
		User: adminUser, Verbs: []string{"get", "list"}, Group: "bullpen.dev", Resource: "pools",
		Why: "as above", Test: "TestAdmins_NET5_NET8_EveryEndpointAsksTheCluster",
	},
	{
		User: adminUser, Verbs: []string{"list"}, Group: "bullpen.dev", Resource: "usages",
		Why: "as above", Test: "TestAdmins_NET5_NET8_EveryEndpointAsksTheCluster",
	},
	{
		User: adminUser, Verbs: []string{"list"}, Group: "bullpen.dev", Resource: "hosts",
		Why: "as above", Test: "TestAdmins_NET5_NET8_EveryEndpointAsksTheCluster",
	},
	{
		User: adminUser, Verbs: []string{"list", "retire"}, Group: "bullpen.dev", Resource: "runnerpods",
		Why: "as above", Test: "TestAdmins_NET5_NET8_EveryEndpointAsksTheCluster",
	},
	{
		User: adminUser, Verbs: []string{"get"}, Group: "bullpen.dev", Resource: "runnerlogs",
		Why: "as above", Test: "TestAdmins_NET5_NET8_EveryEndpointAsksTheCluster",
	},
}

// The tests that the exceptions name are there.
func TestRights_NET8_EveryExceptionHasATest(t *testing.T) {
	var sources strings.Builder
	require.NoError(t, filepath.WalkDir(filepath.Join("..", ".."), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		sources.Write(content)
		return err
	}))
	for _, exception := range unusedRights {
		require.NotEmpty(t, exception.Why)
		require.Contains(t, sources.String(), "func "+exception.Test+"(t *testing.T)")
	}
}
