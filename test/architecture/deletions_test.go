package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// deletions are the functions that delete something in Kubernetes, and what: EXCL-2 needs each of them to be known.
var deletions = map[string]string{
	"internal/controller/removal/Remover.Remove":                                "runner pods: the one remover, behind the fence",
	"internal/controller/pool/removeAccount":                                    "the ServiceAccount of a runner whose pod is gone or going",
	"internal/controller/pool/Reconciler.deleteDaemons":                         "the DaemonSet that pulls the images of a pool which no longer asks for it, or is being deleted; its pods are no runners",
	"internal/controller/selfregistering/registered/Service.removeHelpers":      "pods and Secrets that jobs of a runner that has ended made by GitHub's container hooks",
	"internal/controller/selfregistering/runner/Reconciler.end":                 "a Runner whose one pod has ended or goes; its finalizer waits for GitHub",
	"internal/node/cluster.deletePod":                                           "a pod whose deletion was accepted and whose containers have ended, as a kubelet does",
	"internal/controller/chartjobs/drainKind":                                   "pools of a release that is uninstalled, and owners of runners that register themselves; the controller drains them",
	"internal/cli/uninstall/cluster.deleteOwner":                                "owners of runners, which a controller drains, or the uninstallation itself",
	"internal/cli/uninstall/cluster.removePod":                                  "runners that have ended, or that the server has granted, of an installation without a controller (POOL-13)",
	"internal/cli/uninstall/cluster.deleteAccount":                              "ServiceAccounts of runners that are gone, of an installation without a controller",
	"internal/dev/onebox/applier.applyPools":                                    "pools of an earlier run",
	"internal/dev/onebox/fleetChanges.rename":                                   "the pool of the former name, in the demonstration",
	"internal/controller/selfregistering/runnerreplicaset/backing.Remove":       "Runners, which their own controller lets go behind the fence alone",
	"internal/controller/selfregistering/runnerset/backing.Remove":              "StatefulSets, without their pods",
	"internal/controller/selfregistering/runnerset/backing.removeSecret":        "what a runner of a StatefulSet has registered with, when that goes or has gone",
	"internal/controller/selfregistering/runnerset/backing.removeClaim":         "volume claims of a RunnerSet that is gone and says so",
	"internal/controller/selfregistering/runnerdeployment/Reconciler.removeSet": "RunnerReplicaSets that were observed without a runner (RUN-3)",
}

// TestDeletions_EXCL2_NobodyElseDeletesInKubernetes finds every call of a method that deletes, in every package that
// may speak to Kubernetes.
func TestDeletions_EXCL2_NobodyElseDeletesInKubernetes(t *testing.T) {
	own, _ := modulePackages(t)
	found := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(own)) {
		p := own[path]
		if within(path, "test/kit") || within(path, "test") || !speaksToKubernetes(p.Imports) {
			continue
		}
		for _, name := range p.GoFiles {
			parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, declaration := range parsed.Decls {
				if function, is := declaration.(*ast.FuncDecl); is && deletes(function) {
					found[path+"/"+qualified(function)] = true
				}
			}
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(deletions)), slices.Collect(maps.Keys(found)),
		"a function that deletes in Kubernetes was added or has gone: runner pods are deleted by the one remover alone (EXCL-2); name anything else here, with what it deletes")
}

func speaksToKubernetes(imports []string) bool {
	return slices.ContainsFunc(imports, func(imported string) bool {
		return within(imported, "k8s.io/client-go") || within(imported, "sigs.k8s.io/controller-runtime")
	})
}

// deletes reports whether the function calls a method whose name is one of those that delete, of anything but a package.
func deletes(function *ast.FuncDecl) bool {
	found := false
	ast.Inspect(function, func(node ast.Node) bool {
		call, is := node.(*ast.CallExpr)
		if !is {
			return true
		}
		selector, is := call.Fun.(*ast.SelectorExpr)
		if !is || !slices.Contains([]string{"Delete", "DeleteAllOf", "DeleteCollection", "Evict", "EvictV1", "EvictV1beta1"}, selector.Sel.Name) {
			return true
		}
		if receiver, plain := selector.X.(*ast.Ident); plain && receiver.Name == "slices" {
			return true
		}
		found = true
		return false
	})
	return found
}

// qualified is a function's name, after that of its receiver's type.
func qualified(function *ast.FuncDecl) string {
	if function.Recv == nil || len(function.Recv.List) == 0 {
		return function.Name.Name
	}
	kind := function.Recv.List[0].Type
	if pointer, is := kind.(*ast.StarExpr); is {
		kind = pointer.X
	}
	if named, is := kind.(*ast.Ident); is {
		return named.Name + "." + function.Name.Name
	}
	return function.Name.Name
}
