package doctor

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	authzv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/cli/reach"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

const ownRights = "Get the right, or use another kubeconfig."

// clusterGatherer reads one cluster with the caller's own rights.
type clusterGatherer struct {
	*gatherer
	kube    kubernetes.Interface
	dynamic dynamic.Interface
	in      Installation
	seen    *Cluster

	nodesSeen []*corev1.Node
	allNodes  []corev1.Node
}

func (g *gatherer) cluster(ctx context.Context) {
	config := rest.CopyConfig(g.look.Kubernetes)
	config.QPS, config.Burst, config.RateLimiter, config.Timeout = 50, 200, nil, g.look.Timeout
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		g.unchecked("the cluster", err.Error(), "Check the kubeconfig.")
		return
	}
	resources, err := dynamic.NewForConfig(config)
	if err != nil {
		g.unchecked("the cluster", err.Error(), "Check the kubeconfig.")
		return
	}
	if _, err := kube.Discovery().ServerVersion(); err != nil {
		g.unchecked("the cluster", reach.ClusterProblem(err), "Check that this machine reaches it: `kubectl version`.")
		return
	}
	c := &clusterGatherer{gatherer: g, kube: kube, dynamic: resources, in: g.look.Release}
	c.seen = &Cluster{SystemNamespace: c.in.SystemNamespace, RunnerNamespace: c.in.RunnerNamespace, Nodes: map[string]bool{}}
	g.evidence.Cluster = c.seen
	c.namespace(ctx)
	c.definitions(ctx)
	c.rights(ctx)
	c.egress(ctx)
	c.lease(ctx)
	c.nodes(ctx)
	c.pods(ctx)
	live := c.pools(ctx)
	c.unreconciled(ctx)
	c.upgrades(ctx, live)
	c.probe(ctx, live)
}

// could says whether something was read, and reports it as unchecked if not.
func (c *clusterGatherer) could(what string, err error) bool {
	if err != nil {
		c.unchecked("the cluster: "+what, reach.ClusterProblem(err), ownRights)
	}
	return err == nil
}

func (c *clusterGatherer) namespace(ctx context.Context) {
	_, err := c.kube.CoreV1().Namespaces().Get(ctx, c.in.RunnerNamespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.seen.NoNamespace = true
		return
	}
	c.could("the namespace "+c.in.RunnerNamespace, err)
}

// leaseName is that of the controllers (controller.LeaseName, which this package may not import).
const leaseName = "bullpen-controller"

func (c *clusterGatherer) lease(ctx context.Context) {
	if c.in.ControllerURL != "" {
		c.lone(ctx)
		return
	}
	found, err := c.kube.CoordinationV1().Leases(c.in.SystemNamespace).Get(ctx, leaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.seen.Lease = &Lease{Missing: true}
		return
	}
	if !c.could("whether a controller is running", err) {
		return
	}
	c.seen.Lease = &Lease{
		Holder: ptr.Deref(found.Spec.HolderIdentity, ""), RenewedAt: ptr.Deref(found.Spec.RenewTime, metav1.MicroTime{}).Time,
		Duration: time.Duration(ptr.Deref(found.Spec.LeaseDurationSeconds, 0)) * time.Second,
	}
}

// lone asks the one controller itself: any answer is one.
func (c *clusterGatherer) lone(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.look.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.in.ControllerURL, nil)
	if !c.could("whether a controller is running", err) {
		return
	}
	answer, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		c.seen.Lease = &Lease{Missing: true}
		return
	}
	_ = answer.Body.Close() // nothing of it is wanted
}

func (c *clusterGatherer) nodes(ctx context.Context) {
	list, err := c.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if !c.could("its nodes", err) {
		return
	}
	c.seen.NodesRead, c.allNodes = true, list.Items
	for i := range list.Items {
		node := &list.Items[i]
		c.nodesSeen = append(c.nodesSeen, node)
		c.seen.Pressures = append(c.seen.Pressures, pressuresOf(node)...)
		c.seen.Nodes[node.Name] = slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
			return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		})
	}
	c.seen.Architectures = architectures(c.nodesSeen)
}

// pressuresOf are what a node says that it is short of.
func pressuresOf(node *corev1.Node) []Pressure {
	var found []Pressure
	for _, condition := range node.Status.Conditions {
		switch condition.Type {
		case corev1.NodeDiskPressure, corev1.NodeMemoryPressure, corev1.NodePIDPressure:
			if condition.Status == corev1.ConditionTrue {
				found = append(found, Pressure{node.Name, string(condition.Type), condition.Message})
			}
		}
	}
	return found
}

func (c *clusterGatherer) pods(ctx context.Context) {
	list, err := c.kube.CoreV1().Pods(c.in.RunnerNamespace).List(ctx, metav1.ListOptions{LabelSelector: runnerpod.LabelRunner + "=true"})
	if !c.could("the runners", err) {
		return
	}
	for i := range list.Items {
		pod := &list.Items[i]
		seen := Pod{Name: pod.Name, Pool: pod.Labels[runnerpod.LabelPool], Node: pod.Spec.NodeName, Finalizers: pod.Finalizers, Foreign: foreign(pod)}
		if pod.DeletionTimestamp != nil {
			seen.DeletedAt = pod.DeletionTimestamp.Time
		}
		c.seen.Pods = append(c.seen.Pods, seen)
	}
}

