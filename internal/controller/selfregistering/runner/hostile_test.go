package runner_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/registeredtest"
)

// refuseAll has GitHub not be asked: the Secret with the credentials is gone.
func (b *bench) refuseAll() {
	b.github.Fault(func(op registeredtest.Op, _ string) error {
		if op == registeredtest.For {
			return registration.ErrCredentials
		}
		return nil
	})
}

// A job that arrives before GitHub's list is read could use the token to register runners for as long as it runs.
func TestPods_NET3_TheTokenOfARunnerThatWorksIsTakenAway(t *testing.T) {
	b := newBench(t)
	b.runner("r", static)
	b.settle("r")
	b.makeIdle("r")
	b.makeBusy("r")
	there := b.github.Put(registeredtest.Runner{Name: b.get("r").Status.RunnerName, Online: true, Busy: true})
	require.NotEmpty(t, b.secret("r").Data[runnerpod.KeyToken])
	b.settle("r")
	require.Empty(t, b.secret("r").Data[runnerpod.KeyToken])
	require.Equal(t, there.ID, b.get("r").Status.RunnerID)
	require.Equal(t, "busy", b.get("r").Status.Stage)
}

// A static runner registers in the place that it was started with. Looked up in another place it would be absent, and removed while it may
// receive a job.
func TestRunner_RUN2_AnEditedPlaceLeavesAStaticRunnerWhereItRegisters(t *testing.T) {
	b := newBench(t)
	node := b.env.RegisterNode(t, "node-of-"+b.namespace, func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "test", Value: b.namespace, Effect: corev1.TaintEffectNoSchedule}}
	})
	b.runner("r", static)
	b.settle("r")
	b.place("r", node.Name)
	b.makeIdle("r")
	b.edit("r", func(r *v1alpha1.Runner) {
		r.Spec.Repository, r.Spec.Credentials = "acme/other", &v1alpha1.GitHubCredentials{SecretName: "renewed"}
	})
	b.settle("r")
	require.Equal(t, "https://github.com/acme/app", string(b.secret("r").Data[runnerpod.KeyURL]))
	v := registered.Observe(b.pod("r"))
	require.Equal(t, "acme/app", v.Target.Repository)
	require.Equal(t, "renewed", v.Credentials.Secret, "other credentials for the same place are taken")
	b.github.Put(registeredtest.Runner{Name: b.get("r").Status.RunnerName, Online: true})
	b.settle("r")
	require.Equal(t, "acme/app", registered.Observe(b.pod("r")).Target.Repository)
}

// A Runner whose name another pod has can be deleted, whatever becomes of that pod.
func TestRunner_RECV5_APodOfAnotherKeepsNoRunner(t *testing.T) {
	b := newBench(t)
	other := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "r"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	require.NoError(t, b.admin.Create(t.Context(), other))
	b.runner("r")
	b.settle("r")
	require.Equal(t, "PodNameTaken", b.condition("r", v1alpha1.ConditionRegistered).Reason)
	b.delete(b.get("r"))
	b.settle("r")
	require.True(t, b.gone("r"))
	require.Zero(t, b.github.Len(), "and its registration is gone")
	require.Equal(t, other.UID, b.pod("r").UID)
}

// A registration is abandoned only after a time of requests to GitHub: the time that a controller was away does not count.
func TestPods_RUN2_NoRegistrationIsLeftBehindBeforeGitHubWasAsked(t *testing.T) {
	b := newBench(t)
	r := b.idle("r")
	b.finish("r", 1)
	b.pass(time.Hour) // no pass happens
	b.restart()
	b.github.Fault(func(op registeredtest.Op, _ string) error {
		if op == registeredtest.Remove {
			return errors.New("502 from GitHub")
		}
		return nil
	})
	b.settle("r")
	require.NotNil(t, b.pod("r"))
	b.github.Fault(nil)
	b.pass(6 * time.Minute)
	b.settle("r")
	require.Nil(t, b.pod("r"))
	require.Equal(t, []string{r.Status.RunnerName}, b.github.Removed())
}

// The same of a Runner without a pod, whose deletion began long ago.
func TestRunner_RUN2_NoRegistrationIsLeftBehindBeforeGitHubWasAsked(t *testing.T) {
	b := newBench(t)
	b.runner("r", func(r *v1alpha1.Runner) { r.Spec.Template.Spec.NodeSelector = map[string]string{"no key!": "x"} })
	b.settle("r")
	require.Nil(t, b.pod("r"))
	b.delete(b.get("r"))
	b.pass(time.Hour)
	b.restart()
	b.refuseAll()
	b.settle("r")
	require.False(t, b.gone("r"))
	b.github.Fault(nil)
	b.pass(6 * time.Minute)
	b.settle("r")
	require.True(t, b.gone("r"))
	require.Zero(t, b.github.Len())
}

// A namespace is deleted, and the credentials in it before a pod that waits for a node.
func TestPods_RECV5_ADeletedPodWithoutANodeGoesThoughTheCredentialsAreGone(t *testing.T) {
	b := newBench(t)
	b.runner("r", func(r *v1alpha1.Runner) { r.Spec.Template.Spec.NodeSelector = map[string]string{"nowhere": "x"} })
	b.settle("r")
	b.refuseAll()
	b.delete(b.pod("r"))
	b.settle("r")
	require.NotNil(t, b.pod("r"))
	b.pass(11 * time.Minute)
	b.settle("r")
	require.Nil(t, b.pod("r"))
}

// A Runner that is made again under its name finds the Secret of the one before, which is collected in a moment.
func TestRunner_RECV5_OneThatIsMadeAgainDoesNotWaitForMinutes(t *testing.T) {
	b := newBench(t)
	left := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: registered.SecretName("r")}}
	require.NoError(t, b.admin.Create(t.Context(), left))
	b.runner("r")
	result := b.settle("r")
	require.Equal(t, "SecretTaken", b.condition("r", v1alpha1.ConditionRegistered).Reason)
	require.Less(t, result.RequeueAfter, 10*time.Second)
	b.delete(left)
	b.pass(10 * time.Second)
	b.settle("r")
	require.NotNil(t, b.pod("r"))
}

// A static runner that GitHub knows no longer needs its Secret, and no warnings are repeated.
func TestRunner_AStaticRunnerThatIsRegisteredWorksOnWithoutItsSecret(t *testing.T) {
	b := newBench(t)
	b.idle("r", static)
	b.delete(b.secret("r"))
	b.restart()
	b.events()
	for range 3 {
		b.settle("r")
	}
	require.Empty(t, b.events())
	require.Equal(t, metav1.ConditionTrue, b.condition("r", v1alpha1.ConditionRegistered).Status)
	require.Equal(t, "idle", b.get("r").Status.Stage)
	require.Nil(t, b.secret("r"))
}
