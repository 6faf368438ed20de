package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/cli/poolchange"
)

// NodeService replaces nodes: it drains them first, and waits only so long for what runs on them (docs/guides/node-upgrades.md).
type NodeService string

// The services that are recognized by the labels of their nodes.
const (
	ServiceEKS       NodeService = "EKS"
	ServiceGKE       NodeService = "GKE"
	ServiceAKS       NodeService = "AKS"
	ServiceKarpenter NodeService = "Karpenter"
)

// Upgrades is what was seen of the services that replace the nodes of runners.
type Upgrades struct {
	// Nodes on which runners may run, by who replaces them.
	Nodes map[NodeService]int
	// NodePools are Karpenter's.
	NodePools []NodePool
	// Taints are the controller's --disruption-taints, if its Deployment names them (TaintsSet).
	Taints    []string
	TaintsSet bool
}

// NodePool is one of Karpenter's.
type NodePool struct {
	Name string
	// Grace is its terminationGracePeriod; zero for none.
	Grace time.Duration
}

// limits are how long each service waits for the pods of a node by default, and what it does then.
var limits = []struct {
	service      NodeService
	wait         time.Duration
	then, remedy string
}{
	{ServiceEKS, 15 * time.Minute, "the update of a managed node group fails or, if forced, deletes the pods",
		"Do not force updates, and repeat one that failed with PodEvictionFailure; or move runners to a new node group, and scale the old one to 0 when it is empty."},
	{ServiceGKE, time.Hour, "a node upgrade deletes the pods, and their jobs fail",
		"Upgrade node pools of runners by a maintenance window in which no long job runs, or create a new node pool and cordon the old one."},
	{ServiceAKS, 30 * time.Minute, "the upgrade of the node pool fails",
		"Raise it: `az aks nodepool update --drain-timeout 1440 …` waits a day; --undrainable-node-behavior Cordon goes on with the other nodes."},
}

const upgradesGuide = " See docs/guides/node-upgrades.md."

// disruptionTaints are what each service, or the autoscaler that it runs, writes on a node before it takes the node away.
var disruptionTaints = map[NodeService]string{
	ServiceEKS: "ToBeDeletedByClusterAutoscaler", ServiceGKE: "ToBeDeletedByClusterAutoscaler", ServiceAKS: "ToBeDeletedByClusterAutoscaler",
	ServiceKarpenter: taintKarpenter,
}

const taintKarpenter = "karpenter.sh/disrupted"

// examineUpgrades compares the longest job of a pool with how long a node's replacement waits for it.
func examineUpgrades(r *Report, c Cluster) {
	longest := Pool{}
	for _, p := range c.Pools {
		if p.DeletedAt.IsZero() && p.Grace > longest.Grace {
			longest = p
		}
	}
	for _, l := range limits {
		if c.Upgrades.Nodes[l.service] > 0 && longest.Grace > l.wait {
			r.found(Finding{
				Code: "node-upgrade-limit", Severity: SeverityWarning, Subject: string(l.service),
				Sentence: fmt.Sprintf("%s waits %s for the pods of a node that it upgrades, and jobs of pool %s may take %s: after that %s.",
					l.service, poolchange.Duration(l.wait), longest.Name, poolchange.Duration(longest.Grace), l.then),
				Remedy: l.remedy + upgradesGuide,
			})
		}
	}
	if c.Upgrades.Nodes[ServiceKarpenter] > 0 {
		examineKarpenter(r, c, longest)
	}
	for _, service := range []NodeService{ServiceEKS, ServiceGKE, ServiceAKS, ServiceKarpenter} {
		taint := disruptionTaints[service]
		if c.Upgrades.Nodes[service] > 0 && c.Upgrades.TaintsSet && !covers(c.Upgrades.Taints, taint) {
			r.found(Finding{
				Code: "disruption-taint-missing", Severity: SeverityWarning, Subject: taint,
				Sentence: "The controller does not know the taint " + taint + ", which marks nodes of this cluster before they are removed: idle runners stay on them.",
				Remedy:   "Add it to the chart's value disruptionTaints, or remove the value to use the default." + upgradesGuide,
			})
			break
		}
	}
}

func examineKarpenter(r *Report, c Cluster, longest Pool) {
	for _, p := range c.Pools {
		if p.DeletedAt.IsZero() && p.ToleratesDisruption {
			r.found(Finding{
				Code: "pool-tolerates-disruption", Severity: SeverityWarning, Subject: p.Name,
				Sentence: "The pool " + p.Name + " tolerates the taint " + taintKarpenter + ": Karpenter does not wait for its runners, and removes nodes with running jobs.",
				Remedy:   "Name the taints that its runners tolerate in spec.template.tolerations, each by its key." + upgradesGuide,
			})
		}
	}
	for _, n := range c.Upgrades.NodePools {
		if n.Grace > 0 && longest.Grace > n.Grace {
			r.found(Finding{
				Code: "node-grace-short", Severity: SeverityWarning, Subject: n.Name,
				Sentence: fmt.Sprintf("Nodes of Karpenter's NodePool %s are removed %s after their drain has begun, and jobs of pool %s may take %s.",
					n.Name, poolchange.Duration(n.Grace), longest.Name, poolchange.Duration(longest.Grace)),
				Remedy: fmt.Sprintf("Raise spec.template.spec.terminationGracePeriod of the NodePool to %s or more, or remove it.%s", poolchange.Duration(longest.Grace), upgradesGuide),
			})
		}
	}
}

// covers reports whether one of the controller's taints, which may end in *, stands for that key.
func covers(taints []string, key string) bool {
	return slices.ContainsFunc(taints, func(taint string) bool {
		name, _, valued := strings.Cut(taint, "=")
		prefix, open := strings.CutSuffix(name, "*")
		return !valued && (name == key || open && strings.HasPrefix(key, prefix))
	})
}
