package pool

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

var key = types.NamespacedName{Namespace: "ns", Name: "pool"}

func counter() func() string {
	n := 0
	return func() string { n++; return fmt.Sprintf("pool-%08d", n) }
}

func named(name string, change ...func(*corev1.Pod)) podView {
	pod := idlePod(change...)
	pod.Name, pod.UID = name, types.UID("uid-"+name)
	return observe(pod)
}

func wishFor(n int) lifecycle.Wish { return lifecycle.Wish{Desired: n, TemplateHash: "hash"} }

// However far the cache lags behind our own creations, nothing is created twice.
func TestPlan_OwnCreationsCountBeforeTheyAreObserved(t *testing.T) {
	s, names := newTracker().pool(key), counter()
	w := s.plan(wishFor(3), names, 10, t0)
	require.Len(t, w.create, 3)
	for i, name := range w.create {
		result := []outcome{created, uncertain, refused}[i]
		uid := map[outcome]string{created: "uid-" + name}[result]
		require.Equal(t, result == refused, s.createAnswered(name, uid, result, t0))
	}
	s.createsDone(fmt.Errorf("two failed"), t0)
	again := s.plan(wishFor(3), names, 10, t0)
	require.Empty(t, again.create, "held after a failure")
	later := t0.Add(2 * time.Second)
	again = s.plan(wishFor(3), names, 10, later)
	require.ElementsMatch(t, []string{w.create[1], "pool-00000004"}, again.create, "the uncertain one under its own name, the refused one under a new one")
	for _, name := range again.create {
		s.createAnswered(name, "uid-"+name, created, later)
		s.podSeen(named(name), later)
	}
	require.Empty(t, s.plan(wishFor(3), names, 10, later).create)
	due := s.plan(wishFor(3), names, 10, t0.Add(observeWithin))
	require.Equal(t, w.create[:1], due.remove, "what the cache should have shown is looked for past it")
}

// An uncached read, made after a conflict, may be overtaken by the watch. The watch's last state takes precedence: after a pod has ended no
// further event ever comes.
func TestPodRead_POOL4_AnOlderLookUndoesNothing(t *testing.T) {
	version := func(v string) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.ResourceVersion = v } }
	ended := func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }
	s, names := newTracker().pool(key), counter()
	s.podSeen(named("pool-a", version("99")), t0)
	s.podSeen(named("pool-a", version("101"), ended), t0)
	s.podRead(named("pool-a", version("100")), t0)
	require.Equal(t, []string{"pool-a"}, s.plan(wishFor(0), names, 10, t0).remove, "it has ended, and is removed")

	s = newTracker().pool(key)
	s.podSeen(named("pool-a", version("101"), ended), t0)
	fresh := named("pool-a", version("100"))
	fresh.uid = "another"
	s.podRead(fresh, t0)
	require.Empty(t, s.plan(wishFor(1), names, 10, t0).remove, "another pod of the name is another pod, whatever its version")

	s.podSeen(named("pool-a", version("5")), t0)
	require.Empty(t, s.plan(wishFor(1), names, 10, t0).remove, "the watch takes precedence, also after a control plane was restored")
}

func TestPlan_BurstIsBounded(t *testing.T) {
	s := newTracker().pool(key)
	w := s.plan(wishFor(10), counter(), 4, t0)
	require.Len(t, w.create, 4)
	require.True(t, w.more)
}

func TestAnswered_EXCL3_UnknownIsAskedAgainLessAndLessOften(t *testing.T) {
	s, names := newTracker().pool(key), counter()
	s.podSeen(named("pool-a"), t0)
	now := t0
	var waits []time.Duration
	for range 4 {
		w := s.plan(wishFor(0), names, 10, now)
		require.True(t, w.ask)
		asks := s.questions.take()
		require.Len(t, asks, 1)
		require.False(t, s.plan(wishFor(0), names, 10, now).ask, "one question at a time")
		s.recordAnswers(asks, []lifecycle.Answer{{Verdict: lifecycle.Unknown, Detail: "no database"}}, now)
		s.questions.done()
		w = s.plan(wishFor(0), names, 10, now)
		require.False(t, w.ask)
		require.Empty(t, w.remove, "EXCL-3")
		waits = append(waits, w.plan.Next.Sub(now))
		now = w.plan.Next
	}
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}, waits)
	require.Equal(t, "no database", s.counts("hash").blocked)

	s.plan(wishFor(1), names, 10, now) // demand returns: withdrawn
	require.Equal(t, 1, s.counts("hash").of[lifecycle.StageIdle])
	require.Empty(t, s.counts("hash").blocked)
}

// Answers about other runners do not make an unknown runner more urgent: each question about it costs requests to GitHub. Nor do they hide
// it.
func TestAnswered_EXCL3_OthersThatAreKnownDoNotHurryTheUnknown(t *testing.T) {
	s, names := newTracker().pool(key), counter()
	s.podSeen(named("pool-a"), t0)
	now := t0
	var waits []time.Duration
	for i := range 4 {
		s.podSeen(named(fmt.Sprintf("pool-b-%d", i)), now)
		require.True(t, s.plan(wishFor(0), names, 10, now).ask)
		asks := s.questions.take()
		require.Len(t, asks, 2)
		answers := make([]lifecycle.Answer, len(asks))
		for k, a := range asks {
			if answers[k] = (lifecycle.Answer{Verdict: lifecycle.Granted}); a.Runner.Name == "pool-a" {
				answers[k] = lifecycle.Answer{Detail: "no word from GitHub"}
			}
		}
		s.recordAnswers(asks, answers, now)
		s.questions.done()
		waits = append(waits, s.plan(wishFor(0), names, 10, now).plan.Next.Sub(now))
		s.podSeen(named(fmt.Sprintf("pool-c-%d", i)), now)
		require.True(t, s.plan(wishFor(0), names, 10, now).ask)
		asks = s.questions.take()
		require.Len(t, asks, 1)
		s.recordAnswers(asks, []lifecycle.Answer{{Verdict: lifecycle.Granted}}, now)
		s.questions.done()
		require.Equal(t, "no word from GitHub", s.counts("hash").blocked)
		require.Equal(t, 1, s.counts("hash").unsure)
		now = now.Add(waits[i])
	}
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}, waits)
}

