package pool

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/plan/prepull"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

func prepulling(change ...func(*v1alpha1.RunnerPool)) *v1alpha1.RunnerPool {
	pool := poolFor(func(s *v1alpha1.RunnerPoolSpec) {
		s.Platform, s.Template.Image = v1alpha1.PlatformLinux, "runner:1"
		s.Resources = v1alpha1.RunnerResources{CPU: resource.MustParse("1"), Memory: resource.MustParse("1Gi")}
		s.ImagePrepull = &v1alpha1.ImagePrepull{Enabled: true}
	})
	for _, c := range change {
		c(pool)
	}
	return pool
}

func off(p *v1alpha1.RunnerPool) { p.Spec.ImagePrepull = nil }

// daemonsAPI keeps one DaemonSet, as an API server does, and fails with failure.
type daemonsAPI struct {
	client.Client
	failure error
	daemons *appsv1.DaemonSet
	version int
	calls   []string
}

func (a *daemonsAPI) write(verb string, object client.Object) error {
	a.calls = append(a.calls, verb)
	if a.failure != nil {
		return a.failure
	}
	a.version++
	object.SetResourceVersion(strconv.Itoa(a.version))
	a.daemons = object.DeepCopyObject().(*appsv1.DaemonSet)
	return nil
}

func (a *daemonsAPI) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	object.SetUID("daemons")
	return a.write("create", object)
}

func (a *daemonsAPI) Update(_ context.Context, object client.Object, _ ...client.UpdateOption) error {
	if a.failure == nil && (object.GetUID() != "daemons" || object.GetResourceVersion() != a.daemons.ResourceVersion) {
		return errors.New("not as it was read")
	}
	return a.write("update", object)
}

func (a *daemonsAPI) Delete(_ context.Context, object client.Object, given ...client.DeleteOption) error {
	options := client.DeleteOptions{}
	options.ApplyOptions(given)
	if options.Preconditions == nil || ptr.Deref(options.Preconditions.UID, "") != a.daemons.UID || object.GetName() != a.daemons.Name {
		return errors.New("without its UID")
	}
	a.calls = append(a.calls, "delete")
	return a.failure
}

func (a *daemonsAPI) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func (a *daemonsAPI) take() []string {
	calls := a.calls
	a.calls = nil
	return calls
}

type imagesBench struct {
	*Reconciler
	t     *testing.T
	api   *daemonsAPI
	state *poolState
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func newImagesBench(t *testing.T) *imagesBench {
	api := &daemonsAPI{version: 10}
	tr := newTracker()
	b := &imagesBench{t: t, api: api, state: tr.pool(key), queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())}
	t.Cleanup(b.queue.ShutDown)
	b.Reconciler = &Reconciler{client: api, reader: api, tracker: tr, options: Options{
		Pod: runnerpod.Options{DispatchURL: "http://server", AgentImage: "agent:1"}, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return t0 },
	}}
	return b
}

// pass does what a pass does for the images.
func (b *imagesBench) pass(pool *v1alpha1.RunnerPool) imageFacts {
	b.lookAtImages(b.t.Context(), pool, b.state, nil)
	return b.keepImages(b.t.Context(), pool, key, true)
}

// pulls is a pre-pull pod on a node, of the present images.
func (b *imagesBench) pulls(node string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "pool-prepull-" + node, Labels: map[string]string{
			runnerpod.LabelPrepull: key.Name, runnerpod.LabelImages: b.tracker.images.read(key).wanted.images,
		}},
		Spec: corev1.PodSpec{NodeName: node},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func pulled(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func pullFails(p *corev1.Pod) {
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "image-1", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "manifest unknown"},
	}}}
}

func (b *imagesBench) see(pod *corev1.Pod) {
	b.prepullPodEvents().Update(b.t.Context(), event.TypedUpdateEvent[*corev1.Pod]{ObjectNew: pod}, b.queue)
}

