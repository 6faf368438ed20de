package doctor

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Cluster is what was seen of Kubernetes. What could not be read is empty, and reported as unchecked.
type Cluster struct {
	SystemNamespace, RunnerNamespace string

	NoNamespace bool         // the runners' namespace does not exist
	Definitions []Definition // that are not as they should be
	Lacking     []Right      // that the chart grants, and the cluster does not
	Lease       *Lease
	PoolsRead   bool
	Pools       []Pool
	Pods        []Pod // of runners
	NodesRead   bool
	Nodes       map[string]bool // by name, whether it is ready
	Egress      *Egress         // nil: no policy is in the way of runners to GitHub
	// Architectures of the nodes for Linux, in order; those that do not say are left out.
	Architectures []string
	Rules         Rules
	Pressures     []Pressure
	Refusals      []Refusal
	Unreconciled  []Unreconciled
	Upgrades      Upgrades
}

// Definition is a CustomResourceDefinition.
type Definition struct {
	Name    string
	Missing bool
	Lacks   []string // fields that this binary writes and reads
	Extra   []string // fields that this binary does not know
}

// Right of a ServiceAccount.
type Right struct {
	Principal, Namespace    string // no namespace: everywhere
	Verb, Group, Resource   string
	Subresource, ObjectName string
}

func (r Right) String() string {
	text := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	if r.Group != "" {
		text += "." + r.Group
	}
	if r.ObjectName != "" {
		text += " " + r.ObjectName
	}
	if r.Namespace != "" {
		text += " in " + r.Namespace
	}
	return text
}

// Lease is the controllers' lock.
type Lease struct {
	Missing   bool
	Holder    string
	RenewedAt time.Time
	Duration  time.Duration
}

// Pool is a RunnerPool.
type Pool struct {
	Name       string
	Label      string // its first
	Labels     []string
	Group      intstr.IntOrString // the runner group that its runners join; zero: GitHub's default
	CreatedAt  time.Time
	DeletedAt  time.Time // zero: it lives
	Finalizers []string
	Refused    string // what its condition RefusedByGitHub says; empty: nothing
	PullFailed string // what its condition ImagesPulled says of a node that cannot pull; empty: nothing
	WantsMore  bool   // it has fewer runners than it may want

	Architecture   string   // that its runners need; empty for any
	MissingSecrets []string // pull secrets that its pods name
	Injected       []string // containers of its pods that Bullpen has not put there
	// Grace is how long a job of it may run on when its pod is deleted.
	Grace               time.Duration
	ToleratesDisruption bool // its runners tolerate the taint of a node that Karpenter takes away
}

// Pod is a runner's.
type Pod struct {
	Name, Pool, Node string
	DeletedAt        time.Time // when its grace period ends or has ended; zero: it is not being deleted
	Finalizers       []string
	Foreign          []string // containers that Bullpen has not put there
}

// Pressure is what a node is short of.
type Pressure struct {
	Node, Condition string // the condition is DiskPressure, MemoryPressure or PIDPressure
	Message         string
}

// Refusal is the API server's word on a pod of a pool, that was asked for and not made.
type Refusal struct {
	Pool, Message string
	Pod           *corev1.Pod // that was refused; nil where none could be built
}

// Patience of the checks that go by age.
const (
	settling  = time.Minute     // what is younger may be under way
	lingering = 5 * time.Minute // what lasts longer does not end without an administrator
	leaseLate = 30 * time.Second
)

