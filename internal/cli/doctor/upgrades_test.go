package doctor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/test/kit"
)

// Nodes as each service labels them.
func TestServiceOf_R17_TellsWhoReplacesANode(t *testing.T) {
	for name, c := range map[string]struct {
		provider string
		labels   map[string]string
		want     NodeService
	}{
		"EKS managed node group":          {"aws:///us-west-2a/i-0abc", map[string]string{"eks.amazonaws.com/nodegroup": "runners"}, ServiceEKS},
		"Karpenter at EKS":                {"aws:///us-west-2a/i-0abc", map[string]string{"karpenter.sh/nodepool": "default"}, ServiceKarpenter},
		"EKS Auto Mode":                   {"aws:///us-west-2a/i-0abc", map[string]string{"karpenter.sh/nodepool": "general-purpose", "eks.amazonaws.com/compute-type": "auto"}, ServiceKarpenter},
		"Karpenter before v1beta1":        {"aws:///us-west-2a/i-0abc", map[string]string{"karpenter.sh/provisioner-name": "default"}, ServiceKarpenter},
		"a machine at AWS":                {"aws:///us-west-2a/i-0abc", map[string]string{"kops.k8s.io/instancegroup": "nodes"}, ""},
		"GKE":                             {"gce://project/europe-west1-b/gke-a", map[string]string{"cloud.google.com/gke-nodepool": "runners"}, ServiceGKE},
		"a machine at Google":             {"gce://project/europe-west1-b/a", nil, ""},
		"AKS":                             {"azure:///subscriptions/s/resourceGroups/g", map[string]string{"kubernetes.azure.com/agentpool": "runners", "kubernetes.azure.com/cluster": "MC_g"}, ServiceAKS},
		"AKS node auto-provisioning":      {"azure:///subscriptions/s", map[string]string{"kubernetes.azure.com/cluster": "MC_g", "karpenter.sh/nodepool": "default"}, ServiceKarpenter},
		"a label that was copied":         {"kind://docker/kind/worker", map[string]string{"cloud.google.com/gke-nodepool": "runners"}, ""},
		"a node that says nothing":        {"", nil, ""},
		"before the provider has said it": {"", map[string]string{"eks.amazonaws.com/nodegroup": "runners"}, ServiceEKS},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: c.labels}, Spec: corev1.NodeSpec{ProviderID: c.provider}}
		require.Equal(t, c.want, serviceOf(node), name)
	}
}

func TestExamine_R17_NodesThatAreReplacedUnderLongJobs(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	pool := func(name string, grace time.Duration) Pool {
		return Pool{Name: name, Label: name, Grace: grace, CreatedAt: now}
	}
	long, short := pool("long", 6*time.Hour), pool("short", 10*time.Minute)
	deleted, tolerant := pool("deleted", 24*time.Hour), pool("tolerant", 10*time.Minute)
	deleted.DeletedAt, tolerant.ToleratesDisruption = now, true
	on := func(services ...NodeService) Upgrades {
		u := Upgrades{Nodes: map[NodeService]int{}}
		for _, s := range services {
			u.Nodes[s] = 3
		}
		return u
	}
	with := func(u Upgrades, change func(*Upgrades)) Upgrades {
		change(&u)
		return u
	}
	for name, c := range map[string]struct {
		pools    []Pool
		upgrades Upgrades
		says     map[string]string // by code and subject
	}{
		"no service is recognized": {[]Pool{long}, Upgrades{}, nil},
		"EKS": {[]Pool{short, long, deleted}, on(ServiceEKS), map[string]string{
			"node-upgrade-limit EKS": "EKS waits 15m for the pods of a node that it upgrades, and jobs of pool long may take 6h: after that the update of a managed node group fails",
		}},
		"GKE":                          {[]Pool{long}, on(ServiceGKE), map[string]string{"node-upgrade-limit GKE": "GKE waits 1h for"}},
		"AKS":                          {[]Pool{long}, on(ServiceAKS), map[string]string{"node-upgrade-limit AKS": "AKS waits 30m for"}},
		"jobs end before the limit":    {[]Pool{short, deleted}, on(ServiceEKS, ServiceGKE, ServiceAKS, ServiceKarpenter), nil},
		"Karpenter waits without end":  {[]Pool{long}, with(on(ServiceKarpenter), func(u *Upgrades) { u.NodePools = []NodePool{{Name: "default"}} }), nil},
		"Karpenter waits long enough":  {[]Pool{long}, with(on(ServiceKarpenter), func(u *Upgrades) { u.NodePools = []NodePool{{"default", 6 * time.Hour}} }), nil},
		"Karpenter does not":           {[]Pool{long}, with(on(ServiceKarpenter), func(u *Upgrades) { u.NodePools = []NodePool{{"default", 90 * time.Minute}} }), map[string]string{"node-grace-short default": "NodePool default are removed 1h30m after"}},
		"Karpenter passes a pool over": {[]Pool{tolerant}, on(ServiceKarpenter), map[string]string{"pool-tolerates-disruption tolerant": "Karpenter does not wait for its runners"}},
		"but there is no Karpenter":    {[]Pool{tolerant}, on(ServiceGKE), nil},
		"the taint is left out": {[]Pool{short}, with(on(ServiceKarpenter), func(u *Upgrades) { u.TaintsSet, u.Taints = true, []string{"mine", "karpenter.sh/disrupted=x"} }), map[string]string{
			"disruption-taint-missing karpenter.sh/disrupted": "idle runners stay on them",
		}},
		"all are left out": {[]Pool{short}, with(on(ServiceAKS, ServiceGKE), func(u *Upgrades) { u.TaintsSet, u.Taints = true, []string{""} }), map[string]string{
			"disruption-taint-missing ToBeDeletedByClusterAutoscaler": "does not know the taint",
		}},
		"the taint is known":      {[]Pool{short}, with(on(ServiceKarpenter), func(u *Upgrades) { u.TaintsSet, u.Taints = true, []string{"mine", "karpenter.sh/disrupted"} }), nil},
		"by what it begins with":  {[]Pool{short}, with(on(ServiceKarpenter), func(u *Upgrades) { u.TaintsSet, u.Taints = true, []string{"karpenter.sh/*"} }), nil},
		"the default is believed": {[]Pool{short}, on(ServiceKarpenter, ServiceEKS), nil},
	} {
		for i := range c.pools {
			c.pools[i].Finalizers = []string{"bullpen.dev/runner-pool-drain"}
		}
		r := Examine(Evidence{Now: now, Cluster: &Cluster{PoolsRead: true, Pools: c.pools, Upgrades: c.upgrades}})
		require.Len(t, r.Findings, len(c.says), "%s: %+v", name, r.Findings)
		for _, f := range r.Findings {
			require.Contains(t, f.Sentence, c.says[f.Code+" "+f.Subject], name)
			require.NotEmpty(t, c.says[f.Code+" "+f.Subject], name)
			require.Equal(t, SeverityWarning, f.Severity)
			require.Contains(t, f.Remedy, "docs/guides/node-upgrades.md")
		}
		require.Equal(t, ExitFine, r.ExitCode(), name)
	}
}

