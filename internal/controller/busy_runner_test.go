package controller_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
)

const (
	serverUser = "system:serviceaccount:bullpen-system:bullpen-server"
	immediate  = client.GracePeriodSeconds(0)
)

// yard is a namespace with runner pods that no controller looks after: what the API server itself lets happen to them.
type yard struct {
	t         *testing.T
	env       *kit.Env
	namespace string
	admin     client.WithWatch // whatever a person could do
	kubelet   client.WithWatch // the same, counting as a node
}

func newYard(t *testing.T) *yard {
	t.Helper()
	y := &yard{t: t, env: kit.Cluster(t)}
	y.namespace = y.env.Namespace(t)
	y.admin, y.kubelet = y.env.Client(t), y.env.Kubelet(t)
	y.env.ShippedRoles(t, y.namespace)
	return y
}

// as returns the client of a user with its own rights; the groups of ServiceAccounts are added.
func (y *yard) as(user string) client.WithWatch {
	return y.env.ClientAs(y.t, y.env.As(y.t, user, "system:serviceaccounts", "system:authenticated"))
}

// runner makes a runner pod in a state. It holds its place for ever: there is no scheduler or kubelet for it unless
// change gives it a node.
func (y *yard) runner(name string, state func(*corev1.Pod), change ...func(*corev1.Pod)) *corev1.Pod {
	y.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: y.namespace, Name: name, Labels: map[string]string{
			runnerpod.LabelRunner: "true", runnerpod.LabelPool: "yard",
		}},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To[int64](6 * 60 * 60),
			SchedulerName:                 "nobody",
			Containers: []corev1.Container{
				{Name: runnerpod.ContainerRunner, Image: "none"}, {Name: runnerpod.ContainerPoller, Image: "none"},
			},
		},
	}
	for _, c := range change {
		c(pod)
	}
	require.NoError(y.t, y.admin.Create(y.t.Context(), pod))
	y.become(pod, state)
	return pod
}

// become writes a pod's state as its node would.
func (y *yard) become(pod *corev1.Pod, state func(*corev1.Pod)) {
	y.t.Helper()
	key := client.ObjectKeyFromObject(pod)
	require.NoError(y.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error { // controllers write it too
		if err := y.kubelet.Get(y.t.Context(), key, pod); err != nil {
			return err
		}
		state(pod)
		if labels := pod.Labels; labels[runnerpod.LabelOwner] != "" {
			if err := y.kubelet.Update(y.t.Context(), pod.DeepCopy()); err != nil {
				return err
			}
			updated := pod.Status
			if err := y.kubelet.Get(y.t.Context(), key, pod); err != nil {
				return err
			}
			pod.Status = updated
		}
		return y.kubelet.Status().Update(y.t.Context(), pod)
	}))
}

// untouched fails the test if the pod's deletion has been requested.
func (y *yard) untouched(pod *corev1.Pod) {
	y.t.Helper()
	var now corev1.Pod
	require.NoError(y.t, y.admin.Get(y.t.Context(), client.ObjectKeyFromObject(pod), &now), "%s has been deleted", pod.Name)
	require.Equal(y.t, pod.UID, now.UID)
	require.Nil(y.t, now.DeletionTimestamp, "%s is being deleted", pod.Name)
	require.Equal(y.t, corev1.PodRunning, now.Status.Phase)
}

func (y *yard) gone(object client.Object) bool {
	read, ok := object.DeepCopyObject().(client.Object)
	require.True(y.t, ok)
	return apierrors.IsNotFound(y.admin.Get(y.t.Context(), client.ObjectKeyFromObject(object), read))
}

// eventually waits for what the control plane does by itself.
func (y *yard) eventually(what string, check func() bool) {
	y.t.Helper()
	require.Eventually(y.t, check, 2*patience, interval, what)
}

// The states of a runner pod, as a node reports them.
var started = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func idle(pod *corev1.Pod) {
	pod.Status.Phase = corev1.PodRunning
	run := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: runnerpod.ContainerRunner, Image: "x", Ready: true, State: run},
		{Name: runnerpod.ContainerPoller, Image: "x", Ready: true, State: run},
	}
	containersReady(pod, corev1.ConditionTrue, time.Second)
}

func containersReady(pod *corev1.Pod, status corev1.ConditionStatus, after time.Duration) {
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.ContainersReady, Status: status, LastTransitionTime: metav1.NewTime(started.Add(after)),
	}, {
		Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(started.Add(after)),
	}}
}

