package controller_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
)

func selfRegistering() v1alpha1.RunnerSpec {
	return v1alpha1.RunnerSpec{
		Registration: v1alpha1.Registration{Repository: "acme/shop", Labels: []string{"shop"}},
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "log-shipper", Image: "example.com/shipper"}, {Name: "runner", Image: "example.com/runner"},
		}}},
	}
}

// kindsOf makes one object of each kind that has the spec.
func kindsOf(namespace, name string, spec v1alpha1.RunnerSpec) map[string]client.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	template := v1alpha1.RunnerTemplateSpec{Spec: spec}
	return map[string]client.Object{
		v1alpha1.KindRunner:           &v1alpha1.Runner{ObjectMeta: meta, Spec: spec},
		v1alpha1.KindRunnerReplicaSet: &v1alpha1.RunnerReplicaSet{ObjectMeta: meta, Spec: v1alpha1.RunnerReplicaSetSpec{Template: template}},
		v1alpha1.KindRunnerDeployment: &v1alpha1.RunnerDeployment{ObjectMeta: meta, Spec: v1alpha1.RunnerDeploymentSpec{Template: template}},
		v1alpha1.KindRunnerSet:        &v1alpha1.RunnerSet{ObjectMeta: meta, Spec: v1alpha1.RunnerSetSpec{RunnerSpec: spec}},
	}
}

// A template that no runner can be made from is refused on write, by each of the kinds, with a sentence that says what to do.
func TestKinds_BadRunnersAreRefusedWithASentence(t *testing.T) {
	env := kit.Cluster(t)
	admin, namespace := env.Client(t, v1alpha1.AddToScheme), env.Namespace(t)
	claim := corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}
	n := 0
	for name, c := range map[string]struct {
		spoil func(*v1alpha1.RunnerSpec)
		want  string
	}{
		"nowhere":                     {func(s *v1alpha1.RunnerSpec) { s.Repository = "" }, "set exactly one of enterprise, organization and repository"},
		"two places":                  {func(s *v1alpha1.RunnerSpec) { s.Organization = "acme" }, "set exactly one of enterprise, organization and repository"},
		"three places":                {func(s *v1alpha1.RunnerSpec) { s.Organization, s.Enterprise = "acme", "acme-inc" }, "set exactly one of enterprise, organization and repository"},
		"no owner":                    {func(s *v1alpha1.RunnerSpec) { s.Repository = "shop" }, "should match"},
		"a path":                      {func(s *v1alpha1.RunnerSpec) { s.Repository = "acme/shop/../../x" }, "should match"},
		"a group of a repository":     {func(s *v1alpha1.RunnerSpec) { s.Group = "builders" }, "remove group, or register with an organization"},
		"a label with a space":        {func(s *v1alpha1.RunnerSpec) { s.Labels = []string{"big machine"} }, "should match"},
		"an empty label":              {func(s *v1alpha1.RunnerSpec) { s.Labels = []string{""} }, "labels[0]"},
		"a label twice":               {func(s *v1alpha1.RunnerSpec) { s.Labels = []string{"Big", "big"} }, "remove the duplicate"},
		"no container runner":         {func(s *v1alpha1.RunnerSpec) { s.Template.Spec.Containers = s.Template.Spec.Containers[:1] }, "template has no container named runner"},
		"a mode without its settings": {func(s *v1alpha1.RunnerSpec) { s.ContainerMode = v1alpha1.ContainerModeKubernetes }, "kubernetes and containerMode Kubernetes require each other"},
		"settings without their mode": {func(s *v1alpha1.RunnerSpec) {
			s.Kubernetes = &v1alpha1.KubernetesMode{ServiceAccountName: "hooks", WorkVolumeClaim: claim}
		}, "kubernetes and containerMode Kubernetes require each other"},
		"a daemon without its mode": {func(s *v1alpha1.RunnerSpec) { s.Dind = &v1alpha1.Dind{} }, "dind requires containerMode Dind"},
		"an unknown mode":           {func(s *v1alpha1.RunnerSpec) { s.ContainerMode = "podman" }, "Unsupported value"},
		"a read-only work volume": {func(s *v1alpha1.RunnerSpec) {
			s.ContainerMode = v1alpha1.ContainerModeKubernetes
			s.Kubernetes = &v1alpha1.KubernetesMode{ServiceAccountName: "hooks", WorkVolumeClaim: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany},
			}}
		}, "the first of accessModes must be ReadWriteOnce or ReadWriteMany"},
		"containers of jobs, and a daemon": {func(s *v1alpha1.RunnerSpec) {
			s.JobContainers, s.ContainerMode = &v1alpha1.JobContainers{}, v1alpha1.ContainerModeDind
		}, "jobContainers and containerMode exclude each other"},
		"containers of jobs for many jobs": {func(s *v1alpha1.RunnerSpec) {
			s.JobContainers, s.Ephemeral = &v1alpha1.JobContainers{}, ptr.To(false)
		}, "jobContainers is for ephemeral runners"},
		"no name for the Secret":  {func(s *v1alpha1.RunnerSpec) { s.Credentials = &v1alpha1.GitHubCredentials{} }, "secretName"},
		"no time to register":     {func(s *v1alpha1.RunnerSpec) { s.RegistrationTimeout = lasting(time.Second) }, "at least 1m, such as 10m"},
		"an absolute work folder": {func(s *v1alpha1.RunnerSpec) { s.WorkFolder = "/work" }, "should match"},
	} {
		t.Run(name, func(t *testing.T) {
			n++
			spec := selfRegistering()
			c.spoil(&spec)
			for kind, object := range kindsOf(namespace, fmt.Sprintf("bad-%d", n), spec) {
				err := admin.Create(t.Context(), object)
				require.True(t, apierrors.IsInvalid(err), "%s: %v", kind, err)
				require.ErrorContains(t, err, c.want, kind)
			}
		})
	}
	for kind, object := range kindsOf(namespace, "good", selfRegistering()) {
		require.NoError(t, admin.Create(t.Context(), object), kind)
		require.NoError(t, admin.Delete(t.Context(), object), kind)
	}
	contained := selfRegistering()
	contained.JobContainers = &v1alpha1.JobContainers{}
	for kind, object := range kindsOf(namespace, "contained", contained) {
		err := admin.Create(t.Context(), object)
		if kind == v1alpha1.KindRunnerSet {
			require.ErrorContains(t, err, "jobContainers is not for RunnerSets", kind)
			continue
		}
		require.NoError(t, err, kind)
		require.NoError(t, admin.Delete(t.Context(), object), kind)
	}
}

