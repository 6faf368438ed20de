package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func lookupIn(m map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := m[name]; return v, ok }
}

func TestExpand(t *testing.T) {
	lookup := lookupIn(map[string]string{"A": "1", "B": "$(A)", "": "empty"})
	for in, want := range map[string]string{
		"":            "",
		"plain":       "plain",
		"$(A)":        "1",
		"x$(A)y$(A)":  "x1y1",
		"$(B)":        "$(A)", // a replacement is not expanded again
		"$(NO)":       "$(NO)",
		"$(NO)-$(A)":  "$(NO)-1",
		"$$(A)":       "$(A)",
		"$$$(A)":      "$1",
		"$$":          "$",
		"$":           "$",
		"$A ${A} a$":  "$A ${A} a$",
		"$(A":         "$(A",
		"$()":         "empty",
		"a$$b$(A)$(B": "a$b1$(B",
	} {
		require.Equal(t, want, expand(in, lookup), in)
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"$(A)", "$$(A)", "$(", "$(A$(B))", "$$$"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		nothing := expand(s, lookupIn(nil))
		if want := strings.ReplaceAll(s, "$$", "$"); !strings.Contains(s, "$(") && nothing != want {
			t.Fatalf("%q became %q instead of %q", s, nothing, want)
		}
		if !strings.Contains(s, "$") && nothing != s {
			t.Fatalf("%q became %q", s, nothing)
		}
	})
}

func TestFieldAndResourceValues(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "ns", UID: "u", Labels: map[string]string{"a/b": "1", "c": `"`}, Annotations: map[string]string{"x": "y"}},
		Spec:       corev1.PodSpec{NodeName: "node", ServiceAccountName: "sa"},
	}
	m := machine{HostIP: "10.0.0.1", PodIP: "10.0.0.2", Allocatable: corev1.ResourceList{"memory": resource.MustParse("1Gi")}}
	for path, want := range map[string]string{
		"metadata.name": "n", "metadata.namespace": "ns", "metadata.uid": "u", "spec.nodeName": "node", "spec.serviceAccountName": "sa",
		"status.podIP": "10.0.0.2", "status.hostIP": "10.0.0.1", "metadata.labels['a/b']": "1", "metadata.annotations['x']": "y",
		"metadata.annotations['none']": "", "metadata.labels": "a/b=\"1\"\nc=\"\\\"\"",
	} {
		got, err := fieldValue(pod, m, path)
		require.NoError(t, err, path)
		require.Equal(t, want, got, path)
	}
	_, err := fieldValue(pod, m, "spec.nothing")
	require.Error(t, err)

	c := &corev1.Container{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1500m")}}}
	for _, test := range []struct{ resource, divisor, want string }{
		{"limits.cpu", "", "2"},
		{"limits.cpu", "1m", "1500"},
		{"limits.memory", "1Mi", "1024"}, // not set: what the node has
		{"requests.memory", "", "0"},
	} {
		ref := &corev1.ResourceFieldSelector{Resource: test.resource}
		if test.divisor != "" {
			ref.Divisor = resource.MustParse(test.divisor)
		}
		got, err := resourceValue(c, m, ref)
		require.NoError(t, err)
		require.Equal(t, test.want, got, test)
	}
}

// store is a cluster with a few objects.
type store struct {
	secrets    map[string]*corev1.Secret
	configMaps map[string]*corev1.ConfigMap
	tokens     int
	tokenErr   error
}

