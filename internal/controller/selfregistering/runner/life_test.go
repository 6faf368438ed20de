package runner_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/registeredtest"
)

// [K] 1.3, [F] 1.9; and what a Runner costs.
func TestRunner_NET3_HasOneRegistrationOneSecretAndOnePod(t *testing.T) {
	b := newBench(t)
	b.runner("r", func(r *v1alpha1.Runner) { r.Labels = map[string]string{runnerpod.LabelReplicaSet: "set"} })
	b.settle("r")
	cost := b.written()
	require.LessOrEqual(t, cost["status Runner"], 3, "once for its state, and once for the scheduler's message")
	delete(cost, "status Runner")
	require.Equal(t, map[string]int{"patch Runner": 1, "create Secret": 1, "create Pod": 1}, cost)
	require.Equal(t, 1, b.github.Calls(registeredtest.JIT))

	r, pod, secret := b.get("r"), b.pod("r"), b.secret("r")
	there, known := b.github.Get(r.Status.RunnerName)
	require.True(t, known)
	require.Equal(t, []string{"self-hosted", "Linux", "X64", "gpu"}, there.Labels)
	require.Equal(t, r.Annotations[runnerpod.AnnotationRunnerName], r.Status.RunnerName)
	require.Regexp(t, "^r-[a-z0-9]{5}$", r.Status.RunnerName)
	require.Equal(t, there.ID, r.Status.RunnerID)
	require.Equal(t, string(pod.UID), r.Status.PodUID)
	require.Equal(t, "starting", r.Status.Stage)
	require.Contains(t, r.Finalizers, runnerpod.FinalizerRegistration)

	require.EqualValues(t, runnerpod.SecretTypeRegistration, secret.Type)
	require.Contains(t, string(secret.Data[runnerpod.KeyJIT]), "jit-")
	require.True(t, *secret.Immutable)
	for _, object := range []metav1.Object{secret, pod} {
		require.Equal(t, r.UID, metav1.GetControllerOf(object).UID, "the garbage collector takes it with the Runner")
		require.Equal(t, "set", object.GetLabels()[runnerpod.LabelReplicaSet])
	}
	v := registered.Observe(pod)
	require.Equal(t, there.ID, v.RunnerID)
	require.EqualValues(t, 4711, v.Target.RepositoryID, "a renamed repository keeps its runners")
	text, err := pod.Marshal()
	require.NoError(t, err)
	require.NotContains(t, string(text), string(secret.Data[runnerpod.KeyJIT]), "NET-3: nothing of the registration's secret is in the pod")

	b.makeIdle("r")
	b.github.Change(r.Status.RunnerName, func(r *registeredtest.Runner) { r.Online = true })
	b.settle("r")
	require.Equal(t, "idle", b.get("r").Status.Stage)
	require.Equal(t, metav1.ConditionTrue, b.condition("r", v1alpha1.ConditionRegistered).Status)
	require.Equal(t, map[string]int{"patch Pod": 1, "status Runner": 2}, b.written())

	calls := b.github.Calls(registeredtest.JIT) + b.github.Calls(registeredtest.For) + b.github.Calls(registeredtest.Look) + b.github.Calls(registeredtest.Remove)
	b.restart()
	for range 10 {
		b.settle("r")
		b.pass(time.Hour)
	}
	require.Empty(t, b.written(), "a runner that waits costs nothing")
	require.Equal(t, calls, b.github.Calls(registeredtest.JIT)+b.github.Calls(registeredtest.For)+b.github.Calls(registeredtest.Look)+b.github.Calls(registeredtest.Remove))
}

// A mint whose answer was lost, before GitHub's answer reached us or before it was stored, leaves nothing behind.
func TestRunner_MintsExactlyOnceWhateverAnswerIsLost(t *testing.T) {
	for name, lose := range map[string]func(*bench){
		"GitHub's answer": func(b *bench) { b.github.LoseMints(1) },
		"the API server's answer": func(b *bench) {
			once := true
			b.refuse = func(what string, _ client.Object) error {
				if what == "create Secret" && once {
					once = false
					return errors.New("no etcd")
				}
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			lose(b)
			b.runner("r")
			b.round("r")
			require.Equal(t, 1, b.github.Len(), "it is registered, and no object records it")
			require.Nil(t, b.pod("r"))
			first := b.github.Minted()[0]
			b.restart()
			b.pass(time.Minute)
			b.settle("r")
			require.Equal(t, 1, b.github.Len())
			require.Equal(t, []string{first}, b.github.Removed())
			r := b.get("r")
			require.NotEqual(t, first, r.Status.RunnerName, "CLAIM-10: a name is not used again")
			there, known := b.github.Get(r.Status.RunnerName)
			require.True(t, known)
			require.Equal(t, there.ID, r.Status.RunnerID)
			require.Equal(t, there.ID, registered.Observe(b.pod("r")).RunnerID)
			require.Len(t, b.github.Minted(), 2)
		})
	}
}

