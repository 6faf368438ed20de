package controller_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/ephemeral"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// The job of a runner that registers itself has what its Runner permits at that moment, and nothing once the Runner permits nothing.
func TestJobContainers_JOB6_ARunnerThatRegistersItselfHasWhatItsRunnerPermits(t *testing.T) {
	b := newJobBenchWithout(t)
	in, err := standin.Start(t.Context(), standin.Options{
		Installations: []standin.Installation{{ID: 11, Account: "acme", Repositories: []string{"shop"}}}, RunnerKeys: 1,
	})
	require.NoError(t, err)
	t.Cleanup(in.Close)
	app, err := github.New(github.Options{BaseURL: in.URL + "/api/v3", AppID: 1, PrivateKey: in.AppKeyPEM})
	require.NoError(t, err)
	b.startJobs(func(o *controller.Options) {
		o.SelfRegistering = &controller.SelfRegisteringOptions{App: app, GitHub: github.Options{BaseURL: in.URL + "/api/v3"}}
	})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "default"}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"imagePullSecrets":[{"name":"registry"}]}`))
	require.NoError(t, b.admin.Patch(t.Context(), account, patch))
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "own-pull"}, Data: map[string][]byte{"theirs": []byte("x")}}
	require.NoError(t, b.admin.Create(t.Context(), foreign))
	spec := selfRegistering()
	spec.JobContainers = &v1alpha1.JobContainers{AllowedImages: []string{"postgres", "registry.example/team/*"}}
	spec.Template.Spec.Containers = spec.Template.Spec.Containers[1:]
	spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"),
	}
	key := types.NamespacedName{Namespace: b.namespace, Name: "own"}
	runner := &v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: spec}
	require.NoError(t, b.admin.Create(t.Context(), runner))
	b.pod = key.Name
	b.eventually("its pod is there", func() bool { return b.admin.Get(t.Context(), key, &corev1.Pod{}) == nil })
	b.occupy()

	b.ask(runnerpod.ContainerCourier, withService("r-1"))
	require.Empty(t, b.response("r-1").Refusal)
	require.Equal(t, []string{"courier-1", "job-1-0", "service-1-0"}, b.added())
	require.Equal(t, "acme", await.Receive(t, b.registry.asked, "a lookup").Tenant, "it shares the account's part of the lookups")
	require.Contains(t, string(b.secret().Data[corev1.DockerConfigJsonKey]), password)
	require.Equal(t, []corev1.LocalObjectReference{{Name: "registry"}, {Name: b.secret().Name}}, b.read().Spec.ImagePullSecrets, "POD-4")
	require.NoError(t, b.admin.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign))
	require.Equal(t, map[string][]byte{"theirs": []byte("x")}, foreign.Data, "a Secret that has the Runner's name is not its")
	require.Empty(t, foreign.OwnerReferences)

	permit := func(permitted *v1alpha1.JobContainers) {
		require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			require.NoError(t, b.admin.Get(t.Context(), key, runner))
			runner.Spec.JobContainers = permitted
			return b.admin.Update(t.Context(), runner)
		}))
	}
	refusal := func(courier, id string) string {
		b.ask(courier, jobcontainer.Request{ID: id, Containers: []jobcontainer.Wanted{{Role: jobcontainer.RoleService, Image: "postgres"}}})
		return b.response(id).Refusal
	}
	require.Empty(t, refusal("courier-1", "r-2"))
	permit(nil)
	b.eventually("it permits nothing", func() bool { // a request may be earlier than the controller's cache of Runners
		v, ok := ephemeral.Read(b.read())
		require.True(t, ok)
		courier := fmt.Sprintf("courier-%d", v.Newest().Number)
		return refusal(courier, "r-"+courier) == "Runner own no longer allows jobs to have containers."
	})
}