func (s *store) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	if found := s.secrets[name]; found != nil {
		return found, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

func (s *store) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	if found := s.configMaps[name]; found != nil {
		return found, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
}

func (s *store) Token(_ context.Context, _ *corev1.Pod, audience string, lifetime time.Duration) (string, time.Time, error) {
	if s.tokenErr != nil {
		return "", time.Time{}, s.tokenErr
	}
	s.tokens++
	return audience + strings.Repeat("+", s.tokens), time.Unix(0, 0).Add(lifetime), nil
}

func TestContainerIsResolvedInKubernetesOrder(t *testing.T) {
	st := &store{
		secrets:    map[string]*corev1.Secret{"s": {Data: map[string][]byte{"K": []byte("v")}}},
		configMaps: map[string]*corev1.ConfigMap{"c": {Data: map[string]string{"B": "b", "A": "a"}}},
	}
	host := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(host, "v"), 0o755))
	r := resolver{refs: st, volume: func(name string) string { return filepath.Join(host, name) }}
	named := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	c := &corev1.Container{
		Name: "c", Command: []string{"$(LATE)", "$$(A)"}, Args: []string{"$(K)"}, WorkingDir: "/w",
		EnvFrom: []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("c")}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named("none"), Optional: ptr.To(true)}},
		},
		Env: []corev1.EnvVar{
			{Name: "EARLY", Value: "$(LATE) $(A)"}, // only what comes before is known
			{Name: "LATE", Value: "$(EARLY)!"},
			{Name: "K", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named("s"), Key: "K"}}},
			{Name: "OPT", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: named("c"), Key: "none", Optional: ptr.To(true)}}},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/w/", SubPath: "sub", ReadOnly: true}},
	}
	got, err := r.container(t.Context(), &corev1.Pod{}, c)
	require.NoError(t, err)
	require.Equal(t, []sandbox.EnvVar{{Name: "A", Value: "a"}, {Name: "B", Value: "b"}, {Name: "EARLY", Value: "$(LATE) a"}, {Name: "LATE", Value: "$(LATE) a!"}, {Name: "K", Value: "v"}}, got.Env)
	require.Equal(t, []string{"$(LATE) a!", "$(A)", "v"}, got.Command)
	require.Equal(t, []sandbox.Mount{{MountPath: "/w", HostPath: filepath.Join(host, "v/sub"), ReadOnly: true}}, got.Mounts)

	for want, env := range map[string]corev1.EnvVarSource{
		`Secret "s" has no key "X"`: {SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named("s"), Key: "X"}},
		`reading ConfigMap "none"`:  {ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: named("none"), Key: "X"}},
	} {
		_, err := r.container(t.Context(), &corev1.Pod{}, &corev1.Container{Env: []corev1.EnvVar{{Name: "E", ValueFrom: &env}}})
		require.ErrorContains(t, err, want)
	}
	_, err = r.container(t.Context(), &corev1.Pod{}, &corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/w", SubPath: "../other"}}})
	require.ErrorContains(t, err, "leaves the volume")
}

func TestVolumes(t *testing.T) {
	st := &store{
		secrets:    map[string]*corev1.Secret{"s": {Data: map[string][]byte{"k": []byte("v")}}},
		configMaps: map[string]*corev1.ConfigMap{"c": {Data: map[string]string{"a": "1"}, BinaryData: map[string][]byte{"b": {0}}}},
	}
	v := volumes{root: filepath.Join(t.TempDir(), "uid"), refs: resolver{refs: st}, tokens: st, now: func() time.Time { return time.Unix(0, 0) }}
	token := func(path string, seconds int64) corev1.VolumeProjection {
		return corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "aud", ExpirationSeconds: &seconds, Path: path}}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", DefaultMode: ptr.To(int32(0o400))}}},
		{Name: "projected", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			token("deep/token", 1000), token("other", 7200),
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}},
		}}}},
	}}}
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join(v.root, path))
		require.NoError(t, err)
		return string(text)
	}
	due, err := v.prepare(t.Context(), pod)
	require.NoError(t, err)
	require.Equal(t, time.Unix(800, 0), due, "a fifth of the shortest life is left")
	require.DirExists(t, filepath.Join(v.root, "empty"))
	require.Equal(t, "v", read("secret/k"))
	info, err := os.Stat(filepath.Join(v.root, "secret/k"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o400), info.Mode())
	require.Equal(t, "aud+", read("projected/deep/token"))
	require.Equal(t, "1", read("projected/a"))
	require.Equal(t, "\x00", read("projected/b"))
	require.Equal(t, "p", read("projected/name"))

	// A process that holds the file open keeps the old token; one that opens it gets the new one, whole.
	old, err := os.Open(filepath.Join(v.root, "projected/deep/token"))
	require.NoError(t, err)
	defer func() { require.NoError(t, old.Close()) }()
	_, err = v.renewTokens(t.Context(), pod)
	require.NoError(t, err)
	require.Equal(t, "aud+++", read("projected/deep/token"))
	buf := make([]byte, 10)
	n, err := old.Read(buf)
	require.NoError(t, err)
	require.Equal(t, "aud+", string(buf[:n]))

	st.tokenErr = errors.New("no")
	_, err = v.renewTokens(t.Context(), pod)
	require.ErrorIs(t, err, st.tokenErr)
	require.Equal(t, "aud+++", read("projected/deep/token"), "a failure takes nothing away")

	require.ErrorContains(t, v.write("empty", file{path: "../x"}), "leaves the volume")
	require.NoError(t, v.remove())
	require.NoDirExists(t, v.root)
}

