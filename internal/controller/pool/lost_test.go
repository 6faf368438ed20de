package pool

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const foreignFinalizer = "example.com/theirs"

// proofs answers with a verdict, and with a proof for each runner that is asked about as lost.
type proofs struct {
	verdict lifecycle.Verdict
	proof   string
	asked   []lifecycle.RunnerRef
}

func (p *proofs) Ask(_ context.Context, refs []lifecycle.RunnerRef) []lifecycle.Answer {
	p.asked = append(p.asked, refs...)
	answers := make([]lifecycle.Answer, len(refs))
	for i, ref := range refs {
		answers[i].Verdict = p.verdict
		if ref.Lost {
			answers[i].Proof = p.proof
		}
	}
	return answers
}

func (s *shop) finalize(v podView, finalizers ...string) podView {
	s.t.Helper()
	pod := s.get(v.name)
	pod.Finalizers = finalizers
	require.NoError(s.t, s.admin.Update(s.t.Context(), pod))
	s.t.Cleanup(func() {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		require.NoError(s.t, client.IgnoreNotFound(s.admin.Patch(context.Background(), pod, patch)))
	})
	seen := observe(s.get(v.name))
	seen.node = "gone"
	return seen
}

// POOL-7: of a pod whose node is gone our finalizer goes, and no other, and only with all that any removal needs.
func TestRemove_POOL7_OfALostPodOnlyOurFinalizerGoes(t *testing.T) {
	s := newShop(t, interceptor.Funcs{})
	ours, theirs := runnerpod.FinalizerSandbox, foreignFinalizer
	busy := func(v *podView) { v.signs.PollerEnded = true }
	for _, c := range []struct {
		name       string
		finalizers []string
		view       func(*podView)
		fence      proofs
		grant      removal.Grant
		during     func(podView)
		left       []string // finalizers of the pod that is still there
		gone       bool
		err        error
		conflict   bool
	}{
		{name: "ours alone", finalizers: []string{ours}, fence: proofs{verdict: lifecycle.Granted}, grant: removal.Grant{NodeGone: true}, gone: true},
		{name: "none", fence: proofs{verdict: lifecycle.Granted}, grant: removal.Grant{NodeGone: true}, gone: true},
		{name: "a foreign one stays", finalizers: []string{theirs, ours}, fence: proofs{verdict: lifecycle.Granted}, grant: removal.Grant{NodeGone: true}, left: []string{theirs}},
		{name: "the node is there", finalizers: []string{ours}, fence: proofs{verdict: lifecycle.Granted}, left: []string{ours}},
		{name: "EXCL-4 works, and there is no proof", finalizers: []string{ours}, view: busy, fence: proofs{verdict: lifecycle.Granted},
			grant: removal.Grant{NodeGone: true, Lost: true, Proof: "then"}, left: []string{ours}, err: lifecycle.ErrVetoed},
		{name: "works, and its registration is proven gone", finalizers: []string{ours}, view: busy, fence: proofs{verdict: lifecycle.Granted, proof: "now"},
			grant: removal.Grant{NodeGone: true, Lost: true, Proof: "then"}, gone: true},
		{name: "the node came back after the proof", view: busy, fence: proofs{verdict: lifecycle.Granted, proof: "now"},
			grant: removal.Grant{Proof: "then"}, gone: true},
		{name: "EXCL-3 the second question is not answered", finalizers: []string{ours}, fence: proofs{verdict: lifecycle.Unknown},
			grant: removal.Grant{NodeGone: true}, left: []string{ours}, err: lifecycle.ErrNotNow},
		{name: "EXCL-2 changed since it was observed", finalizers: []string{ours, theirs}, fence: proofs{verdict: lifecycle.Granted}, grant: removal.Grant{NodeGone: true},
			during: func(v podView) {
				pod := s.get(v.name)
				pod.Labels[runnerpod.LabelOwner] = "octo"
				require.NoError(t, s.admin.Update(t.Context(), pod))
			}, left: []string{ours, theirs}, conflict: true},
		{name: "it has ended: no question is asked", finalizers: []string{ours}, view: func(v *podView) { v.terminal = true },
			fence: proofs{verdict: lifecycle.Busy}, grant: removal.Grant{NodeGone: true}, gone: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := s.finalize(s.runner(), c.finalizers...)
			if c.view != nil {
				c.view(&v)
			}
			if c.during != nil {
				c.during(v)
			}
			c.grant.UID = v.uid
			remover := &removal.Remover{Client: s.client, Fence: &c.fence}
			_, err := remover.Remove(t.Context(), v.pod(true), c.grant)
			if c.conflict {
				require.True(t, apierrors.IsConflict(err), "%v", err)
			} else {
				require.ErrorIs(t, err, c.err)
			}
			for _, ref := range c.fence.asked {
				require.Equal(t, c.grant.Lost || c.grant.Proof != "", ref.Lost)
			}
			if c.gone {
				require.False(t, s.exists(&corev1.Pod{}, v.name))
				return
			}
			pod := s.get(v.name)
			require.Equal(t, c.left, pod.Finalizers)
			require.Equal(t, c.err != nil || c.conflict, pod.DeletionTimestamp == nil)
		})
	}
}