func TestAnswered_BusyHoldsForAWhile(t *testing.T) {
	s, names := newTracker().pool(key), counter()
	s.podSeen(named("pool-a"), t0)
	require.True(t, s.plan(wishFor(0), names, 10, t0).ask)
	s.recordAnswers(s.questions.take(), []lifecycle.Answer{{Verdict: lifecycle.Busy}}, t0)
	s.questions.done()
	w := s.plan(wishFor(0), names, 10, t0)
	require.False(t, w.ask)
	require.Equal(t, t0.Add(pace.Busy), w.plan.Next)
	require.Equal(t, 1, s.counts("hash").of[lifecycle.StageBusy])
	require.True(t, s.plan(wishFor(0), names, 10, t0.Add(pace.Busy)).ask, "and is asked again")
}

func TestAnswered_EXCL4_AGrantDoesNotOutweighASignOfWork(t *testing.T) {
	s, names := newTracker().pool(key), counter()
	s.podSeen(named("pool-a"), t0)
	require.True(t, s.plan(wishFor(0), names, 10, t0).ask)
	asks := s.questions.take()
	s.podSeen(named("pool-a", func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = ended(0) }), t0)
	s.recordAnswers(asks, []lifecycle.Answer{{Verdict: lifecycle.Granted}}, t0)
	require.Empty(t, s.plan(wishFor(0), names, 10, t0).remove)
	require.Equal(t, 1, s.counts("hash").of[lifecycle.StageBusy])
}

// A grant is for one UID: the answer about an earlier pod of that name says nothing.
func TestAnswered_EXCL2_AGrantIsForOneUID(t *testing.T) {
	s, names := newTracker().pool(key), counter()
	s.podSeen(named("pool-a"), t0)
	require.True(t, s.plan(wishFor(0), names, 10, t0).ask)
	asks := s.questions.take()
	v := named("pool-a")
	v.uid = "another"
	s.podSeen(v, t0)
	s.recordAnswers(asks, []lifecycle.Answer{{Verdict: lifecycle.Granted}}, t0)
	require.Empty(t, s.plan(wishFor(0), names, 10, t0).remove)
}

func TestPodSeen_StartsThatFailSlowThePoolDown(t *testing.T) {
	s, names := newTracker().pool(key), counter()
	fail := func(now time.Time) time.Duration {
		name := s.plan(wishFor(1), names, 10, now).create[0]
		s.createAnswered(name, "uid-"+name, created, now)
		pending := named(name, notReady(time.Time{}))
		pending.running = false
		s.podSeen(pending, now)
		s.podSeen(named(name, func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodFailed
			p.Status.ContainerStatuses[0].State = ended(1)
		}), now)
		s.podGone(name, "uid-"+name, now)
		return s.holdUntil.Sub(now)
	}
	now := t0
	for range 3 {
		require.LessOrEqual(t, fail(now), time.Duration(0), "a few are free")
	}
	require.Equal(t, time.Second, fail(now))
	require.Empty(t, s.plan(wishFor(1), names, 10, now).create)
	now = now.Add(time.Second)
	require.Equal(t, 2*time.Second, fail(now))
	s.podSeen(named("pool-good"), now)
	require.Zero(t, s.failedPods, "one that starts ends it")
}

func TestForget_KeepsAPoolOfWhichSomethingIsLeft(t *testing.T) {
	tr := newTracker()
	tr.pool(key).podSeen(named("pool-a"), t0)
	tr.forget(key)
	require.False(t, tr.pool(key).empty())
	tr.pool(key).change("pool-a", t0, func(m *member) { m.reported = true })
	tr.pool(key).podGone("pool-a", "uid-pool-a", t0)
	tr.forget(key)
	require.Empty(t, tr.pools)
}

// P9: what one pod's event costs does not grow with its pool.
func BenchmarkPodEvent(b *testing.B) {
	for _, size := range []int{50, 5000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s, names := newTracker().pool(key), counter()
			for i := range size {
				s.podSeen(named(fmt.Sprintf("pool-x%06d", i), func(p *corev1.Pod) {
					p.CreationTimestamp = metav1.NewTime(t0.Add(time.Duration(i) * time.Second))
				}), t0)
			}
			wish := wishFor(size)
			wish.StartTimeout = time.Minute
			pod := idlePod()
			pod.Name, pod.UID, pod.CreationTimestamp = fmt.Sprintf("pool-x%06d", size/2), types.UID(fmt.Sprintf("uid-pool-x%06d", size/2)), metav1.NewTime(t0.Add(time.Duration(size/2)*time.Second))
			busy := pod.DeepCopy()
			busy.Status.ContainerStatuses[0].State = ended(0)
			for b.Loop() {
				s.podSeen(observe(busy), t0)
				s.plan(wish, names, 10, t0)
				s.podSeen(observe(pod), t0)
				if w := s.plan(wish, names, 10, t0); len(w.create)+len(w.remove) != 0 {
					b.Fatal("it acts")
				}
			}
		})
	}
}