func TestWhatIsNotSupportedIsRefusedWithASentence(t *testing.T) {
	good := func() *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c"}}, InitContainers: []corev1.Container{{Name: "i"}}}}
	}
	require.NoError(t, supported(good()))
	for want, change := range map[string]func(*corev1.PodSpec){
		"spec.initContainers[0].restartPolicy: ": func(s *corev1.PodSpec) {
			s.InitContainers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyNever)
		},
		"spec.containers[0].restartPolicy: ": func(s *corev1.PodSpec) {
			s.Containers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		},
		"spec.containers[0].livenessProbe: ": func(s *corev1.PodSpec) { s.Containers[0].LivenessProbe = &corev1.Probe{} },
		"at the pod's own address": func(s *corev1.PodSpec) {
			s.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "elsewhere"}}}
		},
		"spec.containers[0].lifecycle: ": func(s *corev1.PodSpec) {
			s.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{}}
		},
		"spec.containers[0].lifecycle: container": func(s *corev1.PodSpec) {
			s.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{}}}
		},
		"spec.containers[0].volumeDevices: ": func(s *corev1.PodSpec) { s.Containers[0].VolumeDevices = []corev1.VolumeDevice{{}} },
		`spec.volumes[0]: volume "h" is of a`: func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "h", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}}}
		},
		`spec.volumes[0].projected.sources[0]: volume "p" projects`: func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "p", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{}}}}}}
		},
	} {
		pod := good()
		change(&pod.Spec)
		var invalid *sandbox.InvalidError
		require.ErrorAs(t, supported(pod), &invalid, want)
		require.Contains(t, invalid.Message, want)
	}
}

func TestReadinessNeedsAsManyResultsInARowAsTheThresholdSays(t *testing.T) {
	c := probeCounter{successThreshold: 2, failureThreshold: 3}
	for i, step := range []struct{ ok, ready bool }{
		{true, false}, {false, false}, {true, false}, {true, true}, {true, true},
		{false, true}, {false, true}, {true, true}, {false, true}, {false, true}, {false, false}, {true, false}, {true, true},
	} {
		ready, _ := c.observe(step.ok)
		require.Equal(t, step.ready, ready, "step %d", i)
	}
}

// Every pod that ends starts a grace period, which may last hours; thousands of pods end in that time.
func TestWorker_ATimerKeepsNothingOfAPodThatHasGone(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	w := newWorker(&Agent{opts: Options{Clock: clock, Log: slog.New(slog.DiscardHandler)}}, sandbox.PodRef{UID: "u"})
	w.pod = &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](6 * 60 * 60)}}
	require.False(t, w.killDue(true))
	kept, wake := weak.Make(w), w.wake
	w = nil
	runtime.GC()
	require.Nil(t, kept.Value())
	clock.Step(6 * time.Hour)
	await.Receive(t, wake, "the lease is due")
}