func bootingRunner(pod *corev1.Pod) {
	idle(pod)
	pod.Status.ContainerStatuses[0].Ready = false
	containersReady(pod, corev1.ConditionFalse, -time.Second)
}

func takenRunner(pod *corev1.Pod) {
	bootingRunner(pod)
	containersReady(pod, corev1.ConditionFalse, time.Minute)
}

// idleExited is a runner with a job, by the sign of a pod of a RunnerPool on Linux alone: its runner stays ready.
func idleExited(pod *corev1.Pod) {
	idle(pod)
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
		Name: runnerpod.ContainerIdle, Image: "x", State: exited(0),
	})
	containersReady(pod, corev1.ConditionFalse, -time.Second)
}

func pollerEnded(pod *corev1.Pod) {
	idle(pod)
	pod.Status.ContainerStatuses[1].Ready = false
	pod.Status.ContainerStatuses[1].State = exited(0)
}

// pollerUnstarted is a pod whose runtime was restarted in the moment in which it started the poller, as a kubelet reports it.
func pollerUnstarted(pod *corev1.Pod) {
	pollerEnded(pod)
	pod.Status.ContainerStatuses[1].State.Terminated = &corev1.ContainerStateTerminated{
		ExitCode: 128, Reason: "StartError", Message: "failed to create containerd task: context canceled", StartedAt: metav1.Unix(0, 0), FinishedAt: metav1.Now(),
	}
}

func owned(pod *corev1.Pod) {
	idle(pod)
	pod.Labels[runnerpod.LabelOwner] = "acme"
}

// working is a runner in the middle of a job, as the whole fleet sees it.
func working(pod *corev1.Pod) {
	takenRunner(pod)
	pod.Status.ContainerStatuses[1].State = exited(0)
	pod.Labels[runnerpod.LabelOwner] = "acme"
}

func pending(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending }

func ended(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		working(pod)
		pod.Status.Phase = phase
		pod.Status.ContainerStatuses[0].State = exited(0)
	}
}

// on gives the pod a place on a node, so that its deletion waits for the node.
func on(node string) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Spec.NodeName = node } }

func refusedAs(t *testing.T, err error, sentence string) {
	t.Helper()
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, sentence)
}

func TestBusyRunner_EXCL7_EachSignOfWorkKeepsEverybodyFromDeletingIt(t *testing.T) {
	y := newYard(t)
	node := y.env.RegisterNode(t, "signs", nil)
	people := map[string]client.Client{
		"a person": y.admin, "its node": y.kubelet, "the controller": y.as(controllerUser),
		"the garbage collector":     y.as("system:serviceaccount:kube-system:generic-garbage-collector"),
		"the namespace controller":  y.as("system:serviceaccount:kube-system:namespace-controller"),
		"the pod garbage collector": y.as("system:serviceaccount:kube-system:pod-garbage-collector"),
		"the node controller":       y.as("system:serviceaccount:kube-system:node-controller"),
		"the scheduler":             y.env.ClientAs(t, y.env.As(t, "system:kube-scheduler", "system:authenticated")),
	}
	for name, state := range map[string]func(*corev1.Pod){
		"owned": owned, "polled": pollerEnded, "taken": takenRunner, "started": idleExited, "working": working,
	} {
		pod := y.runner(name, state, on(node.Name))
		for who, c := range people {
			for how, options := range map[string][]client.DeleteOption{
				"": nil, "by force": {immediate}, "in a dry run": {client.DryRunAll},
			} {
				err := c.Delete(t.Context(), pod.DeepCopy(), options...)
				require.True(t, apierrors.IsForbidden(err), "%s deletes it %s: %v", who, how, err)
			}
		}
		err := y.admin.Delete(t.Context(), pod.DeepCopy())
		refusedAs(t, err, "would kill the job")
		refusedAs(t, err, "kubectl annotate pod -n "+y.namespace+" "+name+` bullpen.dev/allow-deletion="say why"`)
		y.untouched(pod)
	}
	refusedAs(t, y.admin.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(y.namespace)), "would kill the job")
}