// lostPool is a pool with one runner on a node that the watch has shown no more since t0.
type lostPool struct {
	t       *testing.T
	tracker *tracker
	*poolState
}

func newLostPool(t *testing.T, change ...func(*corev1.Pod)) *lostPool {
	tr := newTracker()
	tr.nodes.put(readyNode("other"))
	tr.nodes.put(readyNode("n1"))
	tr.nodes.setSynced()
	s := tr.pool(key)
	s.podSeen(named("pool-a", append(change, onNode("n1"))...), t0)
	tr.nodeChanged(tr.nodes.drop("n1"), t0)
	return &lostPool{t, tr, s}
}

func (p *lostPool) absent(at time.Time) {
	p.tracker.nodeChanged(p.tracker.nodes.found("n1", false, at), at)
}

// ask makes the plan's questions, and answers them.
func (p *lostPool) ask(answer lifecycle.Answer, at time.Time) []lifecycle.RunnerRef {
	p.t.Helper()
	var refs []lifecycle.RunnerRef
	var answers []lifecycle.Answer
	p.plan(wishFor(1), counter(), 0, at)
	asks := p.questions.take()
	for _, a := range asks {
		refs, answers = append(refs, a.Runner.Ref("ns", "pool")), append(answers, answer)
		require.Equal(p.t, lifecycle.ReasonLost, a.Reason)
	}
	p.recordAnswers(asks, answers, at)
	p.questions.done()
	return refs
}

func (p *lostPool) removes(at time.Time) []string { return p.plan(wishFor(1), counter(), 0, at).remove }

func TestLost_POOL7_WhoShowsNoWorkGoesWithTheNode(t *testing.T) {
	p := newLostPool(t)
	granted := lifecycle.Answer{Verdict: lifecycle.Granted}
	require.Empty(t, p.ask(granted, t0.Add(time.Hour)), "that the watch shows no node proves nothing")
	p.absent(t0)
	require.Empty(t, p.ask(granted, t0.Add(vanishedAfter-1)), "NODE-8: an agent registers its node again")
	require.Equal(t, t0.Add(vanishedAfter), p.plan(wishFor(1), counter(), 0, t0).plan.Next, "and somebody looks then")
	refs := p.ask(granted, t0.Add(vanishedAfter))
	require.Len(t, refs, 1)
	require.False(t, refs[0].Lost, "GitHub is not bothered yet: the row alone says who owns it")
	require.Equal(t, []string{"pool-a"}, p.removes(t0.Add(vanishedAfter)))
	m, _ := p.copyOf("pool-a")
	require.True(t, m.undeleted(t0.Add(vanishedAfter)))
}

func TestLost_POOL7_WhoShowsWorkIsAskedAboutAfterAMinuteAndGoesByProofAlone(t *testing.T) {
	p := newLostPool(t, pollerEnded)
	p.absent(t0)
	at := t0.Add(lostAfter)
	busy, granted := lifecycle.Answer{Verdict: lifecycle.Busy}, lifecycle.Answer{Verdict: lifecycle.Granted}
	require.Empty(t, p.ask(granted, at.Add(-1)))
	refs := p.ask(busy, at)
	require.Len(t, refs, 1)
	require.True(t, refs[0].Lost)
	require.Empty(t, p.ask(busy, at.Add(pace.Busy-1)), "not without a pause")

	at = at.Add(pace.Busy)
	require.Len(t, p.ask(granted, at), 1)
	require.Empty(t, p.removes(at), "EXCL-4: a grant without a proof does not outweigh a sign of work")
	require.Empty(t, p.ask(granted, at.Add(pace.Pending-1)))
	at = at.Add(pace.Pending)
	require.Len(t, p.ask(lifecycle.Answer{Verdict: lifecycle.Granted, Proof: "GitHub said so"}, at), 1, "and it is asked for again")
	require.Equal(t, []string{"pool-a"}, p.removes(at))

	p.tracker.change(readyNode("n1"), at)
	require.Equal(t, 1, p.counts("hash").of[lifecycle.StageTerminating], "what was granted with a proof goes also if the node comes back")
	p.change("pool-a", at, func(m *member) { m.queued = false })
	require.Equal(t, []string{"pool-a"}, p.removes(at))
}