func examineCluster(r *Report, c Cluster, now time.Time) {
	if c.NoNamespace {
		r.found(Finding{
			Code: "no-namespace", Severity: SeverityError, Subject: c.RunnerNamespace,
			Sentence: "The namespace of the runners, " + c.RunnerNamespace + ", does not exist.",
			Remedy:   "Install the chart, which creates it (`helm upgrade --install`), or set --runner-namespace.",
		})
	}
	for _, d := range c.Definitions {
		examineDefinition(r, d)
	}
	examineRightsLacking(r, c.Lacking)
	if c.Lease != nil {
		examineLease(r, c, *c.Lease, now)
	}
	examineUnreconciled(r, c, now)
	examineEgress(r, c)
	if c.PoolsRead {
		examinePools(r, c, now)
	}
	examinePods(r, c, now)
	examinePressures(r, c)
	examineUpgrades(r, c)
	for _, refusal := range c.Refusals {
		examineRefusal(r, c, refusal)
	}
	examineSurroundings(r, c)
}

func examineDefinition(r *Report, d Definition) {
	const remedy = "Run `helm upgrade`, or `bullpen chart crds` of the servers' version."
	switch {
	case d.Missing:
		r.found(Finding{
			Code: "definition-missing", Severity: SeverityError, Subject: d.Name,
			Sentence: "The cluster does not know the kind " + d.Name + ": its CustomResourceDefinition is missing.", Remedy: remedy,
		})
	case len(d.Lacks) > 0:
		r.found(Finding{
			Code: "definition-old", Severity: SeverityError, Subject: d.Name,
			Sentence: "The definition of " + d.Name + " is older than this version of Bullpen: it lacks " + some(d.Lacks) + ", and the API server drops these fields.",
			Remedy:   remedy,
		})
	case len(d.Extra) > 0:
		r.found(Finding{
			Code: "definition-new", Severity: SeverityWarning, Subject: d.Name,
			Sentence: "The definition of " + d.Name + " is newer than this version of Bullpen: it has " + some(d.Extra) + ".",
			Remedy:   "Use the version of the definitions, here and in the cluster: `helm upgrade`.",
		})
	}
}

// some names a few of many.
func some(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + " and others"
}

// examineRightsLacking gives one finding for each ServiceAccount.
func examineRightsLacking(r *Report, lacking []Right) {
	byPrincipal := map[string][]string{}
	var principals []string
	for _, right := range lacking {
		if byPrincipal[right.Principal] == nil {
			principals = append(principals, right.Principal)
		}
		byPrincipal[right.Principal] = append(byPrincipal[right.Principal], right.String())
	}
	for _, principal := range principals {
		r.found(Finding{
			Code: "rights-lacking", Severity: SeverityError, Subject: principal, Sentence: principal + " may not " + some(byPrincipal[principal]) + ".",
			Remedy: "`helm upgrade` restores the chart's roles and bindings; `kubectl auth can-i --list --as=" + principal + "` shows its rights.",
		})
	}
}

func examineLease(r *Report, c Cluster, l Lease, now time.Time) {
	remedy := "Find the reason: `kubectl -n " + c.SystemNamespace + " get pods -l app.kubernetes.io/component=controller`, and its logs. Running jobs continue; " +
		"no runner is replaced until then."
	switch {
	case !l.unheld(now):
	case l.Missing || l.Holder == "":
		r.found(Finding{
			Code: "no-controller", Severity: SeverityError, Subject: c.SystemNamespace, Sentence: "No controller is running: none holds the lease or responds.", Remedy: remedy,
		})
	default:
		r.found(Finding{
			Code: "no-controller", Severity: SeverityError, Subject: c.SystemNamespace,
			Sentence: "No controller is running: " + l.Holder + " held the lease last and has not renewed it for " + now.Sub(l.RenewedAt).Round(time.Second).String() + ".",
			Remedy:   remedy,
		})
	}
}

// unheld says that no controller holds the lease, or that the last one does not renew it.
func (l Lease) unheld(now time.Time) bool {
	return l.Missing || l.Holder == "" || now.Sub(l.RenewedAt) > l.Duration+leaseLate
}

