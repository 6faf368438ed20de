package controller_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/ephemeral"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
)

// fence is a namespace with runners, and the policies about what is added to them.
type fence struct {
	t          *testing.T
	env        *kit.Env
	namespace  string
	admin      client.Client
	controller client.Client
	pod        *corev1.Pod // of a pool with job containers
	other      *corev1.Pod // of one without
}

func newFence(t *testing.T) *fence {
	t.Helper()
	env := kit.Cluster(t)
	f := &fence{t: t, env: env, namespace: env.Namespace(t), admin: env.Client(t)}
	env.ShippedRoles(t, f.namespace)
	env.ShippedJobContainers(t, f.namespace)
	f.controller = env.ClientAs(t, env.As(t, controllerUser, "system:serviceaccounts", "system:authenticated"))
	f.pod, f.other = f.runner("jobs", &v1alpha1.JobContainers{ShmSize: ptr.To(resource.MustParse("1Gi"))}), f.runner("plain", nil)
	require.Eventually(t, func() bool {
		unnamed := f.job()
		unnamed.Name = "x"
		return apierrors.IsForbidden(f.try(f.admin, f.pod, f.job())) && apierrors.IsForbidden(f.try(f.controller, f.pod, unnamed))
	}, patience, interval, "the policies are enforced")
	return f
}

func (f *fence) runner(name string, jobs *v1alpha1.JobContainers) *corev1.Pod {
	pool := newPool(f.namespace, name, 1)
	pool.Spec.Template.JobContainers = jobs
	pod, account, err := runnerpod.Build(pool, runnerpod.Options{DispatchURL: "http://server", AgentImage: "agent:1", JobContainersKey: "key"}, "abcd1234")
	require.NoError(f.t, err)
	pod.OwnerReferences, account.OwnerReferences = nil, nil
	require.NoError(f.t, f.admin.Create(f.t.Context(), account))
	require.NoError(f.t, f.admin.Create(f.t.Context(), pod))
	return pod
}

func (f *fence) job() corev1.EphemeralContainer {
	return ephemeral.JobContainer(f.pod, "job-1-0", "docker.io/library/alpine"+imageDigest, v1alpha1.ProfileBaseline)
}

func (f *fence) courier() corev1.EphemeralContainer {
	v, ok := ephemeral.Read(f.pod)
	require.True(f.t, ok)
	c, err := ephemeral.NextCourier(f.pod, v, 1, letter.Delivery{}, ephemeral.Rest{})
	require.NoError(f.t, err)
	return c
}

// try adds containers to a pod, or would.
func (f *fence) try(c client.Client, pod *corev1.Pod, containers ...corev1.EphemeralContainer) error {
	return f.patch(c, pod, []client.SubResourcePatchOption{client.DryRunAll}, containers...)
}

func (f *fence) patch(c client.Client, pod *corev1.Pod, options []client.SubResourcePatchOption, containers ...corev1.EphemeralContainer) error {
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"ephemeralContainers": containers}})
	require.NoError(f.t, err)
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	return c.SubResource("ephemeralcontainers").Patch(f.t.Context(), target, client.RawPatch(types.StrategicMergePatchType, body), options...)
}

// JOB-6: of all users with the right to patch pods/ephemeralcontainers, only the controller adds containers, and only to runners that were made for them.
func TestAddedContainers_JOB6_OnlyByTheControllerToRunnersMadeForThem(t *testing.T) {
	f := newFence(t)
	require.NoError(t, f.try(f.controller, f.pod, f.job(), f.courier()))
	require.ErrorContains(t, f.try(f.admin, f.pod, f.job()), "only the controller adds containers")
	debugger := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", Image: "busybox"}}
	require.ErrorContains(t, f.try(f.admin, f.other, debugger), "use kubectl exec")
	job := f.job()
	job.VolumeMounts = nil // the pod has none of the volumes
	require.ErrorContains(t, f.try(f.controller, f.other, job), "only to runners with jobContainers")
	server := f.env.ClientAs(t, f.env.As(t, "system:serviceaccount:bullpen-system:bullpen-server", "system:serviceaccounts", "system:authenticated"))
	require.True(t, apierrors.IsForbidden(f.try(server, f.pod, f.job())), "the server has no right to it")
}