func TestKinds_WhatIsNotWrittenHasTheDefaultsThatTheDocumentsName(t *testing.T) {
	env := kit.Cluster(t)
	admin, namespace := env.Client(t, v1alpha1.AddToScheme), env.Namespace(t)
	spec := selfRegistering()
	spec.Template.Labels = map[string]string{"team": "shop"}
	made := kindsOf(namespace, "defaults", spec)
	deployment, set := made[v1alpha1.KindRunnerDeployment].(*v1alpha1.RunnerDeployment), made[v1alpha1.KindRunnerSet].(*v1alpha1.RunnerSet)
	deployment.Spec.Autoscaling = &v1alpha1.RunnerAutoscaling{
		MaxReplicas: 9, Jobs: &v1alpha1.JobDemand{}, PercentageBusy: &v1alpha1.PercentageBusy{DownBelow: 30, DownFactor: 70},
	}
	require.NoError(t, admin.Create(t.Context(), deployment))
	require.NoError(t, admin.Create(t.Context(), set))

	require.EqualValues(t, 1, *deployment.Spec.Replicas)
	require.Equal(t, 10*time.Minute, deployment.Spec.RecreationHold.Duration, "RUN-4")
	require.Equal(t, intstr.FromString("100%"), *deployment.Spec.Rollout.MaxSurge, "a roll starts the new set at full size")
	require.Equal(t, intstr.FromInt32(0), *deployment.Spec.Rollout.MaxUnavailable)
	require.True(t, *deployment.Spec.Template.Spec.Ephemeral)
	require.Equal(t, v1alpha1.ContainerModeNone, deployment.Spec.Template.Spec.ContainerMode)
	require.Equal(t, 10*time.Minute, deployment.Spec.Template.Spec.RegistrationTimeout.Duration)
	require.Equal(t, "shop", deployment.Spec.Template.Spec.Template.Labels["team"], "the template's metadata is kept")
	require.EqualValues(t, 1, *deployment.Spec.Autoscaling.MinReplicas)
	require.Equal(t, 10*time.Minute, deployment.Spec.Autoscaling.ScaleDownCooldown.Duration)
	require.Equal(t, 5*time.Minute, deployment.Spec.Autoscaling.Jobs.ReadEvery.Duration)
	require.Equal(t, v1alpha1.PercentageBusy{UpAbove: 80, DownBelow: 30, UpFactor: 130, DownFactor: 70}, *deployment.Spec.Autoscaling.PercentageBusy)
	require.Equal(t, v1alpha1.VolumesRetained, set.Spec.VolumeRetention)
	require.True(t, *set.Spec.Ephemeral)
}

