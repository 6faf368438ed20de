package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
)

// ruled is a namespace with a rule for its pods.
type ruled struct {
	*bench
	probe *corev1.Pod
}

// newRuled has a bench whose namespace takes the probe, a pod that keeps no rule. change makes it one that a particular rule is about.
func newRuled(t *testing.T, change ...func(*corev1.Pod)) *ruled {
	t.Helper()
	r := &ruled{bench: newBench(t)}
	r.probe = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "probe"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "probe:1"}}},
	}
	for _, c := range change {
		c(r.probe)
	}
	require.NoError(t, r.try())
	return r
}

// try asks the API server for the probe, to be tried and not made.
func (r *ruled) try() error {
	return r.admin.Create(r.t.Context(), r.probe.DeepCopy(), client.DryRunAll)
}

// inForce waits until the API server refuses the probe.
func (r *ruled) inForce(rules ...client.Object) {
	r.t.Helper()
	for _, rule := range rules {
		require.NoError(r.t, r.admin.Create(r.t.Context(), rule))
		r.t.Cleanup(func() { _ = r.admin.Delete(r.t.Context(), rule) })
	}
	r.eventually("the rule is in force", func() bool { return apierrors.IsForbidden(r.try()) || apierrors.IsInvalid(r.try()) })
}

func (r *ruled) enforce(level string) {
	r.t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"`+level+`"}}}`))
	require.NoError(r.t, r.admin.Patch(r.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}, patch))
	r.inForce()
}

// here matches what is created in the namespace.
func (r *ruled) here() *admissionv1.MatchResources {
	return &admissionv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: r.namespace}},
		ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}}},
	}
}

func quantities(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func limitRange(namespace string, item corev1.LimitRangeItem) *corev1.LimitRange {
	item.Type = corev1.LimitTypeContainer
	return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "range"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}
}

func TestRules_POD1_R6_AQuotaOnLimitsTakesRunners(t *testing.T) {
	r := newRuled(t)
	r.inForce(&corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "quota"},
		Spec: corev1.ResourceQuotaSpec{Hard: quantities("pods", "10",
			"limits.cpu", "20", "limits.memory", "40Gi", "limits.ephemeral-storage", "100Gi",
			"requests.cpu", "10", "requests.memory", "20Gi", "requests.ephemeral-storage", "100Gi")},
	})
	r.pool("quota", 2)
	r.havePods("quota", 2)
}

func TestRules_POD1_R6_ALimitRangeWithMinimaTakesRunners(t *testing.T) {
	tiny := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = quantities("cpu", "1m", "memory", "1Mi", "ephemeral-storage", "1Mi")
	}
	for name, c := range map[string]struct {
		least  corev1.ResourceList
		change func(*v1alpha1.RunnerPool)
	}{
		"by default": {quantities("cpu", "10m", "memory", "32Mi", "ephemeral-storage", "64Mi"), func(*v1alpha1.RunnerPool) {}},
		"as the pool says": {quantities("cpu", "200m", "memory", "100Mi", "ephemeral-storage", "500Mi"), func(p *v1alpha1.RunnerPool) {
			p.Spec.Template.AgentResources = &v1alpha1.ContainerResources{Requests: quantities("cpu", "200m", "memory", "100Mi", "ephemeral-storage", "500Mi")}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuled(t, tiny)
			r.inForce(limitRange(r.namespace, corev1.LimitRangeItem{Min: c.least}))
			r.pool("minima", 1, c.change)
			r.havePods("minima", 1)
		})
	}
}

func TestRules_POD2_R11_PodSecurityTakesRunners(t *testing.T) {
	privileged := func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	}
	sudo := func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(true), Capabilities: &corev1.Capabilities{}}
	}
	root := func(p *v1alpha1.RunnerPool) { p.Spec.Template.RunAsUser = ptr.To[int64](0) }
	assigned := func(p *v1alpha1.RunnerPool) { p.Spec.Template.UserAssignment = v1alpha1.UserFromCluster }
	t.Run("restricted", func(t *testing.T) {
		r := newRuled(t)
		r.enforce("restricted")
		r.pool("plain", 1)
		r.pool("assigned", 1, assigned)
		r.havePods("plain", 1)
		r.havePods("assigned", 1)
		r.pool("sudo", 1, sudo)
		r.eventually("the condition says why there is none", func() bool {
			c := r.condition("sudo", v1alpha1.ConditionProgressing)
			return c != nil && strings.Contains(c.Message, "allowPrivilegeEscalation")
		})
		require.Empty(t, r.podNames("sudo"))
	})
	t.Run("baseline", func(t *testing.T) {
		r := newRuled(t, privileged)
		r.enforce("baseline")
		for name, change := range map[string]func(*v1alpha1.RunnerPool){"sudo": sudo, "root": root, "assigned": assigned} {
			r.pool(name, 1, change)
			r.havePods(name, 1)
		}
	})
}

// The usual rules of Kyverno installations, as a ValidatingAdmissionPolicy.
func TestRules_POD1_POD2_R10_PoliciesTakeRunners(t *testing.T) {
	r := newRuled(t)
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: r.namespace},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: r.here(),
			Variables: []admissionv1.Variable{{
				Name: "all", Expression: "object.spec.containers + object.spec.?initContainers.orValue([])",
			}},
			Validations: []admissionv1.Validation{
				{Expression: "['team', 'app.kubernetes.io/name'].all(l, object.metadata.?labels[?l].orValue('') != '')", Message: "pods have an owner"},
				{Expression: "variables.all.all(c, ['cpu', 'memory'].all(r, c.?resources.?limits[?r].hasValue() && c.?resources.?requests[?r].hasValue()))", Message: "requests and limits"},
				{Expression: "variables.all.all(c, !c.?securityContext.?allowPrivilegeEscalation.orValue(true))", Message: "no privilege escalation"},
				{Expression: "variables.all.all(c, c.?securityContext.?capabilities.?drop.orValue([]).exists(d, d == 'ALL'))", Message: "no capabilities"},
				{Expression: "object.spec.?securityContext.?runAsNonRoot.orValue(false) == true", Message: "no root"},
				{Expression: "!object.spec.?automountServiceAccountToken.orValue(true)", Message: "no token"},
				{Expression: "!object.spec.?volumes.orValue([]).exists(v, has(v.hostPath))", Message: "no directory of the host"},
			},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: r.namespace},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: r.namespace, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	r.inForce(policy, binding)
	r.pool("policies", 1, func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.Metadata = &v1alpha1.RunnerPodMetadata{Labels: map[string]string{"team": "ci", "app.kubernetes.io/name": "runner"}}
	})
	r.havePods("policies", 1)
	r.pool("nameless", 1)
	r.eventually("the condition says why there is none", func() bool {
		c := r.condition("nameless", v1alpha1.ConditionProgressing)
		return c != nil && strings.Contains(c.Message, "pods have an owner")
	})
}

// injects is a service mesh: it adds a container to each pod of the namespace that does not opt out, and waits until it does.
func (r *ruled) injects() {
	r.t.Helper()
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: r.namespace},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints:   r.here(),
			MatchConditions:    []admissionv1.MatchCondition{{Name: "in", Expression: "object.metadata.?labels[?'mesh.example.com/inject'].orValue('') != 'false'"}},
			ReinvocationPolicy: admissionv1.IfNeededReinvocationPolicy,
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionv1.ApplyConfiguration{
					Expression: `Object{spec: Object.spec{containers: [Object.spec.containers{name: "mesh-proxy", image: "proxy:1"}]}}`,
				},
			}},
		},
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: r.namespace}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: r.namespace},
	}
	for _, rule := range []client.Object{policy, binding} {
		require.NoError(r.t, r.admin.Create(r.t.Context(), rule))
		r.t.Cleanup(func() { _ = r.admin.Delete(r.t.Context(), rule) })
	}
	r.eventually("the mesh injects", func() bool {
		pod := r.probe.DeepCopy()
		return r.admin.Create(r.t.Context(), pod, client.DryRunAll) == nil && injected(pod)
	})
}

func injected(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "mesh-proxy" })
}

// beside writes a pod's status as a kubelet would, with the mesh's container running.
func (r *ruled) beside(name string, poller, runner corev1.ContainerState, ready bool) {
	r.t.Helper()
	r.eventually("the status is written", func() bool {
		var pod corev1.Pod
		require.NoError(r.t, r.admin.Get(r.t.Context(), types.NamespacedName{Namespace: r.namespace, Name: name}, &pod))
		pod.Status.Phase = corev1.PodRunning
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: runnerpod.ContainerPoller, Image: "x", Ready: poller.Running != nil, State: poller},
			{Name: runnerpod.ContainerRunner, Image: "x", Ready: ready, State: runner},
			{Name: "mesh-proxy", Image: "x", Ready: true, State: running()},
		}
		return r.kubelet.Status().Update(r.t.Context(), &pod) == nil // the scheduler writes it too
	})
}

func TestRules_POD3_R10_AnInjectedSidecarKeepsNoRunner(t *testing.T) {
	y := newFleetBench(t)
	y.node("n1")
	r := &ruled{bench: y.bench, probe: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: y.namespace, Name: "probe"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "probe:1"}}},
	}}
	r.injects()
	y.fleetPool("meshed", 1)
	pod := r.havePods("meshed", 1)[0]
	require.True(t, injected(&pod))
	r.eventually("it has a node", func() bool { p, _ := y.podOf(pod.Name); return p.Spec.NodeName != "" })
	r.beside(pod.Name, running(), running(), true)
	r.eventually("idle", func() bool { return r.get("meshed").Status.Idle == 1 })
	r.beside(pod.Name, exited(0), running(), false)
	r.eventually("busy", func() bool { return r.get("meshed").Status.Busy == 1 })
	require.True(t, apierrors.IsForbidden(r.admin.Delete(t.Context(), pod.DeepCopy())), "EXCL-7: no client deletes it")

	r.beside(pod.Name, exited(0), exited(0), false)
	var last corev1.Pod
	r.eventually("it is removed", func() bool {
		var exists bool
		last, exists = y.podOf(pod.Name)
		return exists && last.DeletionTimestamp != nil
	})
	require.LessOrEqual(t, *last.DeletionGracePeriodSeconds, int64(5), "what was injected is stopped")
	r.eventually("its place is free", func() bool {
		return slices.ContainsFunc(r.pods("meshed"), func(p corev1.Pod) bool { return p.Name != pod.Name })
	})
	_, reports := r.server.asked()
	require.Positive(t, reports, "POOL-4: the end is reported")

	y.fleetPool("out", 1, func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.Metadata = &v1alpha1.RunnerPodMetadata{Labels: map[string]string{"mesh.example.com/inject": "false"}}
	})
	require.False(t, injected(&r.havePods("out", 1)[0]))
}

func TestRules_POD4_R18_PullSecretsOfTheDefaultAccount(t *testing.T) {
	r := newRuled(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "default"}}
	require.NoError(t, r.admin.Patch(t.Context(), account, client.RawPatch(types.MergePatchType, []byte(`{"imagePullSecrets":[{"name":"registry"}]}`))))
	r.pool("pulls", 1, func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "own"}}
	})
	pod := r.havePods("pulls", 1)[0]
	want := []corev1.LocalObjectReference{{Name: "own"}, {Name: "registry"}}
	require.Equal(t, want, pod.Spec.ImagePullSecrets)
	require.NoError(t, r.admin.Get(t.Context(), types.NamespacedName{Namespace: r.namespace, Name: pod.Name}, account))
	require.Equal(t, want, account.ImagePullSecrets)
}

func TestRules_POD5_R16_NodesOfTwoArchitectures(t *testing.T) {
	y := newFleetBench(t)
	for _, arch := range []string{"amd64", "arm64"} {
		node := y.node(arch)
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"kubernetes.io/arch":"`+arch+`"}}}`))
		require.NoError(t, y.admin.Patch(t.Context(), node, patch))
	}
	on := func(pool string) (node string) {
		t.Helper()
		y.eventually("it has a node", func() bool {
			pods := y.pods(pool)
			if len(pods) == 1 {
				node = pods[0].Spec.NodeName
			}
			return node != ""
		})
		return node
	}
	y.fleetPool("arm", 1, func(p *v1alpha1.RunnerPool) { p.Spec.Architecture = v1alpha1.ArchitectureARM64 })
	require.Equal(t, y.namespace+"-arm64", on("arm"))
	n := 0
	y.eventually("the controller has seen both nodes", func() bool {
		n++
		name := fmt.Sprintf("unsaid-%d", n)
		y.fleetPool(name, 1)
		return y.havePods(name, 1)[0].Spec.NodeSelector[corev1.LabelArchStable] == "amd64"
	})
	require.Equal(t, y.namespace+"-amd64", on(fmt.Sprintf("unsaid-%d", n)))
}

