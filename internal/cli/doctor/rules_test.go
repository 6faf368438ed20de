package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func testPool(change ...func(*v1alpha1.RunnerPool)) *v1alpha1.RunnerPool {
	pool := &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "runners", Name: "linux", UID: "uid"},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform: v1alpha1.PlatformLinux, Labels: []string{"linux-4"},
			Resources: v1alpha1.RunnerResources{CPU: resource.MustParse("4"), Memory: resource.MustParse("16Gi")},
			Template:  v1alpha1.RunnerTemplate{Image: "runner"},
		},
	}
	for _, c := range change {
		c(pool)
	}
	return pool
}

func testPod(t *testing.T, change ...func(*v1alpha1.RunnerPool)) *corev1.Pod {
	t.Helper()
	pod, _, err := runnerpod.Build(testPool(change...), runnerpod.Options{DispatchURL: "http://server", AgentImage: "agent"}, "aaaaaaaa")
	require.NoError(t, err)
	return pod
}

func TestRemedies_R6_R11_NameTheRuleAndTheField(t *testing.T) {
	ranged := func(item corev1.LimitRangeItem) Rules {
		item.Type = corev1.LimitTypeContainer
		return Rules{Ranges: []corev1.LimitRange{{ObjectMeta: metav1.ObjectMeta{Name: "range"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}}}
	}
	quota := func(hard, used corev1.ResourceList) Rules {
		return Rules{Quotas: []corev1.ResourceQuota{{ObjectMeta: metav1.ObjectMeta{Name: "quota"}, Status: corev1.ResourceQuotaStatus{Hard: hard, Used: used}}}}
	}
	privileged := func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.RuntimeClassName, p.Spec.Template.Dind = ptr.To("kata"), &v1alpha1.Dind{}
	}
	root := func(p *v1alpha1.RunnerPool) { p.Spec.Template.RunAsUser = ptr.To[int64](0) }
	for name, c := range map[string]struct {
		rules Rules
		pod   *corev1.Pod
		want  []string // that the remedies contain, in order
	}{
		"no rule":    {Rules{}, testPod(t), nil},
		"no pod":     {ranged(corev1.LimitRangeItem{Min: list("cpu", "1")}), nil, nil},
		"kept rules": {ranged(corev1.LimitRangeItem{Min: list("cpu", "10m", "memory", "32Mi"), Max: list("cpu", "4")}), testPod(t), nil},
		"a minimum": {ranged(corev1.LimitRangeItem{Min: list("cpu", "100m")}), testPod(t), []string{
			"at least 100m of cpu, and container agent requests 10m: raise spec.template.agentResources", "container poller", "container idle",
		}},
		"a maximum": {ranged(corev1.LimitRangeItem{Max: list("memory", "8Gi")}), testPod(t), []string{"container runner has 16Gi: lower spec.resources of the pool"}},
		"a ratio":   {ranged(corev1.LimitRangeItem{MaxLimitRequestRatio: list("memory", "2")}), testPod(t), []string{"container agent", "container poller", "container idle"}},
		"a maximum of pods": {Rules{Ranges: []corev1.LimitRange{{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
			{Type: corev1.LimitTypePod, Max: list("cpu", "4"), Min: list("memory", "1Gi")},
		}}}}}, testPod(t), []string{"at most 4 of cpu, and a runner has 5"}},
		"a quota": {quota(list("limits.cpu", "10", "pods", "10"), list("limits.cpu", "8")), testPod(t), []string{
			"ResourceQuota quota has left: 2 of limits.cpu, of which a runner takes 5. Raise it",
		}},
		"a quota on requests": {quota(list("cpu", "8", "requests.memory", "64Gi"), list("cpu", "4")), testPod(t), []string{"4 of cpu, of which a runner takes 4020m"}},
		"room enough":         {quota(list("limits.cpu", "20", "limits.memory", "64Gi", "count/secrets", "0"), nil), testPod(t), nil},
		"restricted":          {Rules{Enforced: "restricted"}, testPod(t), nil},
		"restricted and root": {Rules{Enforced: "restricted"}, testPod(t, root), []string{"level restricted, and the pool's pods need baseline"}},
		"baseline and root":   {Rules{Enforced: "baseline"}, testPod(t, root), nil},
		"baseline and dind":   {Rules{Enforced: "baseline"}, testPod(t, privileged), []string{"level baseline, and the pool's pods need privileged"}},
		"privileged":          {Rules{Enforced: "privileged"}, testPod(t, privileged), nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.rules.remedies(c.pod)
			require.Len(t, got, len(c.want), "%q", got)
			for i, want := range c.want {
				require.Contains(t, got[i], want)
			}
		})
	}
}