func TestKinds_SCALE3_LimitsOutOfOrderAreRefusedWithASentence(t *testing.T) {
	env := kit.Cluster(t)
	admin, namespace := env.Client(t, v1alpha1.AddToScheme), env.Namespace(t)
	now := metav1.Now()
	n := 0
	for name, c := range map[string]struct {
		spoil func(*v1alpha1.RunnerAutoscaling)
		want  string
	}{
		"no ceiling":             {func(a *v1alpha1.RunnerAutoscaling) { a.MaxReplicas = 0 }, "greater than or equal to 1"},
		"a floor above it":       {func(a *v1alpha1.RunnerAutoscaling) { a.MinReplicas = ptr.To[int32](10) }, "raise maxReplicas, or lower minReplicas"},
		"more than there may be": {func(a *v1alpha1.RunnerAutoscaling) { a.MaxReplicas = 1001 }, "less than or equal to 1000"},
		"a negative cooldown":    {func(a *v1alpha1.RunnerAutoscaling) { a.ScaleDownCooldown = lasting(-time.Second) }, "0s or greater, such as 10m"},
		"a number that swings": {func(a *v1alpha1.RunnerAutoscaling) {
			a.PercentageBusy = &v1alpha1.PercentageBusy{UpAbove: 30, DownBelow: 30, UpFactor: 130, DownFactor: 70}
		}, "downBelow must be less than upAbove"},
		"a factor that lowers": {func(a *v1alpha1.RunnerAutoscaling) {
			a.PercentageBusy = &v1alpha1.PercentageBusy{UpAbove: 80, UpFactor: 100}
		}, "greater than or equal to 101"},
		"a queue read all the time": {func(a *v1alpha1.RunnerAutoscaling) { a.Jobs = &v1alpha1.JobDemand{ReadEvery: lasting(time.Second)} }, "at least 30s"},
		"an end before the start": {func(a *v1alpha1.RunnerAutoscaling) {
			a.Schedules = []v1alpha1.ScalingSchedule{{Name: "night", Start: now, End: metav1.NewTime(now.Add(-time.Hour))}}
		}, "end must be later than start"},
		"a schedule without a name": {func(a *v1alpha1.RunnerAutoscaling) {
			a.Schedules = []v1alpha1.ScalingSchedule{{Start: now, End: metav1.NewTime(now.Add(time.Hour))}}
		}, "name"},
	} {
		t.Run(name, func(t *testing.T) {
			n++
			made := kindsOf(namespace, fmt.Sprintf("limits-%d", n), selfRegistering())
			deployment, set := made[v1alpha1.KindRunnerDeployment].(*v1alpha1.RunnerDeployment), made[v1alpha1.KindRunnerSet].(*v1alpha1.RunnerSet)
			scaling := &v1alpha1.RunnerAutoscaling{MaxReplicas: 9}
			c.spoil(scaling)
			deployment.Spec.Autoscaling, set.Spec.Autoscaling = scaling, scaling
			for _, object := range []client.Object{deployment, set} {
				err := admin.Create(t.Context(), object)
				require.True(t, apierrors.IsInvalid(err), "%v", err)
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}

// A name that pods, Runners or labels could not be called after is refused with the object, not when its first runner is made.
func TestKinds_NamesThatNothingCanBeNamedAfterAreRefused(t *testing.T) {
	env := kit.Cluster(t)
	admin, namespace := env.Client(t, v1alpha1.AddToScheme), env.Namespace(t)
	longest := map[string]int{v1alpha1.KindRunner: 58, v1alpha1.KindRunnerReplicaSet: 50, v1alpha1.KindRunnerDeployment: 40, v1alpha1.KindRunnerSet: 40}
	name := func(length int) string { return fmt.Sprintf("%0*d", length, 7) }
	for kind, most := range longest {
		require.NoError(t, admin.Create(t.Context(), kindsOf(namespace, name(most), selfRegistering())[kind]), kind)
		require.ErrorContains(t, admin.Create(t.Context(), kindsOf(namespace, name(most+1), selfRegistering())[kind]), "choose a shorter name", kind)
		require.ErrorContains(t, admin.Create(t.Context(), kindsOf(namespace, "a.b", selfRegistering())[kind]), "remove the dots", kind)
	}
}

// The runners that people start from are what the API server takes, and what pods are made from.
func TestKinds_TheExamplesAreGood(t *testing.T) {
	env := kit.Cluster(t)
	admin, namespace := env.Client(t, v1alpha1.AddToScheme), env.Namespace(t)
	deployment, set := &v1alpha1.RunnerDeployment{}, &v1alpha1.RunnerSet{}
	for name, object := range map[string]client.Object{"runner-deployment.yaml": deployment, "runner-set.yaml": set} {
		data, err := os.ReadFile(filepath.Join("../../examples", name))
		require.NoError(t, err)
		require.NoError(t, yaml.UnmarshalStrict(data, object), name)
		object.SetNamespace(namespace)
		require.NoError(t, admin.Create(t.Context(), object), name)
	}
	for name, runner := range map[string]runnerpod.Registered{
		"runner-deployment.yaml": {Spec: &deployment.Spec.Template.Spec},
		"runner-set.yaml":        {Spec: &set.Spec.RunnerSpec, StatefulSet: true, Claims: []string{set.Spec.VolumeClaimTemplates[0].Name}},
	} {
		runner.Namespace, runner.Name, runner.Secret = namespace, "runner", "runner"
		_, err := runnerpod.BuildRegistered(runner, runnerpod.Options{DispatchURL: "http://server", AgentImage: "agent:1"})
		require.NoError(t, err, name)
	}
}