func TestBusyRunner_EXCL7_RunnersWithoutWorkMayGo(t *testing.T) {
	y := newYard(t)
	controller := y.as(controllerUser)
	for name, state := range map[string]func(*corev1.Pod){
		"idle": idle, "booting": bootingRunner, "pending": pending, "bare": func(*corev1.Pod) {}, "unstarted": pollerUnstarted,
		"succeeded": ended(corev1.PodSucceeded), "failed": ended(corev1.PodFailed),
	} {
		pod := y.runner(name, state)
		require.NoError(t, y.admin.Delete(t.Context(), pod.DeepCopy(), client.DryRunAll), name)
		uid, version := pod.UID, pod.ResourceVersion
		require.NoError(t, controller.Delete(t.Context(), pod, client.Preconditions{UID: &uid, ResourceVersion: &version}), name)
		require.True(t, y.gone(pod), name)
	}
	foreign := y.runner("foreign", working, func(pod *corev1.Pod) { delete(pod.Labels, runnerpod.LabelRunner) })
	require.NoError(t, y.admin.Delete(t.Context(), foreign), "a pod that is no runner is not protected")
}

func TestBusyRunner_EXCL7_BreakGlassNeedsAReason(t *testing.T) {
	y := newYard(t)
	pod := y.runner("stuck", working)
	annotate := func(reason string) {
		patch := `{"metadata":{"annotations":{"` + runnerpod.AnnotationAllowDeletion + `":"` + reason + `"}}}`
		require.NoError(t, y.admin.Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	annotate("")
	refusedAs(t, y.admin.Delete(t.Context(), pod.DeepCopy()), "would kill the job")
	annotate("the job hangs, acme asked for it")
	require.NoError(t, y.admin.Delete(t.Context(), pod))
	require.True(t, y.gone(pod))
}

// The audit log records who used the break-glass annotation and why, and each refused deletion.
func TestBusyRunner_EXCL7_BreakGlassIsAudited(t *testing.T) {
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	require.NoError(t, os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\n"+
		"rules: [{level: Metadata, verbs: [delete], namespaces: [default], resources: [{group: \"\", resources: [pods]}]}, {level: None}]\n"), 0o600))
	env := kit.Private(t, func(o *controlplane.Options) {
		o.ExtraArgs = map[controlplane.Component][]string{
			controlplane.APIServer: {"--audit-policy-file=" + policy, "--audit-log-path=" + log},
		}
	})
	y := &yard{t: t, env: env, namespace: metav1.NamespaceDefault, admin: env.Client(t), kubelet: env.Kubelet(t)}
	person := env.ClientAs(t, env.As(t, "alice", "system:masters"))
	pod := y.runner("hangs", working)
	require.True(t, apierrors.IsForbidden(person.Delete(t.Context(), pod.DeepCopy())))
	reason := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+runnerpod.AnnotationAllowDeletion+`":"it hangs"}}}`))
	require.NoError(t, person.Patch(t.Context(), pod, reason))
	require.NoError(t, person.Delete(t.Context(), pod))
	require.NoError(t, person.Delete(t.Context(), y.runner("idle", idle)))

	annotations := func() map[string]map[string]string {
		content, err := os.ReadFile(log)
		require.NoError(t, err)
		found := map[string]map[string]string{}
		for line := range strings.Lines(string(content)) {
			var event struct {
				ObjectRef      struct{ Name string }
				ResponseStatus struct{ Code int }
				Annotations    map[string]string
			}
			require.NoError(t, json.Unmarshal([]byte(line), &event))
			found[event.ObjectRef.Name+" "+strconv.Itoa(event.ResponseStatus.Code)] = event.Annotations
		}
		return found
	}
	y.eventually("written down", func() bool { return annotations()["idle 200"] != nil })
	const allowed = "bullpen-busy-runner-deletion/busy-runner-deletion-allowed"
	require.Equal(t, "alice deletes default/hangs although it has a job for acme: it hangs", annotations()["hangs 200"][allowed])
	require.NotContains(t, annotations()["idle 200"], allowed)
	require.Contains(t, annotations()["hangs 403"]["validation.policy.admission.k8s.io/validation_failure"], "would kill the job")
}

