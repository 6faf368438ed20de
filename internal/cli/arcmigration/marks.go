package arcmigration

import (
	"slices"
	"strings"
)

const oldHelm = "the first versions of Helm mark by it what belongs to a release"

// keptMarks are in the domain of a tool, and say something of the object itself.
var keptMarks = []string{"kubectl.kubernetes.io/default-container", "kubectl.kubernetes.io/default-logs-container"}

// ownMarks are labels and annotations of one name that a tool, or the peer's controller, goes by.
var ownMarks = map[string]string{
	"actions-runner":               "only actions-runner-controller reads it",
	"actions-runner-controller":    "only actions-runner-controller reads it",
	"runner-deployment-name":       "only actions-runner-controller reads it",
	"runner-template-hash":         "only actions-runner-controller reads it",
	"runnerset-name":               "only actions-runner-controller reads it",
	"app.kubernetes.io/instance":   "Argo CD and Helm know by it what belongs to a release",
	"app.kubernetes.io/managed-by": "Helm, or another tool that it names, does not manage the new object",
	"app.kubernetes.io/part-of":    "the object is a part of something else now",
	"app.kubernetes.io/version":    "it is the version of the old chart",
	"heritage":                     oldHelm,
	"kubernetes.io/change-cause":   "it speaks of a change of the old object",
	"olm.owner":                    "the Operator Lifecycle Manager knows by it what belongs to an operator",
	"olm.owner.namespace":          "the Operator Lifecycle Manager knows by it what belongs to an operator",
	"olm.owner.kind":               "the Operator Lifecycle Manager knows by it what belongs to an operator",
	"olm.managed":                  "the Operator Lifecycle Manager knows by it what belongs to an operator",
}

// markDomains are the domains of tools that know by labels and annotations what they own, and delete what they own and do not find in their
// sources. What is below a domain counts as well: kustomize.toolkit.fluxcd.io is Flux's.
var markDomains = map[string]string{
	"actions.github.com":         "only actions-runner-controller reads it",
	"actions.summerwind.dev":     "only actions-runner-controller reads it",
	"actions-runner":             "only actions-runner-controller reads it",
	"actions-runner-controller":  "only actions-runner-controller reads it",
	"bullpen.dev":                "Bullpen's controller alone writes labels and annotations of this name",
	"argoproj.io":                "Argo CD knows by it what belongs to an application, and prunes by it",
	"fluxcd.io":                  "Flux knows by it what belongs to its objects, and prunes by it",
	"controlplane.io":            "Flux knows by it what belongs to its objects, and prunes by it",
	"helm.sh":                    "Helm knows by it what belongs to a release",
	"kubectl.kubernetes.io":      "kubectl goes by it, for the old object",
	"applyset.kubernetes.io":     "kubectl knows by it what belongs to a set, and prunes by it",
	"applyset.k8s.io":            "kubectl knows by it what belongs to a set, and prunes by it",
	"deployment.kubernetes.io":   "the controller of Deployments writes it",
	"addonmanager.kubernetes.io": "the addon manager knows by it what it keeps, and prunes by it",
	"kustomize.config.k8s.io":    "kustomize goes by it",
	"config.kubernetes.io":       "kustomize and kpt go by it",
	"config.k8s.io":              "kpt knows by it what belongs to a package, and prunes by it",
	"kpt.dev":                    "kpt knows by it what belongs to a package",
	"cli-utils.sigs.k8s.io":      "kpt and Config Sync go by it",
	"configsync.gke.io":          "Config Sync knows by it what it owns, and prunes by it",
	"configmanagement.gke.io":    "Config Sync knows by it what it owns, and prunes by it",
	"cattle.io":                  "Rancher and Fleet know by it what belongs to a bundle, and prune by it",
	"k14s.io":                    "kapp knows by it what belongs to an app, and prunes by it",
	"carvel.dev":                 "kapp knows by it what belongs to an app, and prunes by it",
	"crossplane.io":              "Crossplane knows by it what belongs to a composite",
	"operators.coreos.com":       "the Operator Lifecycle Manager knows by it what belongs to an operator",
	"template.openshift.io":      "OpenShift knows by it what belongs to a template",
	"skaffold.dev":               "Skaffold knows by it what belongs to a run, and deletes by it",
	"tilt.dev":                   "Tilt knows by it what belongs to a run",
	"devspace.sh":                "DevSpace knows by it what belongs to a deployment",
	"garden.io":                  "Garden knows by it what belongs to a deployment",
	"pulumi.com":                 "Pulumi goes by it",
	"spinnaker.io":               "Spinnaker knows by it what belongs to an application",
	"werf.io":                    "werf knows by it what belongs to a release",
	"kluctl.io":                  "Kluctl knows by it what belongs to a deployment, and prunes by it",
	"timoni.sh":                  "Timoni knows by it what belongs to an instance",
	"projectsveltos.io":          "Sveltos knows by it what belongs to a profile",
	"open-cluster-management.io": "Open Cluster Management knows by it what belongs to a work",
	"karmada.io":                 "Karmada knows by it what belongs to a work",
	"clusterconfig.azure.com":    "Azure Arc knows by it what belongs to a configuration",
	"app.gitlab.com":             "GitLab's agent knows by it what belongs to a project",
	"agent.gitlab.com":           "GitLab's agent knows by it what belongs to a project",
	"velero.io":                  "Velero marks by it what it has restored",
	"harness.io":                 "Harness knows by it what belongs to a release",
	"octopus.com":                "Octopus Deploy knows by it what belongs to a release",
	"terraform.io":               "Terraform goes by it",
	"app.terraform.io":           "Terraform goes by it",
	"pac.weave.works":            "Weave GitOps goes by it",
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
				return reason{Dropped, why + ", and it says how the object is to be treated", "if the new object is to be treated like that, write it there, in the place that the tool reads"}, true
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
