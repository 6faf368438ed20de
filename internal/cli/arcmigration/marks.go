package arcmigration

import (
	"slices"
	"strings"
)

const oldHelm = "the first versions of Helm marked the objects of a release with it"

// keptMarks are in the domain of a tool, and say something of the object itself.
var keptMarks = []string{"kubectl.kubernetes.io/default-container", "kubectl.kubernetes.io/default-logs-container"}

// ownMarks are labels and annotations of one name that a tool, or the peer's controller, goes by.
var ownMarks = map[string]string{
	"actions-runner":               "only actions-runner-controller reads it",
	"actions-runner-controller":    "only actions-runner-controller reads it",
	"runner-deployment-name":       "only actions-runner-controller reads it",
	"runner-template-hash":         "only actions-runner-controller reads it",
	"runnerset-name":               "only actions-runner-controller reads it",
	"app.kubernetes.io/instance":   "Argo CD and Helm track the objects of a release by it",
	"app.kubernetes.io/managed-by": "Helm, or another tool that it names, does not manage the new object",
	"app.kubernetes.io/part-of":    "the object is now part of something else",
	"app.kubernetes.io/version":    "it is the version of the old chart",
	"heritage":                     oldHelm,
	"kubernetes.io/change-cause":   "it describes a change of the old object",
	"olm.owner":                    "the Operator Lifecycle Manager tracks the objects of an operator by it",
	"olm.owner.namespace":          "the Operator Lifecycle Manager tracks the objects of an operator by it",
	"olm.owner.kind":               "the Operator Lifecycle Manager tracks the objects of an operator by it",
	"olm.managed":                  "the Operator Lifecycle Manager tracks the objects of an operator by it",
}

// markDomains are the domains of tools that know by labels and annotations what they own, and delete what they own and do not find in their
// sources. What is below a domain counts as well: kustomize.toolkit.fluxcd.io is Flux's.
var markDomains = map[string]string{
	"actions.github.com":         "only actions-runner-controller reads it",
	"actions.summerwind.dev":     "only actions-runner-controller reads it",
	"actions-runner":             "only actions-runner-controller reads it",
	"actions-runner-controller":  "only actions-runner-controller reads it",
	"bullpen.dev":                "labels and annotations with this prefix are reserved for Bullpen's controller",
	"argoproj.io":                "Argo CD tracks the objects of an application by it, and prunes by it",
	"fluxcd.io":                  "Flux tracks its objects by it, and prunes by it",
	"controlplane.io":            "Flux tracks its objects by it, and prunes by it",
	"helm.sh":                    "Helm tracks the objects of a release by it",
	"kubectl.kubernetes.io":      "kubectl uses it for the old object",
	"applyset.kubernetes.io":     "kubectl tracks the objects of a set by it, and prunes by it",
	"applyset.k8s.io":            "kubectl tracks the objects of a set by it, and prunes by it",
	"deployment.kubernetes.io":   "the controller of Deployments writes it",
	"addonmanager.kubernetes.io": "the addon manager tracks the objects that it keeps by it, and prunes by it",
	"kustomize.config.k8s.io":    "kustomize uses it",
	"config.kubernetes.io":       "kustomize and kpt use it",
	"config.k8s.io":              "kpt tracks the objects of a package by it, and prunes by it",
	"kpt.dev":                    "kpt tracks the objects of a package by it",
	"cli-utils.sigs.k8s.io":      "kpt and Config Sync use it",
	"configsync.gke.io":          "Config Sync tracks the objects that it owns by it, and prunes by it",
	"configmanagement.gke.io":    "Config Sync tracks the objects that it owns by it, and prunes by it",
	"cattle.io":                  "Rancher and Fleet track the objects of a bundle by it, and prune by it",
	"k14s.io":                    "kapp tracks the objects of an app by it, and prunes by it",
	"carvel.dev":                 "kapp tracks the objects of an app by it, and prunes by it",
	"crossplane.io":              "Crossplane tracks the objects of a composite by it",
	"operators.coreos.com":       "the Operator Lifecycle Manager tracks the objects of an operator by it",
	"template.openshift.io":      "OpenShift tracks the objects of a template by it",
	"skaffold.dev":               "Skaffold tracks the objects of a run by it, and deletes by it",
	"tilt.dev":                   "Tilt tracks the objects of a run by it",
	"devspace.sh":                "DevSpace tracks the objects of a deployment by it",
	"garden.io":                  "Garden tracks the objects of a deployment by it",
	"pulumi.com":                 "Pulumi uses it",
	"spinnaker.io":               "Spinnaker tracks the objects of an application by it",
	"werf.io":                    "werf tracks the objects of a release by it",
	"kluctl.io":                  "Kluctl tracks the objects of a deployment by it, and prunes by it",
	"timoni.sh":                  "Timoni tracks the objects of an instance by it",
	"projectsveltos.io":          "Sveltos tracks the objects of a profile by it",
	"open-cluster-management.io": "Open Cluster Management tracks the objects of a work by it",
	"karmada.io":                 "Karmada tracks the objects of a work by it",
	"clusterconfig.azure.com":    "Azure Arc tracks the objects of a configuration by it",
	"app.gitlab.com":             "GitLab's agent tracks the objects of a project by it",
	"agent.gitlab.com":           "GitLab's agent tracks the objects of a project by it",
	"velero.io":                  "Velero marks restored objects with it",
	"harness.io":                 "Harness tracks the objects of a release by it",
	"octopus.com":                "Octopus Deploy tracks the objects of a release by it",
	"terraform.io":               "Terraform uses it",
	"app.terraform.io":           "Terraform uses it",
	"pac.weave.works":            "Weave GitOps uses it",
}

// orders are the marks, by what comes behind the domain, that instruct a tool how to treat an object. They have an effect that is lost.
var orders = []string{
	"sync-wave", "sync-options", "compare-options", "hook", "hook-weight", "hook-delete-policy", "resource-policy", "prune", "reconcile",
	"ssa", "force", "ignore", "delete-strategy", "update-strategy", "change-group", "change-rule", "prevent-destroy",
}

// foreign says why a label or an annotation is not carried over: it belongs to a tool that made or ran the old object, and would have it
// treat the new one as its own. all are the labels or annotations that it is one of.
func foreign(key string, all *value) (reason, bool) {
	if why, ok := ownMarks[key]; ok {
		return reason{Unneeded, why, ""}, true
	}
	if all.get("heritage") != nil && (key == "chart" || key == "release") {
		return reason{Unneeded, oldHelm, ""}, true
	}
	if slices.Contains(keptMarks, key) {
		return reason{}, false
	}
	domain, name, found := strings.Cut(key, "/")
	if !found {
		return reason{}, false
	}
	for at := domain; ; {
		if why, ok := markDomains[at]; ok {
			if slices.Contains(orders, name) {
				return reason{Dropped, why + ", and it says how to handle the object", "to handle the new object in the same way, set it there, where the tool reads it"}, true
			}
			return reason{Unneeded, why, ""}, true
		}
		_, rest, more := strings.Cut(at, ".")
		if !more {
			return reason{}, false
		}
		at = rest
	}
}