// A pod whose deletion was accepted while it was idle can have received a job in the same moment. Its grace period then protects the job,
// and no request may shorten it.
func TestBusyRunner_EXCL7_NobodyShortensTheGraceOfARunnerThatIsBeingDeleted(t *testing.T) {
	y := newYard(t)
	node := y.env.RegisterNode(t, "graceful", nil)
	pod := y.runner("late", idle, on(node.Name))
	require.NoError(t, y.admin.Delete(t.Context(), pod.DeepCopy()), "nothing shows yet")
	y.become(pod, working)
	require.NotNil(t, pod.DeletionTimestamp)

	refusedAs(t, y.admin.Delete(t.Context(), pod.DeepCopy(), immediate), "would kill the job")
	refusedAs(t, y.admin.Delete(t.Context(), pod.DeepCopy(), client.GracePeriodSeconds(30)), "would kill the job")
	y.keepsItsGrace(pod, 0)
	y.keepsItsGrace(pod, 30)
	require.NoError(t, y.evict(pod, nil), "evicting it once more changes nothing")
	before := pod.DeletionTimestamp
	require.NoError(t, y.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	require.Equal(t, before, pod.DeletionTimestamp)

	// The node finishes what was accepted, under its own rights.
	agent := y.env.ClientAs(t, y.env.As(t, "system:node:"+node.Name, "system:nodes", "system:authenticated"))
	uid := pod.UID
	require.NoError(t, agent.Delete(t.Context(), pod, immediate, client.Preconditions{UID: &uid}))
	require.True(t, y.gone(pod))
}

// A runner that looks idle may have been given a job a moment ago. It has its grace period then, which costs an idle one
// nothing: it stops at once.
func TestBusyRunner_EXCL7_NobodyCutsTheGraceOfARunnerThatCouldHaveBeenGivenAJob(t *testing.T) {
	y := newYard(t)
	node := y.env.RegisterNode(t, "hasty", nil)
	pod := y.runner("waits", idle, on(node.Name))
	for name, grace := range map[string]int64{"by force": 0, "now": 1, "soon": 6*60*60 - 1} {
		err := y.admin.Delete(t.Context(), pod.DeepCopy(), client.GracePeriodSeconds(grace))
		require.True(t, apierrors.IsForbidden(err), "%s: %v", name, err)
		require.ErrorContains(t, err, "without --force, --now and --grace-period", name)
	}
	refusedAs(t, y.admin.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(y.namespace), immediate), "without --force")
	y.untouched(pod)
	require.NoError(t, y.admin.Delete(t.Context(), pod.DeepCopy()))
	refusedAs(t, y.admin.Delete(t.Context(), pod.DeepCopy(), immediate), "without --force")
	agent := y.env.ClientAs(t, y.env.As(t, "system:node:"+node.Name, "system:nodes", "system:authenticated"))
	require.NoError(t, agent.Delete(t.Context(), pod.DeepCopy(), immediate), "its node finishes what was accepted")
	require.True(t, y.gone(pod))

	require.NoError(t, y.as(controllerUser).Delete(t.Context(), y.runner("lost", idle, on(node.Name)), immediate),
		"the controller has asked, and there may be no node left to finish anything")
	for name, state := range map[string]func(*corev1.Pod){"boots": pending, "over": ended(corev1.PodFailed)} {
		require.NoError(t, y.admin.Delete(t.Context(), y.runner(name, state, on(node.Name)), immediate), name)
	}
	pod = y.runner("hangs", idle, on(node.Name))
	y.env.AllowDeletion(t, y.namespace, pod.Name)
	require.NoError(t, y.admin.Delete(t.Context(), pod, immediate))
}