// [K] 8.6: a name that a foreign runner has is left to it.
func TestRunner_TakesAnotherNameWhereSomebodyElseHasIt(t *testing.T) {
	b := newBench(t)
	theirs := b.github.Put(registeredtest.Runner{Name: "r-taken", Online: true})
	b.runner("r", func(r *v1alpha1.Runner) { r.Annotations = map[string]string{runnerpod.AnnotationRunnerName: "r-taken"} })
	b.settle("r")
	require.Empty(t, b.github.Removed())
	still, known := b.github.Get("r-taken")
	require.True(t, known)
	require.Equal(t, theirs.ID, still.ID)
	require.NotEqual(t, "r-taken", b.get("r").Status.RunnerName)
	require.NotNil(t, b.pod("r"))
}

// PR #1179 follow-ups 759349de, e46b90f7, b09c5404, 79a31328: a finished ephemeral runner is never made again in place.
func TestRunner_RUN7_759349de_e46b90f7_b09c5404_79a31328_GetsNoSecondPod(t *testing.T) {
	t.Run("its pod has succeeded", func(t *testing.T) {
		b := newBench(t)
		r := b.idle("r")
		b.makeBusy("r")
		b.settle("r")
		require.Equal(t, "busy", b.get("r").Status.Stage)
		b.github.Drop(r.Status.RunnerName) // GitHub forgets an ephemeral runner whose job is done
		b.finish("r", 0)
		b.settle("r")
		require.True(t, b.gone("r"), "without an owner it deletes itself")
		require.Nil(t, b.pod("r"))
		require.Zero(t, b.github.Calls(registeredtest.Remove), "[K] 5.4: nothing is asked about a runner that has done its job")
		require.Equal(t, 1, b.github.Calls(registeredtest.JIT))
	})
	for name, code := range map[string]int32{"failed": 1, "outdated": 7} {
		t.Run("its pod has "+name+" and its owner takes it away", func(t *testing.T) {
			b := newBench(t)
			b.idle("r", b.owned())
			b.finish("r", code)
			for range 3 {
				b.settle("r")
				b.restart()
				b.pass(time.Hour)
			}
			require.Equal(t, "finished", b.get("r").Status.Stage)
			require.Equal(t, 1, b.github.Calls(registeredtest.JIT))
			require.Zero(t, b.github.Len(), "what has ended is unregistered")
			if code == 7 {
				require.Contains(t, b.get("r").Status.Message, "use a newer image")
			}
			b.delete(b.get("r"))
			b.settle("r")
			require.True(t, b.gone("r"))
			require.Nil(t, b.pod("r"))
		})
	}
	t.Run("its pod has vanished", func(t *testing.T) {
		b := newBench(t)
		b.idle("r", b.owned())
		b.vanish("r")
		b.restart()
		b.settle("r")
		require.True(t, b.gone("r"), "a vanished pod marks its Runner, with or without an owner")
		require.Equal(t, 1, b.github.Calls(registeredtest.JIT))
		require.Zero(t, b.github.Len())
	})
	t.Run("its pod and its Secret have vanished", func(t *testing.T) {
		b := newBench(t)
		b.idle("r")
		b.refuse = func(what string, _ client.Object) error {
			if what == "delete Runner" {
				return errors.New("not now")
			}
			return nil
		}
		b.delete(b.secret("r"))
		b.vanish("r")
		b.restart()
		b.round("r")
		b.pass(time.Hour)
		b.round("r")
		require.Nil(t, b.pod("r"))
		require.Equal(t, 1, b.github.Calls(registeredtest.JIT))
	})
	t.Run("its pod was created, and that is not recorded", func(t *testing.T) {
		b := newBench(t)
		b.runner("r")
		b.refuse = func(what string, _ client.Object) error {
			if what == "status Runner" && b.pod("r") != nil {
				return errors.New("not now")
			}
			return nil
		}
		b.round("r")
		uid := b.pod("r").UID
		b.refuse = nil
		b.restart()
		b.settle("r")
		require.Equal(t, uid, b.pod("r").UID, "[K] 1.3: that it exists already is success")
		require.Equal(t, string(uid), b.get("r").Status.PodUID)
		require.Equal(t, 1, b.github.Calls(registeredtest.JIT))
	})
}