func TestLost_NODE8_ANodeThatComesBackStopsWhatWasNotGranted(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){"idle": func(*corev1.Pod) {}, "busy": pollerEnded} {
		t.Run(name, func(t *testing.T) {
			p := newLostPool(t, change)
			p.absent(t0)
			at := t0.Add(lostAfter)
			require.Len(t, p.ask(lifecycle.Answer{Detail: "nobody knows"}, at), 1)
			require.Equal(t, 1, p.counts("hash").of[lifecycle.StageLost])
			p.tracker.change(readyNode("n1"), at)
			p.plan(wishFor(1), counter(), 0, at)
			require.Equal(t, 1, p.counts("hash").of[lifecycle.StageIdle]+p.counts("hash").of[lifecycle.StageBusy])
			require.Empty(t, p.ask(lifecycle.Answer{}, at.Add(time.Hour)))

			p.tracker.nodeChanged(p.tracker.nodes.drop("n1"), at)
			p.absent(at)
			require.Empty(t, p.ask(lifecycle.Answer{}, at.Add(vanishedAfter-1)), "the clock begins anew")
		})
	}
}

// A deleted pod on a node that is gone waits for a kubelet that will never confirm the deletion.
func TestLost_POOL7_APodThatIsBeingDeletedIsLetGoToo(t *testing.T) {
	for name, pool := range map[string]*lostPool{
		"by a person": newLostPool(t, func(p *corev1.Pod) {
			p.DeletionTimestamp = &metav1.Time{Time: t0.Add(time.Hour)}
		}),
		"busy, by Kubernetes": newLostPool(t, pollerEnded, takenByPodGC, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: t0} }),
	} {
		t.Run(name, func(t *testing.T) {
			pool.absent(t0)
			at := t0.Add(lostAfter)
			require.Len(t, pool.ask(lifecycle.Answer{Verdict: lifecycle.Granted, Proof: "GitHub said so"}, at), 1)
			require.Equal(t, []string{"pool-a"}, pool.removes(at))
			m, _ := pool.copyOf("pool-a")
			require.True(t, m.undeleted(at))
			pool.change("pool-a", at, func(m *member) { m.leave.Deleted, m.forced, m.queued = true, true, false })
			m, _ = pool.copyOf("pool-a")
			require.False(t, m.undeleted(at))
			require.Empty(t, pool.removes(at), "what holds it now is not ours")
			require.Empty(t, pool.ask(lifecycle.Answer{}, at.Add(time.Hour)))
		})
	}
}

// A pool that is being deleted, or that is paused, has its lost runners removed as well.
func TestLost_POOL7_OfATerminatingPool(t *testing.T) {
	p := newLostPool(t, pollerEnded)
	p.absent(t0)
	wish := wishFor(0)
	wish.Terminating = true
	w := p.plan(wish, counter(), 0, t0.Add(lostAfter))
	require.True(t, w.ask)
	require.Equal(t, lifecycle.ReasonLost, w.plan.Ask[0].Reason)
}

// reads is a reader of nodes that answers as a test says.
type reads struct {
	client.Reader
	err   error
	nodes int
}

func (r *reads) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if _, node := object.(*corev1.Node); node {
		r.nodes++
		return r.err
	}
	return r.Reader.Get(ctx, key, object, options...)
}

var notFound = apierrors.NewNotFound(corev1.Resource("nodes"), "n1")