func examinePools(r *Report, c Cluster, now time.Time) {
	if len(c.Pools) == 0 && !c.NoNamespace {
		r.found(Finding{
			Code: "no-pool", Severity: SeverityWarning, Subject: c.RunnerNamespace, Sentence: "There is no RunnerPool in " + c.RunnerNamespace + ", so no job can run.",
			Remedy: "Create one: `kubectl -n " + c.RunnerNamespace + " apply -f examples/pool.yaml`, or the chart's value pools.",
		})
	}
	byLabel := map[string]string{}
	for _, p := range c.Pools {
		if !p.DeletedAt.IsZero() {
			examineDeletedPool(r, c, p, now)
			continue
		}
		if p.Refused != "" { // CLAIM-19, CLAIM-20
			r.found(Finding{
				Code: "refused-by-github", Severity: SeverityWarning, Subject: p.Name, Sentence: "Jobs of pool " + p.Name + " are blocked: " + p.Refused + ".",
				Remedy: "`bullpen why JOB` names the setting at GitHub, and `bullpen accounts get LOGIN -o json` lists all refusals of an account. " +
					"Other jobs continue. After a fix at GitHub the next attempt succeeds.",
			})
		}
		if p.PullFailed != "" {
			r.found(Finding{
				Code: "image-pull-failed", Severity: SeverityWarning, Subject: p.Name,
				Sentence: "Images of pool " + p.Name + " cannot be pulled in advance: " + strings.TrimRight(p.PullFailed, ". ") + ". Idle runners there keep the previous template.",
				Remedy: "Check the image's name and the pull secrets: `kubectl -n " + c.RunnerNamespace + " describe daemonset " + runnerpod.PrepullName(p.Name) + "`. " +
					"To replace idle runners without waiting for the images, set spec.imagePrepull.enabled to false.",
			})
		}
		label := strings.ToLower(p.Label)
		if other, taken := byLabel[label]; taken && label != "" { // CLAIM-12
			r.found(Finding{
				Code: "label-conflict", Severity: SeverityError, Subject: p.Name,
				Sentence: "The pools " + other + " and " + p.Name + " both have the first label " + p.Label + ", so its jobs are dispatched to neither.",
				Remedy: "Delete the wrong one; its busy runners finish their jobs: `kubectl -n " + c.RunnerNamespace + " delete runnerpool NAME`; " +
					"after a rename that is the old name.",
			})
		}
		byLabel[label] = p.Name
		if !slices.Contains(p.Finalizers, runnerpod.FinalizerPoolDrain) && now.Sub(p.CreatedAt) > settling { // POOL-2
			r.found(Finding{
				Code: "pool-unprotected", Severity: SeverityError, Subject: p.Name,
				Sentence: "The pool " + p.Name + " has no finalizer " + runnerpod.FinalizerPoolDrain + ". Do not delete or rename it: its busy runners would not be waited for.",
				Remedy: "A running controller adds it within seconds. Check that one runs for this namespace (--namespace=" + c.RunnerNamespace + "): `kubectl -n " +
					c.SystemNamespace + " logs deploy/bullpen-controller`.",
			})
		}
	}
}

func examineDeletedPool(r *Report, c Cluster, p Pool, now time.Time) {
	foreign := slices.DeleteFunc(slices.Clone(p.Finalizers), func(f string) bool {
		return f == runnerpod.FinalizerPoolDrain || f == "foregroundDeletion" || f == "orphan"
	})
	left := slices.ContainsFunc(c.Pods, func(pod Pod) bool { return pod.Pool == p.Name })
	if left || now.Sub(p.DeletedAt) < lingering {
		return // it waits for its runners, as it should
	}
	f := Finding{Code: "pool-undeletable", Severity: SeverityError, Subject: p.Name}
	since := "The pool " + p.Name + " was deleted " + now.Sub(p.DeletedAt).Round(time.Second).String() + " ago and has no runners, but "
	if len(foreign) > 0 {
		f.Sentence = since + "is blocked by the finalizer " + some(foreign) + ", which is not Bullpen's."
		f.Remedy = "Its owner must remove it. If that owner no longer exists, remove it with `kubectl -n " + c.RunnerNamespace + " edit runnerpool " + p.Name + "`."
	} else {
		f.Sentence = since + "its finalizer " + runnerpod.FinalizerPoolDrain + " is still there."
		f.Remedy = "A running controller removes it; see its log: `kubectl -n " + c.SystemNamespace + " logs deploy/bullpen-controller`. If no controller will run again: `bullpen uninstall --runner-namespace " + c.RunnerNamespace + "`."
	}
	r.found(f)
}