func TestImages_POOL5_RunnersKeepTheirTemplateWhereImagesAreMissing(t *testing.T) {
	b := newImagesBench(t)
	for _, name := range []string{"n1", "n2", "n3"} {
		b.tracker.change(readyNode(name), t0)
		b.tracker.images.nodeSeen(readyNode(name))
	}
	b.state.podSeen(named("pool-one", onNode("n1")), t0)
	b.state.podSeen(named("pool-two", onNode("n2")), t0)
	rolled := func() (names []string) {
		for _, a := range b.state.plan(lifecycle.Wish{Desired: 2, TemplateHash: "new", MaxUnavailable: 2}, counter(), 0, t0).plan.Ask {
			names = append(names, a.Runner.Name)
			b.state.members[a.Runner.Name].leave.Withdraw()
			b.state.settle(b.state.members[a.Runner.Name], t0)
		}
		b.state.questions = fenceQuestions{}
		return names
	}
	require.Len(t, rolled(), 2, "control: without spec.imagePrepull")
	facts := b.pass(prepulling())
	require.Empty(t, rolled(), "in the pass in which the template is seen, before there is a pod")
	require.Equal(t, prepull.Report{Wanted: true, Nodes: 3}, facts.Report)
	require.Equal(t, t0.Add(imagesLook), facts.next)

	b.see(b.pulls("n1", pulled))
	require.Equal(t, 1, b.queue.Len(), "a pass is made")
	require.Equal(t, []string{"pool-one"}, rolled())
	b.see(b.pulls("n2", pullFails))
	require.Equal(t, prepull.Report{Wanted: true, Nodes: 3, Present: 1, Failed: 1, FailedNode: "n2", Problem: "ErrImagePull: manifest unknown"}, b.tracker.images.facts(key).Report)
	require.Equal(t, prepull.Preference{In: []string{"n1"}}, func() prepull.Preference {
		node := readyNode("n1", func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelHostname: "n1"} })
		b.tracker.images.nodeSeen(node)
		return b.tracker.images.preference(key)
	}())

	b.pass(prepulling(func(p *v1alpha1.RunnerPool) { p.Spec.Template.Image, p.Generation = "runner:2", 4 }))
	require.Empty(t, rolled(), "other images, that no node has")
	b.pass(prepulling(off, func(p *v1alpha1.RunnerPool) { p.Generation = 5 }))
	require.Len(t, rolled(), 2, "turned off, a roll waits for nothing")
}

// A node that new runners cannot use keeps no runner on the older template.
func TestImages_NothingIsWaitedForOnOtherNodes(t *testing.T) {
	b := newImagesBench(t)
	tainted := readyNode("n1", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	})
	b.tracker.change(tainted, t0)
	b.pass(prepulling())
	require.False(t, b.tracker.images.lacks(key, "n1"))
	require.Empty(t, b.tracker.images.nodeSeen(tainted))
	require.Equal(t, []types.NamespacedName{key}, b.tracker.images.nodeSeen(readyNode("n1")), "its taint is taken off")
	require.True(t, b.tracker.images.lacks(key, "n1"))
	require.Equal(t, []types.NamespacedName{key}, b.tracker.images.nodeGone("n1"))
	require.False(t, b.tracker.images.lacks(key, "n1"))
	require.False(t, b.tracker.images.lacks(key, ""), "a runner without a node")
}

func TestImages_TheDaemonSetIsWrittenWhenItDiffers(t *testing.T) {
	b := newImagesBench(t)
	b.pass(prepulling(off))
	require.Empty(t, b.api.take(), "most pools have none")
	b.pass(prepulling())
	b.pass(prepulling())
	require.Equal(t, []string{"create"}, b.api.take(), "once, before the cache shows it")
	seen := observeDaemons(b.api.daemons)
	stale := seen
	stale.resourceVersion, stale.spec = "9", "older"
	require.False(t, b.tracker.images.daemonsSeen(key, stale), "the cache lags")
	require.False(t, b.tracker.images.daemonsSeen(key, seen))
	b.pass(prepulling(func(p *v1alpha1.RunnerPool) { p.Generation, p.Spec.Template.Env = 4, []corev1.EnvVar{{Name: "A"}} }))
	require.Empty(t, b.api.take(), "nothing that concerns images")
	b.pass(prepulling(func(p *v1alpha1.RunnerPool) { p.Generation, p.Spec.Template.Image = 5, "runner:2" }))
	require.Equal(t, []string{"update"}, b.api.take())
	require.Equal(t, "runner:2", b.api.daemons.Spec.Template.Spec.InitContainers[1].Image)

	lookedAt := prepulling(func(p *v1alpha1.RunnerPool) { p.Generation, p.Spec.Template.Image = 5, "runner:2" })
	orphan := observeDaemons(b.api.daemons)
	orphan.owner = ""
	require.True(t, b.tracker.images.daemonsSeen(key, orphan))
	b.pass(lookedAt)
	require.Equal(t, []string{"update"}, b.api.take(), "it is owned again")
	b.tracker.images.daemonsGone(key, "daemons")
	b.pass(lookedAt)
	require.Equal(t, []string{"create"}, b.api.take(), "another client has deleted it")
	b.pass(prepulling(func(p *v1alpha1.RunnerPool) { p.DeletionTimestamp = ptr.To(metav1.NewTime(t0)) }))
	require.Equal(t, []string{"delete"}, b.api.take(), "a pool that is being deleted")
	require.Empty(t, b.tracker.images.pools, "nothing is kept of it")
}