// vanish takes a pod out of the API server past every finalizer, as a lost etcd would.
func (b *bench) vanish(name string) {
	b.t.Helper()
	pod := b.pod(name)
	base := pod.DeepCopy()
	pod.Finalizers = nil
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, runnerpod.AnnotationAllowDeletion, "test")
	require.NoError(b.t, b.admin.Patch(b.t.Context(), pod, client.MergeFrom(base)))
	b.delete(pod)
	require.Eventually(b.t, func() bool { return b.pod(name) == nil }, 30*time.Second, 10*time.Millisecond)
}

// [K] 1.7: deleting the pod directly marks its Runner for deletion, and no twin appears.
func TestRunner_APodThatSomebodyDeletesTakesItsRunnerWithIt(t *testing.T) {
	b := newBench(t)
	b.idle("r")
	uid := b.pod("r").UID
	b.delete(b.pod("r"))
	b.round("r")
	pod := b.pod("r")
	require.NotNil(t, pod, "the finalizer keeps it until GitHub has removed its runner")
	require.Equal(t, uid, pod.UID)
	require.False(t, b.get("r").DeletionTimestamp.IsZero())
	b.finish("r", 0) // an idle runner stops at once
	b.settle("r")
	require.Nil(t, b.pod("r"))
	require.True(t, b.gone("r"))
	require.Zero(t, b.github.Len(), "an eviction hides no registration that is alive")
	require.Len(t, b.github.Minted(), 1)
}

// [K] 1.11: editing the spec does not replace the live pod.
func TestRunner_AnEditedSpecLeavesTheLivePodAlone(t *testing.T) {
	b := newBench(t)
	b.idle("r")
	before := b.pod("r")
	b.edit("r", func(r *v1alpha1.Runner) {
		r.Spec.Template.Spec.Containers[0].Image = "runner:2"
		r.Spec.Repository = "acme/other"
		r.Spec.Labels = []string{"cpu"}
	})
	b.settle("r")
	after := b.pod("r")
	require.Equal(t, before.UID, after.UID)
	require.Equal(t, before.Spec, after.Spec)
	require.Equal(t, before.Annotations, after.Annotations)
	require.Equal(t, 1, b.github.Calls(registeredtest.JIT))
}