func examinePods(r *Report, c Cluster, now time.Time) {
	for _, pod := range c.Pods {
		if pod.DeletedAt.IsZero() || now.Sub(pod.DeletedAt) < lingering {
			continue // POOL-10
		}
		why, remedy := "its node does not report that it has stopped", "`kubectl describe node "+pod.Node+"`, and the log of the node's agent or kubelet."
		ready, there := c.Nodes[pod.Node]
		switch {
		case pod.Node != "" && c.NodesRead && !there:
			why = "its node " + pod.Node + " does not exist"
			remedy = "A running controller removes it once GitHub confirms that the runner is offline; see its log: `kubectl -n " + c.SystemNamespace + " logs deploy/bullpen-controller`."
		case pod.Node != "" && c.NodesRead && !ready:
			why = "its node " + pod.Node + " is not ready"
		}
		held := ""
		if len(pod.Finalizers) > 0 {
			held = " (finalizers " + some(pod.Finalizers) + ")"
		}
		r.found(Finding{
			Code: "pod-stuck", Severity: SeverityError, Subject: pod.Name,
			Sentence: "The runner " + pod.Name + " should have been deleted " + now.Sub(pod.DeletedAt).Round(time.Second).String() + " ago" + held + ": " + why + ".", Remedy: remedy,
		})
	}
}

// examinePressures: no runner is placed on a node that is short of something. Where all are, no job begins.
func examinePressures(r *Report, c Cluster) {
	usable := 0
	for name, ready := range c.Nodes {
		if ready && !slices.ContainsFunc(c.Pressures, func(p Pressure) bool { return p.Node == name }) {
			usable++
		}
	}
	for _, p := range c.Pressures {
		f := Finding{
			Code: "node-pressure", Severity: SeverityWarning, Subject: p.Node,
			Sentence: "The node " + p.Node + " has " + p.Condition + ", so no runner is scheduled there",
			Remedy:   "`kubectl describe node " + p.Node + "` shows what it lacks: free some of it, or add nodes.",
		}
		if p.Condition == "DiskPressure" {
			f.Remedy = "Free disk space: `bullpen node` needs --min-disk-free (default 10%), a kubelet its eviction threshold."
		}
		if p.Message != "" {
			f.Sentence += ": " + strings.TrimSuffix(p.Message, ".")
		}
		if usable == 0 {
			f.Severity = SeverityError
			f.Sentence += "; no other node is available"
		}
		f.Sentence += "."
		r.found(f)
	}
}

func examineRefusal(r *Report, c Cluster, refusal Refusal) {
	severity, what := SeverityWarning, "The pool "+refusal.Pool+" has all its runners, but the cluster would refuse another: "
	i := slices.IndexFunc(c.Pools, func(p Pool) bool { return p.Name == refusal.Pool })
	if i >= 0 && c.Pools[i].WantsMore {
		severity, what = SeverityError, "The cluster refuses the runners of pool "+refusal.Pool+": "
	}
	remedy := strings.Join(c.Rules.remedies(refusal.Pod), " ")
	r.found(Finding{
		Code: "pods-refused", Severity: severity, Subject: refusal.Pool, Sentence: what + strings.TrimSuffix(refusal.Message, ".") + ".",
		Remedy: cmp.Or(remedy, "Change the rule or the pool: `kubectl -n "+c.RunnerNamespace+" get resourcequotas,limitranges` and `kubectl get namespace "+
			c.RunnerNamespace+" --show-labels` (pod-security.kubernetes.io/enforce) show it."),
	})
}