// POOL-7: only an uncached read that clearly says so makes a node absent.
func TestLookForNode_POOL7_DoubtDoesNothing(t *testing.T) {
	forbidden := apierrors.NewForbidden(corev1.Resource("nodes"), "n1", errors.New("no"))
	for name, c := range map[string]struct {
		prepare func(*nodeBook)
		err     error
		absent  bool
		fails   bool
		reads   int
	}{
		"it does not exist":         {err: notFound, absent: true, reads: 1},
		"it exists; the watch lags": {reads: 1},
		"the API server is slow":    {err: context.DeadlineExceeded, fails: true, reads: 1},
		"nodes may not be read":     {err: forbidden, fails: true, reads: 1},
		"an empty list":             {prepare: func(b *nodeBook) { b.drop("other") }, err: notFound},
		"the watch has just begun":  {prepare: func(b *nodeBook) { b.synced = false }, err: notFound},
		"nothing runs there":        {prepare: func(b *nodeBook) { b.move(runnerKey{key, "pool-a"}, "n1", "") }, err: notFound},
		"the watch shows it":        {prepare: func(b *nodeBook) { b.put(readyNode("n1")) }, err: notFound},
		"a pod that waits for a node": {prepare: func(b *nodeBook) {
			b.move(runnerKey{key, "pool-a"}, "n1", "")
			b.move(runnerKey{key, "pool-a"}, "", "")
		}, err: notFound},
	} {
		t.Run(name, func(t *testing.T) {
			p := newLostPool(t)
			if c.prepare != nil {
				c.prepare(p.tracker.nodes)
			}
			reader := &reads{err: c.err}
			q := &removals{tracker: p.tracker, reader: reader, now: func() time.Time { return t0 }, wake: func(context.Context, types.NamespacedName) {}}
			again, err := q.lookForNode(t.Context(), "n1")
			require.Equal(t, c.fails, err != nil, "%v", err)
			require.Equal(t, c.reads, reader.nodes)
			require.Equal(t, c.absent, !p.tracker.nodes.look("n1", nil).absent.IsZero())
			require.Equal(t, c.reads > 0 && !c.fails || name == "an empty list" || name == "the watch has just begun", again > 0, "looked for again as long as it matters")
		})
	}
}

// POOL-7: to ask makes the server act at GitHub, and a deletion without a kubelet's word cannot be taken back: the node is
// looked for once more before each.
func TestLost_POOL7_TheNodeIsLookedForRightBefore(t *testing.T) {
	run := func(t *testing.T, err error) (*removals, *poolState, *proofs, *reads) {
		s := newShop(t, interceptor.Funcs{})
		fence, reader := &proofs{verdict: lifecycle.Granted, proof: "GitHub said so"}, &reads{Reader: s.admin, err: err}
		s.tracker.nodes.put(readyNode("other"))
		s.tracker.nodes.setSynced()
		s.removals.reader, s.removals.remover.Fence = reader, fence
		s.removals.now = func() time.Time { return t0 }
		s.removals.wake = func(context.Context, types.NamespacedName) {}
		v := s.runner()
		v.node, v.signs.PollerEnded = "n1", true
		s.state.podSeen(v, t0)
		s.tracker.nodeChanged(s.tracker.nodes.found("n1", false, t0.Add(-lostAfter)), t0)
		require.True(t, s.state.plan(wishFor(1), counter(), 0, t0).ask)
		return s.removals, s.state, fence, reader
	}
	for name, c := range map[string]error{"it is back": nil, "nobody knows": context.DeadlineExceeded} {
		t.Run("before asking: "+name, func(t *testing.T) {
			q, state, fence, _ := run(t, c)
			q.askFence(t.Context(), state)
			require.Empty(t, fence.asked)
		})
		t.Run("before deleting: "+name, func(t *testing.T) {
			q, state, fence, reader := run(t, notFound)
			q.askFence(t.Context(), state)
			require.Len(t, fence.asked, 1)
			require.True(t, fence.asked[0].Lost)
			removed := state.plan(wishFor(1), counter(), 0, t0).remove
			require.Len(t, removed, 1)
			reader.err = c
			_, err := q.step(t.Context(), state, removed[0])
			require.Equal(t, c != nil, err != nil)
			require.Len(t, fence.asked, 1)
			m, exists := state.copyOf(removed[0])
			require.True(t, exists && !m.leave.Deleted)
		})
	}
	t.Run("gone for good", func(t *testing.T) {
		q, state, fence, _ := run(t, notFound)
		q.askFence(t.Context(), state)
		removed := state.plan(wishFor(1), counter(), 0, t0).remove
		require.Len(t, removed, 1)
		_, err := q.step(t.Context(), state, removed[0])
		require.NoError(t, err)
		require.Len(t, fence.asked, 2, "EXCL-2: asked again right before")
		m, _ := state.copyOf(removed[0])
		require.True(t, m.forced)
	})
}