// A RunnerPool with fields that contradict each other, or that are Bullpen's own, is refused with a sentence.
func TestRunnerPool_R10_R11_R16_BadFieldsAreRefusedWithASentence(t *testing.T) {
	env := kit.Cluster(t)
	admin, namespace := env.Client(t, v1alpha1.AddToScheme), env.Namespace(t)
	labels := func(key string) func(*v1alpha1.RunnerPool) {
		return func(p *v1alpha1.RunnerPool) {
			p.Spec.Template.Metadata = &v1alpha1.RunnerPodMetadata{Labels: map[string]string{key: "x"}}
		}
	}
	annotations := func(key string) func(*v1alpha1.RunnerPool) {
		return func(p *v1alpha1.RunnerPool) {
			p.Spec.Template.Metadata = &v1alpha1.RunnerPodMetadata{Annotations: map[string]string{key: "x"}}
		}
	}
	for name, c := range map[string]struct {
		spoil func(*v1alpha1.RunnerPool)
		want  string
	}{
		"NET-4 the pool's label":     {labels(runnerpod.LabelPool), "are reserved"},
		"NET-4 any label of ours":    {labels("bullpen.dev/x"), "are reserved"},
		"EXCL-7 our annotation":      {annotations(runnerpod.AnnotationAllowDeletion), "are reserved"},
		"an annotation that we keep": {annotations(runnerpod.AnnotationSafeToEvict), "are set by Bullpen"},
		"an architecture":            {func(p *v1alpha1.RunnerPool) { p.Spec.Architecture = "mips" }, `"amd64", "arm64"`},
		"two architectures": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Architecture, p.Spec.Template.NodeSelector = "arm64", map[string]string{corev1.LabelArchStable: "amd64"}
		}, "template.nodeSelector contradicts architecture"},
		"a Mac of another one": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Platform, p.Spec.Architecture = v1alpha1.PlatformMacOS, v1alpha1.ArchitectureAMD64
		}, "Apple silicon"},
		"a Mac's context": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Platform, p.Spec.Template.SecurityContext = v1alpha1.PlatformMacOS, &corev1.SecurityContext{}
		}, "for platform linux"},
		"a user of its own": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Template.SecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To[int64](7)}
		}, "set runAsUser of the template"},
		"NET-7 privileged": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Template.SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		}, "privileged runners require a microVM"},
		"another resource": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Template.AgentResources = &v1alpha1.ContainerResources{Limits: quantities("example.com/gpu", "1")}
		}, "remove the others"},
		"an assignment": {func(p *v1alpha1.RunnerPool) { p.Spec.Template.UserAssignment = "Nobody" }, `"Template", "Cluster"`},
	} {
		t.Run(name, func(t *testing.T) {
			pool := newPool(namespace, "bad", 1)
			c.spoil(pool)
			err := admin.Create(t.Context(), pool)
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, c.want)
		})
	}
	pool := newPool(namespace, "good", 1)
	pool.Spec.Architecture = v1alpha1.ArchitectureAMD64
	pool.Spec.Template.Metadata = &v1alpha1.RunnerPodMetadata{
		Labels: map[string]string{"sidecar.istio.io/inject": "false"}, Annotations: map[string]string{"linkerd.io/inject": "disabled"},
	}
	pool.Spec.Template.SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(true), Capabilities: &corev1.Capabilities{}}
	pool.Spec.Template.AgentResources = &v1alpha1.ContainerResources{Requests: quantities("cpu", "100m"), Limits: quantities("ephemeral-storage", "1Gi")}
	require.NoError(t, admin.Create(t.Context(), pool))
	require.NotNil(t, pool.Spec.Template.SecurityContext.Capabilities, "an empty list is kept: it says that none are dropped")
	require.Empty(t, pool.Spec.Template.UserAssignment, "defaults of the controller change no hash")
}