func TestToleratesDisruption_R17(t *testing.T) {
	for name, c := range map[string]struct {
		toleration corev1.Toleration
		want       bool
	}{
		"everything":         {corev1.Toleration{Operator: corev1.TolerationOpExists}, true},
		"everything new":     {corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}, true},
		"what is evicted":    {corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}, false},
		"that key":           {corev1.Toleration{Key: "karpenter.sh/disrupted", Operator: corev1.TolerationOpExists}, true},
		"its value":          {corev1.Toleration{Key: "karpenter.sh/disrupted"}, true},
		"another value":      {corev1.Toleration{Key: "karpenter.sh/disrupted", Value: "x"}, false},
		"a taint of its own": {corev1.Toleration{Key: "runners", Operator: corev1.TolerationOpExists}, false},
	} {
		require.Equal(t, c.want, toleratesDisruption([]corev1.Toleration{{Key: "first"}, c.toleration}), name)
	}
}

func TestDoctor_R17_NodeUpgrades(t *testing.T) {
	s := newSite(t)
	s.env.RegisterNode(t, "eks", func(n *corev1.Node) {
		n.Labels["eks.amazonaws.com/nodegroup"], n.Spec.ProviderID = "runners", "aws:///us-west-2a/i-0abc"
	})
	warns := func(want ...string) {
		t.Helper()
		r := s.examine()
		require.Empty(t, r.Unchecked)
		require.Equal(t, want, codes(r), "%+v", r.Findings)
		require.Equal(t, ExitFine, r.ExitCode())
	}
	warns("node-upgrade-limit")

	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: kit.SystemNamespace, Name: "bullpen-controller"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, Paused: true, Replicas: new(int32),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "controller", Image: "x", Args: []string{"controller", "--disruption-taints=mine"}}}},
			},
		},
	}
	s.remake(deployment)
	t.Cleanup(func() { _ = client.IgnoreNotFound(s.admin.Delete(context.WithoutCancel(t.Context()), deployment)) })
	warns("disruption-taint-missing", "node-upgrade-limit")

	s.env.RegisterNode(t, "karpenter", func(n *corev1.Node) { n.Labels["karpenter.sh/nodepool"] = "default" })
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "nodepools.karpenter.sh"},
		"spec": map[string]any{
			"group": "karpenter.sh", "scope": "Cluster", "names": map[string]any{"kind": "NodePool", "plural": "nodepools", "singular": "nodepool", "listKind": "NodePoolList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	require.NoError(t, s.admin.Create(t.Context(), definition))
	t.Cleanup(func() { require.NoError(t, s.admin.Delete(context.WithoutCancel(t.Context()), definition)) })
	nodePool := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": map[string]any{"name": "default"},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"terminationGracePeriod": "24h0m0s"}}},
	}}
	require.Eventually(t, func() bool {
		return s.admin.Create(t.Context(), nodePool.DeepCopy()) == nil
	}, patience, 20*time.Millisecond, "the kind is served")
	warns("disruption-taint-missing", "node-upgrade-limit")
	require.NoError(t, unstructured.SetNestedField(nodePool.Object, "30m", "spec", "template", "spec", "terminationGracePeriod"))
	require.NoError(t, s.admin.Patch(t.Context(), nodePool, client.Merge))
	warns("disruption-taint-missing", "node-grace-short", "node-upgrade-limit")
}