// A pod whose container would be started again by a kubelet fails instead, at once and for good, and says so.
func TestPodStatus_NothingIsStartedTwice(t *testing.T) {
	done, broken := containerObserved{stage: exited}, containerObserved{stage: exited, exit: sandbox.Exit{Code: 1}}
	for name, test := range map[string]struct {
		policy     corev1.RestartPolicy
		containers map[string]containerObserved
		stopping   bool
		want       corev1.PodPhase
		reason     string
	}{
		"always, one has ended":        {corev1.RestartPolicyAlways, map[string]containerObserved{"i": done, "a": done, "b": {stage: running}}, false, corev1.PodFailed, "ContainerEnded"},
		"always, all run":              {corev1.RestartPolicyAlways, map[string]containerObserved{"i": done, "a": {stage: running}, "b": {stage: running}}, false, corev1.PodRunning, ""},
		"always, on its way out":       {corev1.RestartPolicyAlways, map[string]containerObserved{"i": done, "a": done, "b": done}, true, corev1.PodSucceeded, ""},
		"always, its init broke":       {corev1.RestartPolicyAlways, map[string]containerObserved{"i": broken}, false, corev1.PodFailed, "ContainerEnded"},
		"on failure, one has ended":    {corev1.RestartPolicyOnFailure, map[string]containerObserved{"i": done, "a": done, "b": {stage: running}}, false, corev1.PodRunning, ""},
		"on failure, all have ended":   {corev1.RestartPolicyOnFailure, map[string]containerObserved{"i": done, "a": done, "b": done}, false, corev1.PodSucceeded, ""},
		"on failure, one has broken":   {corev1.RestartPolicyOnFailure, map[string]containerObserved{"i": done, "a": broken, "b": {stage: running}}, false, corev1.PodFailed, "ContainerEnded"},
		"never, one of two has broken": {corev1.RestartPolicyNever, map[string]containerObserved{"i": done, "a": broken, "b": {stage: running}}, false, corev1.PodRunning, ""},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{
			RestartPolicy: test.policy, InitContainers: []corev1.Container{{Name: "i"}}, Containers: []corev1.Container{{Name: "a"}, {Name: "b"}},
		}}
		status := podStatus(pod, observed{containers: test.containers, prepared: true, stopping: test.stopping})
		require.Equal(t, test.want, status.Phase, name)
		require.Equal(t, test.reason, status.Reason, name)
	}
}

// A container that is still starting is neither started nor ready.
func TestPodStatus_AStartingContainerIsNotStarted(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}}
	seen := map[string]containerObserved{"a": {stage: running, starting: true}}
	require.False(t, *podStatus(pod, observed{containers: seen}).ContainerStatuses[0].Started)
	seen["a"] = containerObserved{stage: running}
	require.True(t, *podStatus(pod, observed{containers: seen}).ContainerStatuses[0].Started)
}

func TestSecurity_OfTheContainerBeforeThePods(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](1), RunAsGroup: ptr.To[int64](2), FSGroup: ptr.To[int64](3), SupplementalGroups: []int64{4}},
		Containers: []corev1.Container{{Name: "plain"}, {Name: "own", SecurityContext: &corev1.SecurityContext{
			RunAsUser: ptr.To[int64](5), ReadOnlyRootFilesystem: ptr.To(true), AllowPrivilegeEscalation: ptr.To(false),
		}}},
	}}
	require.Equal(t, sandbox.Security{User: 1, Group: 2, Groups: []int64{4, 3}}, security(pod, &pod.Spec.Containers[0]))
	require.Equal(t, sandbox.Security{User: 5, Group: 2, Groups: []int64{4, 3}, ReadOnlyRoot: true, NoNewPrivileges: true}, security(pod, &pod.Spec.Containers[1]))
	require.Equal(t, ownership{group: ptr.To[int64](3)}, ownershipOf(pod), "two users")
	pod.Spec.Containers = pod.Spec.Containers[:1]
	pod.Spec.SecurityContext.FSGroup = nil
	require.Equal(t, ownership{user: ptr.To[int64](1)}, ownershipOf(pod))
	require.Equal(t, sandbox.Security{Groups: []int64{}}, security(&corev1.Pod{}, &corev1.Container{}), "root by default")
}
