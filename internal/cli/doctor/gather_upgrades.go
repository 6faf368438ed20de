package doctor

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// serviceOf returns the service that replaces the node; empty where that is not known. The provider id alone does not say: a cluster on a
// provider's machines may be managed in any way. The labels of the managed services do.
func serviceOf(node *corev1.Node) NodeService {
	has := func(label string) bool { return node.Labels[label] != "" }
	at := func(provider string) bool {
		return node.Spec.ProviderID == "" || strings.HasPrefix(node.Spec.ProviderID, provider+"://")
	}
	switch {
	case has("karpenter.sh/nodepool"), has("karpenter.sh/provisioner-name"): // also of EKS Auto Mode and AKS node auto-provisioning
		return ServiceKarpenter
	case has("eks.amazonaws.com/nodegroup") && at("aws"):
		return ServiceEKS
	case has("cloud.google.com/gke-nodepool") && at("gce"):
		return ServiceGKE
	case (has("kubernetes.azure.com/agentpool") || has("kubernetes.azure.com/cluster")) && at("azure"):
		return ServiceAKS
	default:
		return ""
	}
}

// upgrades finds the services that replace the nodes on which runners of these pools may run.
func (c *clusterGatherer) upgrades(ctx context.Context, pools []*v1alpha1.RunnerPool) {
	c.seen.Upgrades.Nodes = map[NodeService]int{}
	for i := range c.allNodes {
		node := &c.allNodes[i]
		runs := slices.ContainsFunc(pools, func(pool *v1alpha1.RunnerPool) bool {
			return labels.SelectorFromSet(pool.Spec.Template.NodeSelector).Matches(labels.Set(node.Labels))
		})
		if service := serviceOf(node); service != "" && runs {
			c.seen.Upgrades.Nodes[service]++
		}
	}
	if len(c.seen.Upgrades.Nodes) > 0 {
		c.controllerTaints(ctx)
	}
	if c.seen.Upgrades.Nodes[ServiceKarpenter] > 0 {
		c.nodePools(ctx)
	}
}

// controllerTaints reads which taints the controller was started with.
func (c *clusterGatherer) controllerTaints(ctx context.Context) {
	found, err := c.kube.AppsV1().Deployments(c.in.SystemNamespace).Get(ctx, "bullpen-controller", metav1.GetOptions{})
	if apierrors.IsNotFound(err) || !c.could("the controller's Deployment", err) {
		return // it is started in another way
	}
	for _, container := range found.Spec.Template.Spec.Containers {
		for _, arg := range container.Args {
			if list, is := strings.CutPrefix(arg, "--disruption-taints="); is {
				c.seen.Upgrades.Taints, c.seen.Upgrades.TaintsSet = strings.Split(list, ","), true
			}
		}
	}
}

// nodePools reads how long Karpenter waits for the pods of a node.
func (c *clusterGatherer) nodePools(ctx context.Context) {
	list, err := c.dynamic.Resource(schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodepools"}).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) || !c.could("Karpenter's NodePools", err) {
		return // an older version, which has no such field
	}
	for i := range list.Items {
		pool := NodePool{Name: list.Items[i].GetName()}
		text, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "template", "spec", "terminationGracePeriod")
		if grace, err := time.ParseDuration(text); err == nil {
			pool.Grace = grace
		}
		c.seen.Upgrades.NodePools = append(c.seen.Upgrades.NodePools, pool)
	}
}

// toleratesDisruption reports whether these runners tolerate the taint of a node that Karpenter removes.
func toleratesDisruption(tolerations []corev1.Toleration) bool {
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		return (t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule) &&
			(t.Key == taintKarpenter && (t.Operator == corev1.TolerationOpExists || t.Value == "") || t.Key == "" && t.Operator == corev1.TolerationOpExists)
	})
}