// [K] 1.8, [F] 1.8: a token is renewed near its end and when the place or the credentials change, and removed once GitHub knows the runner.
func TestRunner_RUN5_AStaticRunnersTokenIsRenewedUntilGitHubKnowsTheRunner(t *testing.T) {
	b := newBench(t)
	b.runner("r", static)
	result := b.settle("r")
	token := func() string { return string(b.secret("r").Data[runnerpod.KeyToken]) }
	first := token()
	require.Contains(t, first, "token-")
	require.Equal(t, "https://github.com/acme/app", string(b.secret("r").Data[runnerpod.KeyURL]))
	require.Equal(t, "gpu", string(b.secret("r").Data[runnerpod.KeyLabels]))
	require.Equal(t, b.get("r").Annotations[runnerpod.AnnotationRunnerName], string(b.secret("r").Data[runnerpod.KeyName]))
	require.NotNil(t, b.get("r").Status.TokenExpiresAt)
	require.InDelta(t, (50 * time.Minute).Seconds(), result.RequeueAfter.Seconds(), 60, "it is reconciled again when the token must be renewed")

	b.pass(49 * time.Minute)
	b.settle("r")
	require.Equal(t, first, token())
	b.restart()
	b.settle("r")
	require.Equal(t, first, token(), "a restart renews nothing")
	b.pass(2 * time.Minute)
	b.settle("r")
	second := token()
	require.NotEqual(t, first, second, "less than ten minutes were left")
	require.Equal(t, 2, b.github.Calls(registeredtest.Token))

	changes := []func(*v1alpha1.Runner){
		func(r *v1alpha1.Runner) { r.Spec.Repository = "acme/other" },
		func(r *v1alpha1.Runner) { r.Spec.Repository, r.Spec.Organization = "", "acme" },
		func(r *v1alpha1.Runner) { r.Spec.Group = "big" },
		func(r *v1alpha1.Runner) { r.Spec.Credentials = &v1alpha1.GitHubCredentials{SecretName: "pat"} },
		func(r *v1alpha1.Runner) { r.Spec.Group, r.Spec.Organization, r.Spec.Enterprise = "", "", "corp" },
	}
	for i, change := range changes {
		last := token()
		b.edit("r", change)
		b.settle("r")
		require.NotEqual(t, last, token(), "change %d", i)
		require.Equal(t, 3+i, b.github.Calls(registeredtest.Token))
		v := registered.Observe(b.pod("r"))
		spec := b.get("r").Spec
		require.Equal(t, []string{spec.Enterprise, spec.Organization, spec.Repository}, []string{v.Target.Enterprise, v.Target.Organization, v.Target.Repository},
			"the pod alone is enough to unregister it")
	}
	require.Equal(t, "pat", registered.Observe(b.pod("r")).Credentials.Secret)

	b.makeIdle("r")
	b.settle("r")
	require.Equal(t, metav1.ConditionFalse, b.condition("r", v1alpha1.ConditionRegistered).Status)
	there := b.github.Put(registeredtest.Runner{Name: b.get("r").Status.RunnerName, Online: true})
	b.settle("r")
	require.Empty(t, token(), "a job in the pod cannot register runners with it")
	require.Contains(t, b.secret("r").Data, runnerpod.KeyToken, "pods of an older version have a variable that names the key")
	r := b.get("r")
	require.Equal(t, there.ID, r.Status.RunnerID)
	require.Nil(t, r.Status.TokenExpiresAt)
	require.Equal(t, "idle", r.Status.Stage)
	calls := b.github.Calls(registeredtest.Token)
	for range 5 {
		b.pass(time.Hour)
		b.restart()
		b.settle("r")
	}
	require.Equal(t, calls, b.github.Calls(registeredtest.Token), "what is registered needs no token")
	require.Empty(t, token())
}