func TestExamine_R10_R16_R18_WhatPoolsLackInTheirCluster(t *testing.T) {
	found := func(p Pool, c Cluster) []Finding {
		p.Name, c.Pools, c.RunnerNamespace = "linux", []Pool{p}, "runners"
		var r Report
		examineSurroundings(&r, c)
		return r.Findings
	}
	both := Cluster{NodesRead: true, Architectures: []string{"amd64", "arm64"}}
	amd := Cluster{NodesRead: true, Architectures: []string{"amd64"}}
	require.Empty(t, found(Pool{Architecture: "arm64"}, both))
	require.Empty(t, found(Pool{}, amd))
	require.Empty(t, found(Pool{Architecture: "arm64"}, Cluster{}), "nodes that were not read say nothing")
	f := found(Pool{Architecture: "arm64"}, amd)
	require.Equal(t, "architecture-missing", f[0].Code)
	require.Equal(t, SeverityWarning, f[0].Severity, "an autoscaler may add one")
	require.Equal(t, SeverityError, found(Pool{Architecture: "arm64", WantsMore: true}, amd)[0].Severity)
	f = found(Pool{MissingSecrets: []string{"registry"}}, amd)
	require.Equal(t, "pull-secret-missing", f[0].Code)
	require.Contains(t, f[0].Sentence, "registry")
	f = found(Pool{Injected: []string{"istio-proxy"}}, amd)
	require.Equal(t, "sidecar-injected", f[0].Code)
	require.Equal(t, SeverityWarning, f[0].Severity, "runners are removed all the same")
	require.Contains(t, f[0].Remedy, "spec.template.metadata")
}

func TestForeign_R10_OursAreNot(t *testing.T) {
	pod := testPod(t, func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.RuntimeClassName, p.Spec.Template.Dind = ptr.To("kata"), &v1alpha1.Dind{}
	})
	require.Empty(t, foreign(pod))
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "istio-proxy"})
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: "istio-init"})
	require.Equal(t, []string{"istio-init", "istio-proxy"}, foreign(pod))
}

func TestDoctor_R10_R16_R18_ByTheRealCluster(t *testing.T) {
	t.Run("a pull secret of the ServiceAccount default", func(t *testing.T) {
		s := newSite(t)
		namespace := s.look.Release.RunnerNamespace
		account := &corev1.ServiceAccount{}
		account.Namespace, account.Name = namespace, "default"
		require.Eventually(t, func() bool {
			if s.admin.Get(t.Context(), client.ObjectKeyFromObject(account), account) != nil {
				return false
			}
			account.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
			return s.admin.Update(t.Context(), account) == nil
		}, patience, 50*time.Millisecond)
		s.finds("pull-secret-missing", "linux", "registry")
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "registry"}}
		require.NoError(t, s.admin.Create(t.Context(), secret))
		require.Empty(t, s.examine().Findings)
	})
	t.Run("an architecture that no node has", func(t *testing.T) {
		s := newSite(t)
		s.env.RegisterNode(t, s.look.Release.RunnerNamespace, func(n *corev1.Node) { n.Labels[corev1.LabelArchStable] = "amd64" })
		require.Empty(t, s.examine().Findings)
		s.change("linux", func(p *v1alpha1.RunnerPool) { p.Spec.Architecture = v1alpha1.ArchitectureARM64 })
		s.finds("architecture-missing", "linux", "arm64", "amd64")
	})
	t.Run("a sidecar in a pod", func(t *testing.T) {
		s := newSite(t)
		pod := testPod(t)
		pod.Namespace, pod.Name, pod.OwnerReferences, pod.Spec.ServiceAccountName = s.look.Release.RunnerNamespace, "linux-aaaaaaaa", nil, "default"
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "istio-proxy", Image: "proxy"})
		require.NoError(t, s.admin.Create(t.Context(), pod))
		r := s.examine()
		require.Equal(t, []string{"sidecar-injected"}, codes(r))
		require.Contains(t, r.Findings[0].Sentence, "istio-proxy")
	})
}

func TestExaminePools_ImagesThatCannotBePulled(t *testing.T) {
	now := time.Now()
	says := func(status metav1.ConditionStatus, reason string) Pool {
		return readPool(testPool(func(p *v1alpha1.RunnerPool) {
			p.CreationTimestamp = metav1.NewTime(now)
			p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionImagesPulled, Status: status, Reason: reason, Message: "failed on n1: manifest unknown"}}
		}))
	}
	for _, quiet := range []Pool{says(metav1.ConditionTrue, "Pulled"), says(metav1.ConditionFalse, "Pulling")} {
		var r Report
		examinePools(&r, Cluster{Pools: []Pool{quiet}}, now)
		require.Empty(t, r.Findings)
	}
	var r Report
	examinePools(&r, Cluster{RunnerNamespace: "runners", Pools: []Pool{says(metav1.ConditionFalse, v1alpha1.ReasonPullFailed)}}, now)
	require.Len(t, r.Findings, 1)
	require.Equal(t, "image-pull-failed", r.Findings[0].Code)
	require.Equal(t, SeverityWarning, r.Findings[0].Severity)
	require.Contains(t, r.Findings[0].Sentence, "Images of pool linux cannot be pulled in advance: failed on n1: manifest unknown. Idle runners there keep")
	require.Contains(t, r.Findings[0].Remedy, "kubectl -n runners describe daemonset linux-prepull")
}