// RECV-5: no proof frees a lost runner that shows work and that the server has retired. An Event says so, and what an administrator can do;
// it does not call this a removal.
func TestLost_RECV5_AGrantThatRemovesNothingIsTold(t *testing.T) {
	p := newLostPool(t, pollerEnded)
	p.refer(&v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool", UID: "pool"}})
	m, err := newMetrics(prometheus.NewRegistry(), p.tracker)
	require.NoError(t, err)
	recorder := events.NewFakeRecorder(10)
	at, fence := t0.Add(lostAfter), &proofs{verdict: lifecycle.Granted}
	q := &removals{
		tracker: p.tracker, remover: &removal.Remover{Fence: fence}, reader: &reads{err: notFound}, metrics: m,
		events: &eventWriter{recorder: recorder, object: func(types.NamespacedName) runtime.Object { return p.reference() }},
		now:    func() time.Time { return at }, wake: func(context.Context, types.NamespacedName) {},
	}
	p.absent(t0)
	require.True(t, p.plan(wishFor(1), counter(), 0, at).ask)
	q.askFence(t.Context(), p.poolState)
	require.Len(t, fence.asked, 1)
	require.Empty(t, p.removes(at))
	require.Equal(t, 1, p.counts("hash").unsure)
	require.Contains(t, p.counts("hash").blocked, runnerpod.AnnotationAllowDeletion)
	require.Contains(t, await.Receive(t, recorder.Events, "an Event is recorded"), reasonFenceUnknown)

	fence.proof, at = "GitHub said so", at.Add(time.Minute)
	require.True(t, p.plan(wishFor(1), counter(), 0, at).ask)
	q.askFence(t.Context(), p.poolState)
	require.Equal(t, []string{"pool-a"}, p.removes(at))
	require.Zero(t, p.counts("hash").unsure)
	require.Contains(t, await.Receive(t, recorder.Events, "an Event is recorded"), "Removing pool-a")
}

// EXCL-7: the annotation that allows a pod's deletion is removed again when the pod turns out to be busy, by the deletion that failed or by
// a controller that knows of none. An administrator's reason stays.
func TestLost_EXCL7_APodThatIsBusyAfterAllIsProtectedAgain(t *testing.T) {
	s := newShop(t, interceptor.Funcs{Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
		return errors.New("no connection")
	}})
	fence := &proofs{verdict: lifecycle.Granted, proof: "GitHub said so"}
	s.removals.remover.Fence = fence
	s.removals.wake = func(context.Context, types.NamespacedName) {}
	s.removals.now = func() time.Time { return t0 }
	reason := func(name string) string { return s.get(name).Annotations[runnerpod.AnnotationAllowDeletion] }
	v := s.runner(pollerEnded)
	s.state.podSeen(v, t0)
	over := map[string]string{v.uid: "its job has ended"}
	look := func() { s.state.podSeen(observe(s.get(v.name)), t0) }
	grant := func() {
		fence.verdict = lifecycle.Granted
		s.state.condemn(over, t0)
		require.True(t, s.state.plan(wishFor(0), counter(), 0, t0).ask)
		s.removals.askFence(t.Context(), s.state)
		require.Equal(t, []string{v.name}, s.state.plan(wishFor(0), counter(), 0, t0).remove)
		_, err := s.removals.step(t.Context(), s.state, v.name)
		require.ErrorContains(t, err, "no connection")
		require.Contains(t, reason(v.name), "GitHub said so")
		look()
	}
	grant()
	fence.verdict = lifecycle.Busy
	_, err := s.removals.step(t.Context(), s.state, v.name)
	require.NoError(t, err)
	require.Empty(t, reason(v.name), "the deletion was tried again")

	restart := func(pool string) { // what a controller knows that was just started
		s.state = s.tracker.pool(types.NamespacedName{Namespace: s.pool.Namespace, Name: pool})
		look()
	}
	restart("second")
	grant()
	restart("third")
	s.state.condemn(over, t0)
	require.True(t, s.state.plan(wishFor(0), counter(), 0, t0).ask)
	fence.verdict = lifecycle.Busy
	s.removals.askFence(t.Context(), s.state)
	require.Empty(t, reason(v.name), "and by one that knows of no proof")

	pod := s.get(v.name)
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, runnerpod.AnnotationAllowDeletion, "I know what I do")
	require.NoError(t, s.admin.Update(t.Context(), pod))
	restart("fourth")
	s.state.condemn(over, t0)
	require.True(t, s.state.plan(wishFor(0), counter(), 0, t0).ask)
	s.removals.askFence(t.Context(), s.state)
	require.Equal(t, "I know what I do", reason(v.name))
}