// What cannot be written delays no runner: it is shown, and tried again.
func TestImages_AFailedWriteIsShownAndRepeated(t *testing.T) {
	b := newImagesBench(t)
	resource := schema.GroupResource{Group: "apps", Resource: "daemonsets"}
	b.tracker.change(readyNode("n1"), t0)
	b.api.failure = apierrors.NewForbidden(resource, "pool-prepull", errors.New("exceeded quota"))
	facts := b.pass(prepulling())
	require.Contains(t, facts.failure, "exceeded quota")
	require.Equal(t, t0.Add(prepullRetry), facts.next)
	b.api.failure = nil
	facts = b.pass(prepulling())
	require.Empty(t, facts.failure)
	b.api.failure = apierrors.NewConflict(resource, "pool-prepull", errors.New("it was changed"))
	facts = b.pass(prepulling(func(p *v1alpha1.RunnerPool) { p.Generation, p.Spec.Template.Image = 4, "runner:2" }))
	require.Empty(t, facts.failure, "the cache lags, and no user can do anything about it")
	require.Equal(t, t0.Add(time.Second), facts.next)

	b.api.failure, b.api.calls = nil, nil
	b.tracker.images.daemonsSeen(key, daemonSet{uid: "theirs", owner: "another-pool", resourceVersion: "99"})
	require.Contains(t, b.pass(prepulling()).failure, "belongs to another object")
	b.pass(prepulling(off, func(p *v1alpha1.RunnerPool) { p.Generation = 6 }))
	require.Empty(t, b.api.take(), "another object's is left alone")
}

// An invalid template makes no pods, and takes away none.
func TestImages_AnInvalidTemplateKeepsTheDaemonSet(t *testing.T) {
	b := newImagesBench(t)
	b.pass(prepulling())
	b.api.take()
	broken := prepulling(func(p *v1alpha1.RunnerPool) { p.Generation, p.Spec.Template.Image = 4, "" })
	b.lookAtImages(t.Context(), broken, b.state, errors.New("no image"))
	b.keepImages(t.Context(), broken, key, false)
	require.Empty(t, b.api.take())
	require.NotEmpty(t, b.tracker.images.read(key).wanted.images)
}

func TestObservePrepull(t *testing.T) {
	b := newImagesBench(t)
	waits := func(reason, message string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "image-1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
		}
	}
	unbound := func(p *corev1.Pod) {
		p.Spec.NodeName = ""
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}}}}},
		}}}
	}
	for name, c := range map[string]struct {
		change  []func(*corev1.Pod)
		ready   bool
		leaving bool
		problem string
	}{
		"it has just begun":   {},
		"it pulls":            {change: []func(*corev1.Pod){waits("PodInitializing", "")}},
		"all is there":        {change: []func(*corev1.Pod){pulled}, ready: true},
		"it cannot pull":      {change: []func(*corev1.Pod){pullFails}, problem: "ErrImagePull: manifest unknown"},
		"it backs off":        {change: []func(*corev1.Pod){waits("ImagePullBackOff", "Back-off pulling image\nand more")}, problem: "ImagePullBackOff: Back-off pulling image"},
		"its program fails":   {change: []func(*corev1.Pod){waits("CrashLoopBackOff", "")}, problem: "CrashLoopBackOff"},
		"it is not bound yet": {change: []func(*corev1.Pod){unbound}},
		"no room":             {change: []func(*corev1.Pod){unbound, unschedulable}, problem: "Unschedulable: Too many pods"},
		"it was evicted": {change: []func(*corev1.Pod){func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low on memory"}
		}}, problem: "Evicted: low on memory"},
		"it is on its way out":   {change: []func(*corev1.Pod){pulled, func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.NewTime(t0)) }}, ready: true, leaving: true},
		"it was started, and is": {change: []func(*corev1.Pod){pullFails, pulled}, ready: true},
	} {
		pod := b.pulls("n", c.change...)
		pod.Labels[runnerpod.LabelImages] = "images"
		want := prepull.Pod{Node: "n", Images: "images", Ready: c.ready, Leaving: c.leaving, Problem: c.problem}
		require.Equal(t, want, observePrepull(pod), name)
		trimmed, err := TrimPrepullPod(pod)
		require.NoError(t, err)
		require.Equal(t, want, observePrepull(trimmed.(*corev1.Pod)), "%s, trimmed", name)
	}
	other := &corev1.Node{}
	same, err := TrimPrepullPod(other)
	require.NoError(t, err)
	require.Same(t, other, same)
}