// pools reads the pools, of which those that live are returned.
func (c *clusterGatherer) pools(ctx context.Context) []*v1alpha1.RunnerPool {
	list, err := c.dynamic.Resource(v1alpha1.GroupVersion.WithResource("runnerpools")).Namespace(c.in.RunnerNamespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) && c.noDefinitions() {
		return nil // which is a finding already
	}
	if !c.could("the pools", err) {
		return nil
	}
	var live []*v1alpha1.RunnerPool
	for i := range list.Items {
		pool := &v1alpha1.RunnerPool{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, pool); !c.could("the pool "+list.Items[i].GetName(), err) {
			continue
		}
		c.seen.Pools = append(c.seen.Pools, readPool(pool))
		if pool.DeletionTimestamp == nil {
			live = append(live, pool)
		}
	}
	c.seen.PoolsRead = true
	return live
}

func (c *clusterGatherer) noDefinitions() bool {
	return slices.ContainsFunc(c.seen.Definitions, func(d Definition) bool { return d.Missing && d.Name == "runnerpools.bullpen.dev" })
}

func readPool(pool *v1alpha1.RunnerPool) Pool {
	seen := Pool{
		Name: pool.Name, Labels: pool.Spec.Labels, CreatedAt: pool.CreationTimestamp.Time, Finalizers: pool.Finalizers,
		Grace:               time.Duration(ptr.Deref(pool.Spec.Template.TerminationGracePeriodSeconds, runnerpod.DefaultGraceSeconds)) * time.Second,
		ToleratesDisruption: toleratesDisruption(pool.Spec.Template.Tolerations),
	}
	if len(pool.Spec.Labels) > 0 {
		seen.Label = pool.Spec.Labels[0]
	}
	seen.Group = ptr.Deref(pool.Spec.RunnerGroup, intstr.IntOrString{})
	if pool.DeletionTimestamp != nil {
		seen.DeletedAt = pool.DeletionTimestamp.Time
	}
	wanted := ptr.Deref(pool.Status.DesiredReplicas, ptr.Deref(pool.Spec.Replicas, 1))
	if scaling := pool.Spec.Autoscaling; scaling != nil && scaling.Enabled { // it may want as many at any time
		wanted = ptr.Deref(scaling.MaxReplicas, wanted)
	}
	if c := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionRefused); c != nil && c.Status == metav1.ConditionTrue {
		seen.Refused = c.Message
	}
	if c := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionImagesPulled); c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonPullFailed {
		seen.PullFailed = c.Message
	}
	if pool.Spec.Platform == v1alpha1.PlatformLinux {
		seen.Architecture = string(runnerpod.ArchitectureOf(pool))
	}
	seen.WantsMore = pool.Status.Replicas < wanted
	return seen
}

// probe asks for a pod of each pool, to be tried and not made.
func (c *clusterGatherer) probe(ctx context.Context, pools []*v1alpha1.RunnerPool) {
	if len(pools) == 0 {
		return
	}
	may, err := c.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authzv1.SelfSubjectAccessReview{
		Spec: authzv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authzv1.ResourceAttributes{Namespace: c.in.RunnerNamespace, Verb: "create", Resource: "pods"}},
	}, metav1.CreateOptions{})
	if err == nil && !may.Status.Allowed {
		err = errors.New("you are not allowed to create pods in " + c.in.RunnerNamespace + ", not even as a dry run")
	}
	if !c.could("whether it admits runner pods", err) {
		return
	}
	options := runnerpod.Options{DispatchURL: "http://dispatch.invalid", AgentImage: "bullpen", JobContainersKey: "doctor", Around: c.around(ctx)}
	c.seen.Rules = c.rules(ctx)
	for _, pod := range c.seen.Pods {
		c.injected(pod.Pool, pod.Foreign)
	}
	for _, pool := range pools {
		// What differs from the controller's own options is compared by no policy.
		pod, _, err := runnerpod.Build(pool, options, "doctor00")
		if err != nil {
			c.seen.Refusals = append(c.seen.Refusals, Refusal{Pool: pool.Name, Message: err.Error()})
			continue
		}
		shared := slices.DeleteFunc(slices.Clone(pod.Spec.ImagePullSecrets), func(r corev1.LocalObjectReference) bool {
			return r.Name == runnerpod.PullSecret(pod.Name) // made with each pod
		})
		c.pullSecrets(ctx, pool, shared)
		pod.Spec.ServiceAccountName = "default" // its own would have to be made first
		tried, err := c.kube.CoreV1().Pods(c.in.RunnerNamespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if status, ok := errors.AsType[*apierrors.StatusError](err); ok && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) {
			c.seen.Refusals = append(c.seen.Refusals, Refusal{Pool: pool.Name, Message: status.ErrStatus.Message, Pod: pod})
			continue
		}
		if c.could("whether it admits pods of pool "+pool.Name, err) {
			c.injected(pool.Name, foreign(tried))
		}
	}
}