// Changes that a node takes as an order to stop a running container.
func TestBusyRunner_EXCL7_NobodyMakesItsNodeStopIt(t *testing.T) {
	y := newYard(t)
	merge := func(body string) client.Patch { return client.RawPatch(types.StrategicMergePatchType, []byte(body)) }
	sidecar := func(pod *corev1.Pod) {
		pod.Spec.InitContainers = []corev1.Container{{Name: "dind", Image: "none", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
	}
	stops := map[string]client.Patch{
		"another image of the runner":  merge(`{"spec":{"containers":[{"name":"runner","image":"newer"}]}}`),
		"another image of the sidecar": merge(`{"spec":{"initContainers":[{"name":"dind","image":"newer"}]}}`),
		"a deadline":                   merge(`{"spec":{"activeDeadlineSeconds":1}}`),
	}
	for name, state := range map[string]func(*corev1.Pod){"waiting": idle, "working": working} {
		pod := y.runner(name, state, sidecar)
		for what, patch := range stops {
			for _, c := range []client.Client{y.admin, y.as(controllerUser), y.as(serverUser)} {
				err := c.Patch(t.Context(), pod.DeepCopy(), patch)
				require.True(t, apierrors.IsForbidden(err), "%s: %v", what, err)
				require.ErrorContains(t, err, "change the RunnerPool instead")
			}
		}
	}
	pod := y.runner("released", working, sidecar)
	y.env.AllowDeletion(t, y.namespace, pod.Name)
	for what, patch := range stops {
		require.NoError(t, y.admin.Patch(t.Context(), pod, patch), what)
	}
}

func TestBusyRunner_EXCL7_CannotBeMadeToLookLikeSomethingElse(t *testing.T) {
	y := newYard(t)
	merge := func(body string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(body)) }
	label := func(key, value string) client.Patch {
		return merge(`{"metadata":{"labels":{"` + key + `":` + value + `}}}`)
	}
	fail := merge(`{"status":{"phase":"Failed"}}`)
	podGC := y.as("system:serviceaccount:kube-system:pod-garbage-collector")
	server := y.as(serverUser)

	// Labels that make it a runner: whether it works or not, for it can be given a job at any moment.
	for name, state := range map[string]func(*corev1.Pod){"waiting": idle, "working": working} {
		pod := y.runner(name, state)
		for _, c := range []client.Client{y.admin, server, y.as(controllerUser)} {
			refusedAs(t, c.Patch(t.Context(), pod.DeepCopy(), label(runnerpod.LabelRunner, "null")), "keep them")
			refusedAs(t, c.Patch(t.Context(), pod.DeepCopy(), label(runnerpod.LabelPool, `"other"`)), "keep them")
		}
		refusedAs(t, y.admin.Status().Patch(t.Context(), pod.DeepCopy(), label(runnerpod.LabelRunner, `"false"`)), "keep them")
		require.NoError(t, y.admin.Patch(t.Context(), pod.DeepCopy(), label("anything", `"else"`)))
	}

	// The owner label: the server alone.
	pod := y.runner("owned", owned)
	for _, c := range []client.Client{y.admin, y.as(controllerUser)} {
		refusedAs(t, c.Patch(t.Context(), pod.DeepCopy(), label(runnerpod.LabelOwner, "null")), "only the server")
		refusedAs(t, c.Patch(t.Context(), pod.DeepCopy(), label(runnerpod.LabelOwner, `"other"`)), "only the server")
	}
	refusedAs(t, y.admin.Status().Patch(t.Context(), pod.DeepCopy(), label(runnerpod.LabelOwner, "null")), "only the server")
	require.NoError(t, server.Patch(t.Context(), pod.DeepCopy(), label(runnerpod.LabelOwner, "null")))

	// Only the node may report its end: the pod garbage collector would trust that report and delete the pod.
	for name, state := range map[string]func(*corev1.Pod){
		"owned-2": owned, "polled": pollerEnded, "taken": takenRunner,
	} {
		pod := y.runner(name, state)
		for _, c := range []client.Client{y.admin, podGC} {
			refusedAs(t, c.Status().Patch(t.Context(), pod.DeepCopy(), fail), "only its node may report its exit")
			refusedAs(t, c.Status().Patch(t.Context(), pod.DeepCopy(), merge(`{"status":{"phase":"Succeeded"}}`)), "only its node")
		}
		y.untouched(pod)
	}
	require.NoError(t, podGC.Status().Patch(t.Context(), y.runner("unused", idle), fail))

	// With a reason, all of it.
	pod = y.runner("released", working)
	y.env.AllowDeletion(t, y.namespace, pod.Name)
	require.NoError(t, podGC.Status().Patch(t.Context(), pod.DeepCopy(), fail))
	pod = y.runner("unlabelled", working)
	y.env.AllowDeletion(t, y.namespace, pod.Name)
	require.NoError(t, y.admin.Patch(t.Context(), pod.DeepCopy(), label(runnerpod.LabelOwner, "null")))
	require.NoError(t, y.admin.Patch(t.Context(), pod.DeepCopy(), label(runnerpod.LabelRunner, "null")))
}

// The API server's own check of the expressions against the types of what they read: a misspelt field would be found
// only when it matters.
func TestAdmissionPolicies_AreFreeOfWarnings(t *testing.T) {
	y := newYard(t)
	var policies admissionv1.ValidatingAdmissionPolicyList
	y.eventually("all are checked", func() bool {
		require.NoError(t, y.admin.List(t.Context(), &policies, client.MatchingLabels{"app.kubernetes.io/part-of": "bullpen"}))
		for i := range policies.Items {
			if p := &policies.Items[i]; p.Status.ObservedGeneration != p.Generation || p.Status.TypeChecking == nil {
				return false
			}
		}
		return len(policies.Items) > 0
	})
	for i := range policies.Items {
		p := &policies.Items[i]
		require.Empty(t, p.Status.TypeChecking.ExpressionWarnings, p.Name)
		require.Equal(t, admissionv1.Fail, *p.Spec.FailurePolicy, p.Name)
		require.True(t, strings.HasPrefix(p.Name, "bullpen-"), p.Name)
	}
}
