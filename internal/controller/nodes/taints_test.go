package nodes

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"
)

// The taints as the tools write them.
func TestDefaultTaints_R5_AreThoseOfNodesThatAreTakenAway(t *testing.T) {
	for text, want := range map[string]bool{
		"karpenter.sh/disrupted:NoSchedule":                                     true,
		"karpenter.sh/disruption=disrupting:NoSchedule":                         true,
		"ToBeDeletedByClusterAutoscaler=1732590000:NoSchedule":                  true,
		"aws-node-termination-handler/spot-itn=abc:NoSchedule":                  true,
		"aws-node-termination-handler/spot-itn=abc:NoExecute":                   true,
		"aws-node-termination-handler/rebalance-recommendation=abc:NoSchedule":  true,
		"aws-node-termination-handler/scheduled-maintenance=abc:NoSchedule":     true,
		"aws-node-termination-handler/asg-lifecycle-termination=abc:NoSchedule": true,
		"cloud.google.com/impending-node-termination:NoSchedule":                true,
		"remediator.aks.microsoft.com/unschedulable:NoSchedule":                 true,
		"node.cloudprovider.kubernetes.io/shutdown:NoSchedule":                  true,
		"node.kubernetes.io/out-of-service=nodeshutdown:NoExecute":              true,
		"autoscaling.cast.ai/draining=spot-interruption:NoSchedule":             true,
		"medik8s.io/drain:NoSchedule":                                           true,
		"medik8s.io/remediation=self-node-remediation:NoExecute":                true,
		"kubevirt.io/drain=draining:NoSchedule":                                 true,
		"DeletionCandidateOfClusterAutoscaler=1732590000:PreferNoSchedule":      false,
		"weave.works/kured-node-reboot:PreferNoSchedule":                        false,
		"node.cluster.x-k8s.io/outdated-revision:PreferNoSchedule":              false,
		"aws-node-termination-handler/spot-itn=abc:PreferNoSchedule":            false,
		"node.kubernetes.io/not-ready:NoExecute":                                false,
		"node.kubernetes.io/unreachable:NoExecute":                              false,
		"node.kubernetes.io/disk-pressure:NoSchedule":                           false,
		"node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule":        false,
		"karpenter.sh/unregistered:NoExecute":                                   false,
		"node.cilium.io/agent-not-ready=true:NoSchedule":                        false,
		"kubernetes.azure.com/scalesetpriority=spot:NoSchedule":                 false,
		"cloud.google.com/gke-spot=true:NoSchedule":                             false,
		"dedicated=runners:NoSchedule":                                          false,
		"xaws-node-termination-handler/spot-itn:NoSchedule":                     false,
		"example.com/aws-node-termination-handler:NoSchedule":                   false,
		"ToBeDeletedByClusterAutoscalerSoon:NoSchedule":                         false,
	} {
		taint := readTaint(text)
		require.Equal(t, text, taint.ToString())
		require.Equal(t, want, DefaultTaints().Announce(&taint), text)
		require.False(t, Taints{}.Announce(&taint), "none are none")
	}
}

func TestParseTaints_SaysWhatIsWrong(t *testing.T) {
	taints, err := ParseTaints([]string{"a.example/drain=now", " b ", "c.example/*", "d.example/x*=y"})
	require.NoError(t, err)
	for text, want := range map[string]bool{
		"a.example/drain=now:NoSchedule": true, "a.example/drain=later:NoSchedule": false, "a.example/drain:NoSchedule": false,
		"b:NoExecute": true, "b=any:NoSchedule": true, "c.example/one:NoSchedule": true, "c.example:NoSchedule": false,
		"d.example/xyz=y:NoSchedule": true, "d.example/xyz=z:NoSchedule": false,
	} {
		taint := readTaint(text)
		require.Equal(t, want, taints.Announce(&taint), text)
	}
	for text, says := range map[string]string{
		"":                       "has no key",
		"*":                      "more of the key",
		"a*":                     "more of the key",
		"/x":                     "has no key",
		"a/b/c":                  "has no key",
		"a b":                    "has no key",
		"a=b c":                  "has no value",
		"key:PreferNoSchedule":   "names an effect",
		"key=value:NoSchedule":   "names an effect",
		strings.Repeat("k", 400): "has no key",
	} {
		_, err := ParseTaints([]string{"fine", text})
		require.ErrorContains(t, err, says, text)
	}
	none, err := ParseTaints(nil)
	require.NoError(t, err)
	require.Equal(t, Taints{}, none)
}