// JOB-4: what was decided for one state of a pod is not done in another one, nor in a pod that has its name by now.
func TestAddedContainers_JOB4_APatchIsForThePodThatWasRead(t *testing.T) {
	f := newFence(t)
	patch := func(metadata map[string]any) error {
		body, err := json.Marshal(map[string]any{"metadata": metadata, "spec": map[string]any{"ephemeralContainers": []any{f.job()}}})
		require.NoError(t, err)
		target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: f.pod.Name}}
		return f.controller.SubResource("ephemeralcontainers").Patch(t.Context(), target, client.RawPatch(types.StrategicMergePatchType, body))
	}
	require.NoError(t, f.admin.Get(t.Context(), client.ObjectKeyFromObject(f.pod), f.pod))
	before := f.pod.ResourceVersion
	require.NoError(t, f.admin.Patch(t.Context(), f.pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`))))
	require.True(t, apierrors.IsConflict(patch(map[string]any{"resourceVersion": before})))
	require.NotEqual(t, before, f.pod.ResourceVersion)
	require.Error(t, patch(map[string]any{"resourceVersion": f.pod.ResourceVersion, "uid": "another"}))
	require.NoError(t, patch(map[string]any{"resourceVersion": f.pod.ResourceVersion, "uid": f.pod.UID}))
	changed := f.job()
	changed.Image = "docker.io/library/other" + imageDigest
	require.True(t, apierrors.IsInvalid(f.try(f.controller, f.pod, changed)), "a name is never given twice")
}

// JOB-1: of the controller, too, everything but the image is fixed. Each of these is a way out of the job's bounds.
func TestAddedContainers_JOB1_OnlyTheImageIsFree(t *testing.T) {
	f := newFence(t)
	require.NoError(t, f.try(f.controller, f.pod, f.job(), f.courier()))
	restricted := ephemeral.JobContainer(f.pod, "step-2-0", "docker.io/library/alpine"+imageDigest, v1alpha1.ProfileRestricted)
	require.NoError(t, f.try(f.controller, f.pod, restricted))

	secret := &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "x"}, Key: "y"}}
	spoils := map[string]struct {
		spoil func(*corev1.EphemeralContainer)
		says  string
	}{
		"another name":                          {func(c *corev1.EphemeralContainer) { c.Name = "debugger" }, "is named job-N-P"},
		"no guard":                              {func(c *corev1.EphemeralContainer) { c.Command = []string{"/bin/sh"} }, "started by the agent's guard"},
		"the image's entrypoint":                {func(c *corev1.EphemeralContainer) { c.Command = nil }, "started by the agent's guard"},
		"the guard of a volume that jobs write": {func(c *corev1.EphemeralContainer) { c.Command[0] = jobcontainer.Dir + "/bullpen-agent" }, "started by the agent's guard"},
		"the image's own guard": {func(c *corev1.EphemeralContainer) {
			c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == runnerpod.VolumeGuard })
		}, "started by the agent's guard"},
		"writes the guard": {func(c *corev1.EphemeralContainer) {
			at := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == runnerpod.VolumeGuard })
			c.VolumeMounts[at].ReadOnly = false
		}, "where jobs expect them"},
		"another one's guard": {func(c *corev1.EphemeralContainer) { c.Command[3] = "job-2-0" }, "started by the agent's guard"},
		"arguments":           {func(c *corev1.EphemeralContainer) { c.Args = []string{"--and"} }, "started by the agent's guard"},
		"a tag":               {func(c *corev1.EphemeralContainer) { c.Image = "alpine:latest" }, "has a digest"},
		"privileged":          {func(c *corev1.EphemeralContainer) { c.SecurityContext.Privileged = ptr.To(true) }, "privileged"},
		"a capability": {func(c *corev1.EphemeralContainer) {
			c.SecurityContext.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}
		}, "adds no capabilities"},
		"no seccomp profile": {func(c *corev1.EphemeralContainer) { c.SecurityContext.SeccompProfile = nil }, "seccomp profile RuntimeDefault"},
		"another profile": {func(c *corev1.EphemeralContainer) {
			c.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
		}, "seccomp profile RuntimeDefault"},
		"no security context": {func(c *corev1.EphemeralContainer) { c.SecurityContext = nil }, "seccomp profile RuntimeDefault"},
		"an AppArmor profile": {func(c *corev1.EphemeralContainer) {
			c.SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
		}, "seccomp profile RuntimeDefault"},
		"the token": {func(c *corev1.EphemeralContainer) {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: runnerpod.VolumeToken, MountPath: "/token"})
		}, "mounts the volumes of jobs only"},
		"what other containers run from": {func(c *corev1.EphemeralContainer) {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: runnerpod.VolumeShared, MountPath: "/x"})
		}, "mounts the volumes of jobs only"},
		"requests and responses": {func(c *corev1.EphemeralContainer) {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: runnerpod.VolumeCourier, MountPath: "/bullpen/courier"})
		}, "mounts the volumes of jobs only"},
		"another path":        {func(c *corev1.EphemeralContainer) { c.VolumeMounts[0].MountPath = "/usr" }, "where jobs expect them"},
		"writes to externals": {func(c *corev1.EphemeralContainer) { c.VolumeMounts[3].ReadOnly = false }, "where jobs expect them"},
		"mounts on the host": {func(c *corev1.EphemeralContainer) {
			c.VolumeMounts[0].MountPropagation = ptr.To(corev1.MountPropagationHostToContainer)
		}, "where jobs expect them"},
		"a Secret":       {func(c *corev1.EphemeralContainer) { c.Env = []corev1.EnvVar{{Name: "A", ValueFrom: secret}} }, "no environment"},
		"an environment": {func(c *corev1.EphemeralContainer) { c.Env = []corev1.EnvVar{{Name: "LD_PRELOAD", Value: "/x"}} }, "no environment"},
		"all of a Secret": {func(c *corev1.EphemeralContainer) {
			c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "x"}}}}
		}, "no environment"},
		"its runner's view":  {func(c *corev1.EphemeralContainer) { c.TargetContainerName = runnerpod.ContainerRunner }, "shares no processes"},
		"a file's last line": {func(c *corev1.EphemeralContainer) { c.TerminationMessagePath = "/etc/passwd" }, "shares no processes"},
		"a terminal":         {func(c *corev1.EphemeralContainer) { c.Stdin, c.TTY = true, true }, "has no terminal"},
	}
	for _, name := range slices.Sorted(maps.Keys(spoils)) {
		job := f.job()
		spoils[name].spoil(&job)
		require.ErrorContains(t, f.try(f.controller, f.pod, job), spoils[name].says, name)
	}
	for name, spoil := range map[string]func(*corev1.EphemeralContainer){
		"another image":    func(c *corev1.EphemeralContainer) { c.Image = "evil" },
		"another command":  func(c *corev1.EphemeralContainer) { c.Command[1] = "run" },
		"as root":          func(c *corev1.EphemeralContainer) { c.SecurityContext.RunAsUser = ptr.To[int64](0) },
		"all capabilities": func(c *corev1.EphemeralContainer) { c.SecurityContext.Capabilities = nil },
		"the work":         func(c *corev1.EphemeralContainer) { c.VolumeMounts[0].Name = runnerpod.VolumeWork },
		"writes the lock":  func(c *corev1.EphemeralContainer) { c.VolumeMounts[1].ReadOnly = false },
	} {
		courier := f.courier()
		spoil(&courier)
		require.True(t, apierrors.IsForbidden(f.try(f.controller, f.pod, courier)), name)
	}
}

// JOB-5: the API server counts as well.
func TestAddedContainers_JOB5_AreCounted(t *testing.T) {
	f := newFence(t)
	services := func(first, count int) (list []corev1.EphemeralContainer) {
		for i := range count {
			c := ephemeral.JobContainer(f.pod, fmt.Sprintf("service-1-%d", first+i), "docker.io/library/redis"+imageDigest, v1alpha1.ProfileBaseline)
			list = append(list, c)
		}
		return list
	}
	require.ErrorContains(t, f.try(f.controller, f.pod, services(0, 49)...), "at most 1 job container, 16 services")
	require.NoError(t, f.patch(f.controller, f.pod, nil, services(0, 48)...))
	require.ErrorContains(t, f.try(f.controller, f.pod, services(48, 1)...), "at most 1 job container, 16 services")
	jobs := []corev1.EphemeralContainer{f.job()}
	for try := 2; try <= 4; try++ {
		jobs = append(jobs, ephemeral.JobContainer(f.pod, fmt.Sprintf("job-%d-0", try), "docker.io/library/alpine"+imageDigest, v1alpha1.ProfileBaseline))
	}
	require.NoError(t, f.try(f.controller, f.pod, jobs[:3]...))
	require.ErrorContains(t, f.try(f.controller, f.pod, jobs...), "at most 1 job container")
}