// Bad input is shown with a sentence, and costs nothing.
func TestRunner_BadInputIsShownOnceAndNotTriedAgain(t *testing.T) {
	t.Run("a template of which no pod may be built", func(t *testing.T) {
		b := newBench(t)
		b.runner("r", func(r *v1alpha1.Runner) { r.Spec.Template.Spec.HostNetwork = true })
		require.Zero(t, b.settle("r").RequeueAfter)
		require.Equal(t, map[string]int{"patch Runner": 1, "status Runner": 1}, b.written())
		valid := b.condition("r", v1alpha1.ConditionValid)
		require.Equal(t, metav1.ConditionFalse, valid.Status)
		require.Contains(t, valid.Message, "is not a known class of microVMs")
		require.Equal(t, valid.Message, b.get("r").Status.Message)
		for range 5 {
			b.pass(time.Hour)
			require.Zero(t, b.settle("r").RequeueAfter)
		}
		require.Len(t, b.events(), 1)
		require.Empty(t, b.written())
		require.Zero(t, b.github.Calls(registeredtest.For))
		b.edit("r", func(r *v1alpha1.Runner) { r.Spec.Template.Spec.HostNetwork = false })
		b.settle("r")
		require.NotNil(t, b.pod("r"))
		require.Equal(t, metav1.ConditionTrue, b.condition("r", v1alpha1.ConditionValid).Status)
	})
	t.Run("a pod that the API server refuses", func(t *testing.T) {
		b := newBench(t)
		b.runner("r", func(r *v1alpha1.Runner) { r.Spec.Template.Spec.NodeSelector = map[string]string{"not a key!": "x"} })
		require.Zero(t, b.settle("r").RequeueAfter)
		for range 5 {
			b.pass(time.Hour)
			b.settle("r")
		}
		require.Contains(t, b.condition("r", v1alpha1.ConditionValid).Message, "not a key!")
		require.Len(t, b.events(), 1)
		require.Equal(t, 1, b.github.Calls(registeredtest.JIT))
		written := b.written()
		require.LessOrEqual(t, written["create Pod"], 1)
		b.delete(b.get("r"))
		b.settle("r")
		require.True(t, b.gone("r"))
		require.Zero(t, b.github.Len(), "what was registered for it is not left behind")
	})
	for name, fault := range map[string]error{"NoCredentials": registration.ErrCredentials, "NotAllowed": registration.ErrTarget} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.github.Fault(func(op registeredtest.Op, _ string) error {
				if op == registeredtest.For {
					return errors.Join(errors.New("say what to do"), fault)
				}
				return nil
			})
			b.runner("r", func(r *v1alpha1.Runner) { r.Spec.Credentials = &v1alpha1.GitHubCredentials{SecretName: "pat"} })
			require.NotZero(t, b.settle("r").RequeueAfter)
			c := b.condition("r", v1alpha1.ConditionRegistered)
			require.Equal(t, metav1.ConditionFalse, c.Status)
			require.Equal(t, name, c.Reason)
			require.Contains(t, c.Message, "say what to do")
			for range 20 { // whatever wakes the controller
				b.settle("r")
			}
			require.Equal(t, 1, b.github.Calls(registeredtest.For))
			// A pass that read an older status may have removed the condition: it is written again, without a request to GitHub.
			before := b.get("r").DeepCopy()
			without := before.DeepCopy()
			meta.RemoveStatusCondition(&without.Status.Conditions, v1alpha1.ConditionRegistered)
			require.NoError(t, b.admin.Status().Patch(t.Context(), without, client.MergeFrom(before)))
			b.settle("r")
			require.Equal(t, name, b.condition("r", v1alpha1.ConditionRegistered).Reason)
			require.Equal(t, 1, b.github.Calls(registeredtest.For))
			for range 24 {
				b.pass(time.Hour)
				b.settle("r")
			}
			require.LessOrEqual(t, b.github.Calls(registeredtest.For), 25, "slowly")
			require.Len(t, b.events(), 1)
			require.Nil(t, b.pod("r"))
			require.Equal(t, map[string]int{"patch Runner": 1, "status Runner": 2}, b.written(), "and once again when it was taken off")

			b.github.Fault(nil)
			b.settle("r")
			require.Nil(t, b.pod("r"), "it waits")
			b.edit("r", func(r *v1alpha1.Runner) { r.Spec.Labels = []string{"other"} })
			b.settle("r")
			require.NotNil(t, b.pod("r"), "another spec is tried at once")
		})
	}
	t.Run("a limit of GitHub's", func(t *testing.T) {
		b := newBench(t)
		until := b.now().Add(17 * time.Minute)
		b.github.Fault(func(op registeredtest.Op, _ string) error {
			if op == registeredtest.JIT && b.now().Before(until) {
				return &fleet.RateLimitedError{Resource: "core", Until: until}
			}
			return nil
		})
		b.runner("r")
		require.InDelta(t, (17 * time.Minute).Seconds(), b.settle("r").RequeueAfter.Seconds(), 30)
		b.pass(16 * time.Minute)
		b.settle("r")
		require.Equal(t, 1, b.github.Calls(registeredtest.JIT), "[F] 5.7: the reset is honoured")
		b.pass(2 * time.Minute)
		b.settle("r")
		require.NotNil(t, b.pod("r"))
	})
	t.Run("something else has its names", func(t *testing.T) {
		b := newBench(t)
		require.NoError(t, b.admin.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "r-registration"}}))
		b.runner("r")
		b.settle("r")
		require.Equal(t, "SecretTaken", b.condition("r", v1alpha1.ConditionRegistered).Reason)
		require.Zero(t, b.github.Calls(registeredtest.JIT))
		require.NoError(t, b.admin.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}))
		b.runner("p")
		b.settle("p")
		require.Equal(t, "PodNameTaken", b.condition("p", v1alpha1.ConditionRegistered).Reason)
		require.Empty(t, b.get("p").Status.PodUID)
	})
}

// NET-3: no secret is in anything that people may read.
func TestRunner_NET3_ShowsNoSecret(t *testing.T) {
	b := newBench(t)
	b.github.Fault(func(op registeredtest.Op, _ string) error {
		if op == registeredtest.JIT {
			return fleet.ErrUncertain
		}
		return nil
	})
	b.runner("r")
	b.settle("r")
	b.github.Fault(nil)
	b.pass(time.Hour)
	b.settle("r")
	secret := string(b.secret("r").Data[runnerpod.KeyJIT])
	r := b.get("r")
	r.ManagedFields = nil
	for _, text := range append(b.events(), r.Status.Message, strings.Join(valuesOf(r.Annotations), " ")) {
		require.NotContains(t, text, secret)
	}
}

func valuesOf(m map[string]string) []string {
	var values []string
	for _, v := range m {
		values = append(values, v)
	}
	return values
}