func TestDeparture_R5_SaysWhyARunnerLeavesANode(t *testing.T) {
	disrupted := corev1.Taint{Key: "karpenter.sh/disrupted", Effect: corev1.TaintEffectNoSchedule, TimeAdded: &metav1.Time{Time: time.Unix(1, 0)}}
	scaleDown := corev1.Taint{Key: "ToBeDeletedByClusterAutoscaler", Value: "1732590000", Effect: corev1.TaintEffectNoSchedule}
	tainted := func(taints ...corev1.Taint) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, taints...) }
	}
	cordon := func(n *corev1.Node) { n.Spec.Unschedulable, n.Spec.Taints = true, []corev1.Taint{unschedulable} }
	removed := func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	exists := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists}
	}
	unready := func(status corev1.ConditionStatus, reason, message string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			ready := &n.Status.Conditions[0]
			ready.Status, ready.Reason, ready.Message = status, reason, message
		}
	}
	for name, c := range map[string]struct {
		node        *corev1.Node
		tolerations []corev1.Toleration
		want        string
	}{
		"EXCL8 shutting down":       {testNode(unready(corev1.ConditionFalse, "KubeletNotReady", "node is shutting down")), nil, "node n1 is shutting down"},
		"shutting down, tolerated":  {testNode(unready(corev1.ConditionFalse, "KubeletNotReady", "node is shutting down")), []corev1.Toleration{exists("")}, "node n1 is shutting down"},
		"and not ready otherwise":   {testNode(unready(corev1.ConditionFalse, "KubeletNotReady", "[container runtime is down, node is shutting down]")), nil, "node n1 is shutting down"},
		"not ready otherwise":       {testNode(unready(corev1.ConditionFalse, "KubeletNotReady", "container runtime is down")), nil, ""},
		"it was shutting down":      {testNode(unready(corev1.ConditionTrue, "KubeletReady", "node is shutting down")), nil, ""},
		"off, or silent":            {testNode(unready(corev1.ConditionUnknown, "NodeStatusUnknown", "node is shutting down")), nil, ""},
		"well":                      {testNode(), nil, ""},
		"a taint of its own":        {testNode(tainted(corev1.Taint{Key: "fleet", Effect: corev1.TaintEffectNoSchedule})), nil, ""},
		"cordoned":                  {testNode(cordon), nil, "node n1 is cordoned"},
		"cordoned, tolerated":       {testNode(cordon), []corev1.Toleration{exists(corev1.TaintNodeUnschedulable)}, ""},
		"being deleted":             {testNode(removed), []corev1.Toleration{exists("")}, "node n1 is being deleted"},
		"Karpenter":                 {testNode(tainted(disrupted)), nil, "node n1 has the taint karpenter.sh/disrupted:NoSchedule and is being removed"},
		"the autoscaler":            {testNode(tainted(scaleDown)), nil, "node n1 has the taint ToBeDeletedByClusterAutoscaler=1732590000:NoSchedule and is being removed"},
		"Karpenter, tolerated":      {testNode(tainted(disrupted)), []corev1.Toleration{exists("karpenter.sh/disrupted")}, ""},
		"everything tolerated":      {testNode(tainted(disrupted, scaleDown), cordon), []corev1.Toleration{exists("")}, ""},
		"one of two tolerated":      {testNode(tainted(disrupted, scaleDown)), []corev1.Toleration{exists("karpenter.sh/disrupted")}, "node n1 has the taint ToBeDeletedByClusterAutoscaler=1732590000:NoSchedule and is being removed"},
		"another value tolerated":   {testNode(tainted(scaleDown)), []corev1.Toleration{{Key: scaleDown.Key, Value: "1"}}, "node n1 has the taint ToBeDeletedByClusterAutoscaler=1732590000:NoSchedule and is being removed"},
		"tolerates the cordon only": {testNode(cordon, tainted(disrupted)), []corev1.Toleration{exists(corev1.TaintNodeUnschedulable)}, "node n1 has the taint karpenter.sh/disrupted:NoSchedule and is being removed"},
	} {
		d := DepartureOf(c.node, DefaultTaints())
		require.Equal(t, c.want, d.For(c.tolerations), name)
		require.Equal(t, c.want, d.For(MatterForDepartures(c.tolerations)), name)
		trimmed, err := TrimNode(c.node.DeepCopy())
		require.NoError(t, err)
		again := DepartureOf(trimmed.(*corev1.Node), DefaultTaints()) //nolint:forcetypeassert // it is one
		require.Equal(t, d, again, "%s: the cache keeps what it is judged by", name)
		require.True(t, d == again, "%s: it can be compared", name)
	}
	require.Zero(t, DepartureOf(testNode(tainted(corev1.Taint{Key: "fleet", Effect: corev1.TaintEffectNoSchedule})), DefaultTaints()))
}

// A runner leaves for a taint if and only if none could be placed there: otherwise its replacement would be placed on the node that it left.
func TestDeparture_R5_WhatLeavesIsNotPlacedThereAgain(t *testing.T) {
	keys := []string{"karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler", "fleet", corev1.TaintNodeUnschedulable, ""}
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule}
	rapid.Check(t, func(t *rapid.T) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		for range rapid.IntRange(0, 3).Draw(t, "taints") {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{
				Key: rapid.SampledFrom(keys[:4]).Draw(t, "key"), Value: rapid.SampledFrom([]string{"", "v"}).Draw(t, "value"),
				Effect: rapid.SampledFrom(effects).Draw(t, "effect"),
			})
		}
		if rapid.Bool().Draw(t, "cordoned") {
			node.Spec.Unschedulable = true
			node.Spec.Taints = append(node.Spec.Taints, unschedulable)
		}
		var tolerations []corev1.Toleration
		for range rapid.IntRange(0, 3).Draw(t, "tolerations") {
			tolerations = append(tolerations, corev1.Toleration{
				Key: rapid.SampledFrom(keys).Draw(t, "tolerated key"), Operator: corev1.TolerationOpExists,
				Effect: rapid.SampledFrom(append([]corev1.TaintEffect{""}, effects...)).Draw(t, "tolerated effect"),
			})
		}
		if DepartureOf(node, DefaultTaints()).For(tolerations) == "" {
			return
		}
		_, refused := scheduling.FindMatchingUntoleratedTaint(klog.Logger{}, node.Spec.Taints, tolerations, func(t *corev1.Taint) bool {
			return t.Effect != corev1.TaintEffectPreferNoSchedule
		}, false)
		require.True(t, refused, "the scheduler would place its replacement here")
	})
}