func unschedulable(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "Too many pods"}}
}

func TestConditions_ImagesPulled(t *testing.T) {
	pool := poolFor()
	var before []metav1.Condition
	recorder, events := recorded()
	for _, c := range []struct {
		name    string
		images  imageFacts
		status  metav1.ConditionStatus
		reason  string
		message string
		event   string
	}{
		{"it asks for none", imageFacts{}, "", "", "", ""},
		{"pulling", imageFacts{Report: prepull.Report{Wanted: true, Nodes: 3, Present: 1}}, metav1.ConditionFalse, "Pulling", "the images are on 1 of 3 nodes; see DaemonSet pool-prepull", ""},
		{"one fails", imageFacts{Report: prepull.Report{Wanted: true, Nodes: 3, Present: 1, Failed: 1, FailedNode: "n2", Problem: "not found"}},
			metav1.ConditionFalse, v1alpha1.ReasonPullFailed, "the images are on 1 of 3 nodes; failed on n2: not found", "Warning ImagePullFailed"},
		{"two fail", imageFacts{Report: prepull.Report{Wanted: true, Nodes: 3, Present: 1, Failed: 2, FailedNode: "n2", Problem: "not found"}},
			metav1.ConditionFalse, v1alpha1.ReasonPullFailed, "the images are on 1 of 3 nodes; failed on n2 and 1 more: not found", ""},
		{"pulling again", imageFacts{Report: prepull.Report{Wanted: true, Nodes: 3, Present: 2}}, metav1.ConditionFalse, "Pulling", "the images are on 2 of 3 nodes; see DaemonSet pool-prepull", "Normal ImagePullRecovered"},
		{"no DaemonSet", imageFacts{Report: prepull.Report{Wanted: true, Nodes: 1}, failure: "forbidden"},
			metav1.ConditionFalse, v1alpha1.ReasonPullFailed, "the images are on 0 of 1 node: forbidden", "Warning ImagePullFailed"},
		{"all there", imageFacts{Report: prepull.Report{Wanted: true, Nodes: 1, Present: 1}}, metav1.ConditionTrue, "Pulled", "the images are on 1 of 1 node", "Normal ImagePullRecovered"},
		{"no nodes", imageFacts{Report: prepull.Report{Wanted: true}}, metav1.ConditionTrue, "NoNodes", "no node matches the pool's template", ""},
		{"turned off", imageFacts{}, "", "", "", ""},
	} {
		recorder.events = nil
		after := conditionsOf(pool, before, facts{wish: lifecycle.Wish{Desired: 4}, images: c.images}, t0).list
		got := meta.FindStatusCondition(after, v1alpha1.ConditionImagesPulled)
		if c.status == "" {
			require.Nil(t, got, c.name)
		} else {
			require.Equal(t, []any{c.status, c.reason, c.message}, []any{got.Status, got.Reason, got.Message}, c.name)
		}
		events.turned(key, "7", before, after)
		if c.event == "" {
			require.Empty(t, recorder.events, c.name)
		} else {
			require.Len(t, recorder.events, 1, c.name)
			require.Contains(t, recorder.events[0], c.event, c.name)
		}
		before = after
	}
	rolling := facts{wish: lifecycle.Wish{Desired: 4}, counts: counts{outdated: 2}, images: imageFacts{Report: prepull.Report{Wanted: true, Nodes: 3, Present: 1}}}
	require.Equal(t, "replacing idle runners after a template change, on nodes with the images: 1 of 3",
		messageOf(conditionsOf(pool, nil, rolling, t0).list, v1alpha1.ConditionProgressing))
}
