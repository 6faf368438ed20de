package controller_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// runtimeClass makes a class that pods can ask for; there is no runtime behind it.
func (y *yard) runtimeClass(name string) {
	y.t.Helper()
	err := y.admin.Create(y.t.Context(), &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: name})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(y.t, err)
	}
}

func TestRunner_NET7_LeavesItsPodUnderAMicroVMOnly(t *testing.T) {
	y := newYard(t)
	y.runtimeClass("kata")
	y.runtimeClass("gvisor")
	privileged := &corev1.SecurityContext{Privileged: ptr.To(true)}
	for name, c := range map[string]struct {
		spoil func(*corev1.Pod)
		says  string
	}{
		"container": {func(p *corev1.Pod) { p.Spec.Containers[1].SecurityContext = privileged }, "privileged container"},
		"init": {func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "none", SecurityContext: privileged}}
		}, "privileged container"},
		"sidecar": {func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{
				Name: "beside", Image: "none", SecurityContext: privileged, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
			}}
		}, "privileged container"},
		"hostnetwork": {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "namespace of its host"},
		"hostpid":     {func(p *corev1.Pod) { p.Spec.HostPID = true }, "namespace of its host"},
		"hostipc":     {func(p *corev1.Pod) { p.Spec.HostIPC = true }, "namespace of its host"},
		"hostpath": {func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		}, "hostPath volume"},
		"sysadmin": {func(p *corev1.Pod) { p.Spec.Containers[1].SecurityContext = capability("SYS_ADMIN") }, "without a user namespace"},
		"all":      {func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext = capability("ALL") }, "without a user namespace"},
		"small":    {func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext = capability("sys_admin") }, "without a user namespace"},
		"sysadmininit": {func(p *corev1.Pod) {
			p.Spec.HostUsers = ptr.To(true)
			p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "none", SecurityContext: capability("SYS_ADMIN")}}
		}, "without a user namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			make := func(class *string, foreign bool) error {
				pod := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: y.namespace, Name: name, Labels: map[string]string{runnerpod.LabelRunner: "true"}},
					Spec: corev1.PodSpec{
						RuntimeClassName: class, AutomountServiceAccountToken: ptr.To(false), SchedulerName: "nobody",
						Containers: []corev1.Container{{Name: "a", Image: "none"}, {Name: "b", Image: "none"}},
					},
				}
				if foreign {
					pod.Labels = nil
				}
				c.spoil(pod)
				return y.admin.Create(t.Context(), pod, client.DryRunAll)
			}
			refusedAs(t, make(nil, false), c.says)
			refusedAs(t, make(ptr.To("gvisor"), false), "set runtimeClassName to a class of microVMs: kata, ")
			require.NoError(t, make(ptr.To("kata"), false))
			require.NoError(t, make(nil, true), "pods that are no runners are not protected")
		})
	}

	require.NoError(t, y.admin.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: y.namespace, Name: "confined", Labels: map[string]string{runnerpod.LabelRunner: "true"}},
		Spec: corev1.PodSpec{
			HostUsers: ptr.To(false), AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{Name: "a", Image: "none", SecurityContext: capability("SYS_ADMIN")}},
		},
	}, client.DryRunAll), "SYS_ADMIN is limited to the pod's user namespace")

	// The container that kubectl debug --profile=sysadmin adds to a running pod.
	debug := func(pod *corev1.Pod, privileges *corev1.SecurityContext) error {
		pod = pod.DeepCopy()
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debugger", Image: "none", ImagePullPolicy: corev1.PullAlways, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			SecurityContext: privileges,
		}}}
		_, err := y.env.Kube.CoreV1().Pods(y.namespace).UpdateEphemeralContainers(t.Context(), pod.Name, pod, metav1.UpdateOptions{})
		return err
	}
	pod := y.runner("debugged", idle)
	refusedAs(t, debug(pod, privileged), "privileged container")
	refusedAs(t, debug(pod, capability("SYS_ADMIN")), "without a user namespace")
	require.NoError(t, debug(pod, nil))
	inside := y.runner("debugged-inside", idle, func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("kata") })
	require.NoError(t, debug(inside, privileged))
}

func capability(name corev1.Capability) *corev1.SecurityContext {
	return &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{name}}}
}

// A pool whose jobs build images gets the pods that it asks for, under the shipped policies, on nodes without microVMs.
func TestPool_NET7_BuildKitNeedsNoMicroVM(t *testing.T) {
	b := newBench(t)
	b.pool("builders", 1, func(p *v1alpha1.RunnerPool) { p.Spec.Template.Build = v1alpha1.BuildWithBuildKit })
	pod := b.havePods("builders", 1)[0]
	require.Equal(t, ptr.To(false), pod.Spec.HostUsers, "the API server has not dropped it")
	pool := &v1alpha1.RunnerPool{}
	require.NoError(t, b.admin.Get(t.Context(), client.ObjectKey{Namespace: pod.Namespace, Name: "builders"}, pool))
	for text, spoil := range map[string]func(*v1alpha1.RunnerTemplate){
		"build and dind exclude each other": func(r *v1alpha1.RunnerTemplate) { r.Dind, r.RuntimeClassName = &v1alpha1.Dind{}, ptr.To("kata") },
		"set build, or remove buildKit":     func(r *v1alpha1.RunnerTemplate) { r.Build, r.BuildKit = "", &v1alpha1.BuildKit{} },
		"Unsupported value":                 func(r *v1alpha1.RunnerTemplate) { r.Build = "Kaniko" },
		"buildKit.storage must be at least 1Gi": func(r *v1alpha1.RunnerTemplate) {
			r.BuildKit = &v1alpha1.BuildKit{Storage: ptr.To(resource.MustParse("20"))}
		},
	} {
		spoiled := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace, Name: "spoiled"}, Spec: *pool.Spec.DeepCopy()}
		spoil(&spoiled.Spec.Template)
		require.ErrorContains(t, b.admin.Create(t.Context(), spoiled, client.DryRunAll), text)
	}
}

// A pool with a Docker daemon gets the pods that it asks for, under the shipped policies; without a microVM it gets none,
// and says why.
func TestPool_NET7_DindNeedsAMicroVM(t *testing.T) {
	b := newBench(t)
	(&yard{t: t, admin: b.admin}).runtimeClass("kata")
	(&yard{t: t, admin: b.admin}).runtimeClass("gvisor")
	b.pool("docker", 1, func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.RuntimeClassName, p.Spec.Template.Dind = ptr.To("kata"), &v1alpha1.Dind{}
	})
	pod := b.havePods("docker", 1)[0]
	require.Equal(t, runnerpod.ContainerDind, pod.Spec.InitContainers[len(pod.Spec.InitContainers)-1].Name)

	b.pool("unsafe", 1, func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.RuntimeClassName, p.Spec.Template.Dind = ptr.To("gvisor"), &v1alpha1.Dind{}
	})
	b.eventually("the pool says what to do", func() bool {
		for _, c := range b.get("unsafe").Status.Conditions {
			if c.Type == v1alpha1.ConditionProgressing && c.Reason == "InvalidTemplate" {
				require.Contains(t, c.Message, "--microvm-runtime-classes")
				return true
			}
		}
		return false
	})
	require.Empty(t, b.pods("unsafe"))
}
