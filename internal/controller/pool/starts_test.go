package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

func TestAdmitStarts(t *testing.T) {
	on := func(counts ...any) map[string]int {
		placed := map[string]int{}
		for i := 0; i < len(counts); i += 2 {
			placed[counts[i].(string)] = counts[i+1].(int)
		}
		return placed
	}
	n1, n2 := []string{"n1"}, []string{"n1", "n2"}
	for _, c := range []struct {
		name   string
		usable []string
		pools  []startingPool
		want   map[string]int
		terms  map[string]startTerm
	}{
		{"nobody sets a limit", n2, []startingPool{{name: "a", wanted: 9}}, nil, nil},
		{"so many for each node", n2, []startingPool{{name: "a", limit: 3, wanted: 9}},
			map[string]int{"a": 6}, map[string]startTerm{"a": termFleetCeiling}},
		{"all that it wants", n2, []startingPool{{name: "a", limit: 3, wanted: 5}}, map[string]int{"a": 5}, nil},
		{"the lowest limit counts, and for those without one as well", n2,
			[]startingPool{{name: "a", limit: 5, wanted: 9}, {name: "b", limit: 2}, {name: "c", wanted: 0}},
			map[string]int{"a": 4, "b": 0, "c": 0}, map[string]startTerm{"a": termFleetCeiling}},
		{"those that are starting take up room", n2, []startingPool{{name: "a", limit: 3, wanted: 9, placed: on("n1", 1, "n2", 2)}},
			map[string]int{"a": 3}, map[string]startTerm{"a": termFleetCeiling}},
		{"a node on which starts hang takes up its own share only", n2, []startingPool{{name: "a", limit: 3, wanted: 9, placed: on("n1", 50)}},
			map[string]int{"a": 3}, map[string]startTerm{"a": termFleetCeiling}},
		{"and one that is not usable none", n2, []startingPool{{name: "a", limit: 3, wanted: 9, placed: on("bad", 50)}},
			map[string]int{"a": 6}, map[string]startTerm{"a": termFleetCeiling}},
		{"those that wait for a node may come to any", n2, []startingPool{{name: "a", limit: 3, wanted: 9, unplaced: 5}},
			map[string]int{"a": 1}, map[string]startTerm{"a": termFleetCeiling}},
		{"a burst that nothing has placed", n2, []startingPool{{name: "a", limit: 3, wanted: 9, unplaced: 6}},
			map[string]int{"a": 0}, map[string]startTerm{"a": termPlacementBurst}},
		{"full", n1, []startingPool{{name: "a", limit: 2, wanted: 1, placed: on("n1", 2)}},
			map[string]int{"a": 0}, map[string]startTerm{"a": termFleetCeiling}},
		{"no usable node counts as one, so that a pending pod shows the shortage", nil, []startingPool{{name: "a", limit: 2, wanted: 9}},
			map[string]int{"a": 2}, map[string]startTerm{"a": termNoUsableNode}},
		{"and then is full as well", nil, []startingPool{{name: "a", limit: 2, wanted: 9, unplaced: 2}},
			map[string]int{"a": 0}, map[string]startTerm{"a": termNoUsableNode}},
		{"a pool with none starting may start one, whatever others do", n1,
			[]startingPool{{name: "hog", limit: 2, wanted: 9, placed: on("n1", 2), unplaced: 7}, {name: "poor", wanted: 3}},
			map[string]int{"hog": 0, "poor": 1}, map[string]startTerm{"hog": termFleetCeiling, "poor": termFleetCeiling}},
		{"and that one is taken from the others", n1,
			[]startingPool{{name: "hog", limit: 3, wanted: 9, placed: on("n1", 1)}, {name: "poor", wanted: 1}},
			map[string]int{"hog": 1, "poor": 1}, map[string]startTerm{"hog": termPoolShare}},
		{"one that wants nothing is owed nothing", n1, []startingPool{{name: "a", limit: 2, wanted: 9}, {name: "b"}},
			map[string]int{"a": 2, "b": 0}, map[string]startTerm{"a": termFleetCeiling}},
		{"names order ties", n1, []startingPool{{name: "b", limit: 3, wanted: 9}, {name: "a", wanted: 9}},
			map[string]int{"a": 2, "b": 1}, map[string]startTerm{"a": termPoolShare, "b": termPoolShare}},
		{"a hog that was reaped does not take it all again", n2,
			[]startingPool{{name: "hog", limit: 2, wanted: 9}, {name: "poor", wanted: 9, placed: on("n1", 1)}},
			map[string]int{"hog": 2, "poor": 1}, map[string]startTerm{"hog": termPoolShare, "poor": termPoolShare}},
	} {
		shares, limited := admitStarts(c.usable, c.pools)
		require.Equal(t, c.want != nil, limited, c.name)
		if !limited {
			continue
		}
		got, terms := map[string]int{}, map[string]startTerm{}
		for name, share := range shares {
			got[name] = share.allowed
			if share.term != "" {
				terms[name] = share.term
				require.NotEmpty(t, share.detail, c.name)
			}
		}
		require.Equal(t, c.want, got, c.name)
		if c.terms == nil {
			c.terms = map[string]startTerm{}
		}
		require.Equal(t, c.terms, terms, c.name)
	}
}

// For any fleet: no pool gets more than it wants, no pool starves, no more runners are started than the nodes have room for except the one
// that each starving pool is due, and no capacity that a pool wants stays unused.
func TestAdmitStarts_Properties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := func(what string, most int) int { return rapid.IntRange(0, most).Draw(t, what) }
		var usable []string
		for i := range number("nodes", 4) {
			usable = append(usable, fmt.Sprintf("n%d", i))
		}
		var pools []startingPool
		perNode := 0
		for i := range 1 + number("pools", 4) {
			p := startingPool{name: fmt.Sprintf("p%d", i), limit: number("limit", 4), wanted: number("wanted", 12), unplaced: number("unplaced", 3), placed: map[string]int{}}
			for k := range 5 {
				if n := number("placed", 3); n > 0 {
					p.placed[fmt.Sprintf("n%d", k)] = n
				}
			}
			if p.limit > 0 && (perNode == 0 || p.limit < perNode) {
				perNode = p.limit
			}
			pools = append(pools, p)
		}
		shares, limited := admitStarts(usable, pools)
		require.Equal(t, perNode > 0, limited)
		if !limited {
			return
		}
		room, allowed, owed, wanted := 0, 0, 0, 0
		for _, node := range usable {
			free := perNode
			for _, p := range pools {
				free -= p.placed[node]
			}
			room += max(0, free)
		}
		if len(usable) == 0 {
			room = perNode
		}
		for _, p := range pools {
			share := shares[p.name]
			room -= p.unplaced
			require.GreaterOrEqual(t, share.allowed, 0)
			require.LessOrEqual(t, share.allowed, p.wanted)
			require.Equal(t, share.allowed < p.wanted, share.term != "", "what is held back is explained, and nothing else")
			if p.wanted > 0 && p.starting() == 0 {
				owed++
				require.Positive(t, share.allowed, "no pool starves")
			}
			allowed += share.allowed
			wanted += p.wanted
		}
		require.LessOrEqual(t, allowed, max(room, owed))
		require.GreaterOrEqual(t, allowed, min(wanted, room), "no wanted capacity is unused")
		slices.Reverse(pools)
		again, _ := admitStarts(usable, pools)
		require.Equal(t, shares, again, "the same fleet, the same answer")
	})
}

func TestStartBook_CountsWithEachChangeOfARunner(t *testing.T) {
	tr := newTracker()
	s := tr.pool(key)
	counts := func() (int, map[string]int) {
		p := tr.starts.of(key)
		return p.unplaced, p.placed
	}
	booting := func(name, node string) podView {
		return named(name, func(p *corev1.Pod) {
			p.Spec.NodeName, p.Status.ContainerStatuses = node, nil
		})
	}
	w := s.plan(wishFor(2), counter(), 10, t0)
	require.Len(t, w.create, 2)
	unplaced, placed := counts()
	require.Equal(t, 2, unplaced, "what is being created counts already")
	require.Empty(t, placed)
	for _, name := range w.create {
		s.createAnswered(name, "uid-"+name, created, t0)
		s.podSeen(booting(name, ""), t0)
	}
	unplaced, _ = counts()
	require.Equal(t, 2, unplaced)
	require.Nil(t, tr.starts.waiting())

	s.podSeen(booting(w.create[0], "n1"), t0)
	unplaced, placed = counts()
	require.Equal(t, 1, unplaced)
	require.Equal(t, map[string]int{"n1": 1}, placed)
	tr.starts.record(key, 3, true)
	require.Equal(t, []types.NamespacedName{key}, tr.starts.waiting(), "one that was held back looks again")
	require.Nil(t, tr.starts.waiting(), "once")

	s.podSeen(named(w.create[0], func(p *corev1.Pod) { p.Spec.NodeName = "n1" }), t0)
	s.podGone(w.create[1], "uid-"+w.create[1], t0)
	unplaced, placed = counts()
	require.Zero(t, unplaced)
	require.Empty(t, placed, "a runner that has started, and one that is gone, start no more")

	s.podSeen(booting("pool-x", "n2"), t0)
	another := booting("pool-x", "n3")
	another.uid = "another"
	s.podSeen(another, t0)
	_, placed = counts()
	require.Equal(t, map[string]int{"n3": 1}, placed, "another pod of that name counts in the place of the first")
}

func limitedPool(name string, limit int32) *v1alpha1.RunnerPool {
	pool := &v1alpha1.RunnerPool{}
	pool.Namespace, pool.Name = "ns", name
	pool.Spec.Template.Image = "runner:1"
	if limit > 0 {
		pool.Spec.Provisioning.MaxConcurrentStarts = ptr.To(limit)
	}
	return pool
}

// Two pools that share nodes share the starts on them, also when they plan at the same time.
func TestPlan_StartsAreLimitedForTheWholeFleet(t *testing.T) {
	r := &Reconciler{options: Options{Burst: 100, NewSuffix: counter(), Now: func() time.Time { return t0 }}, tracker: newTracker()}
	r.options.Pod.DispatchURL, r.options.Pod.AgentImage = "http://server", "agent:1"
	pass := func(pool *v1alpha1.RunnerPool, wanted int) work {
		state := r.tracker.pool(types.NamespacedName{Namespace: pool.Namespace, Name: pool.Name})
		todo, err := r.plan(t.Context(), pool, state, wishFor(wanted))
		require.NoError(t, err)
		return todo
	}
	a, b, other := limitedPool("a", 2), limitedPool("b", 0), limitedPool("other", 0)
	other.Spec.Template.NodeSelector = map[string]string{"fleet": "other"}
	require.Equal(t, 50, pass(other, 50).plan.Create, "another fleet")

	first := pass(a, 50)
	require.Equal(t, 2, first.plan.Create, "no usable node counts as one")
	require.Equal(t, 48, first.plan.Refused)
	require.Contains(t, r.tracker.pool(types.NamespacedName{Namespace: "ns", Name: "a"}).startsSay, string(termNoUsableNode))
	require.Equal(t, t0.Add(lookAtStartsEvery), first.plan.Next, "and it plans again without an event")
	require.Equal(t, 1, pass(b, 50).plan.Create, "one may always start")

	r.tracker.nodes.put(readyNode("n1"))
	r.tracker.nodes.put(readyNode("n2"))
	r.tracker.nodes.put(readyNode("n3"))
	require.Equal(t, 1, pass(a, 50).plan.Create, "6 for 3 nodes, of which it has 2 and the other 1")
	require.Equal(t, 2, pass(b, 50).plan.Create)
	require.Zero(t, pass(a, 50).plan.Create)
	require.Zero(t, pass(b, 50).plan.Create)

	terminating := wishFor(0)
	terminating.Terminating = true
	_, err := r.plan(t.Context(), a, r.tracker.pool(types.NamespacedName{Namespace: "ns", Name: "a"}), terminating)
	require.NoError(t, err)
	require.Greater(t, pass(b, 50).plan.Create, 40, "the pool that set the limit is going")
}

// After a restart the first pool to look does not know of what fleet the others are: their starts count until they say.
func TestPlan_StartsOfPoolsThatHaveNotSpokenYetCount(t *testing.T) {
	r := &Reconciler{options: Options{Burst: 100, NewSuffix: counter(), Now: func() time.Time { return t0 }}, tracker: newTracker()}
	r.options.Pod.DispatchURL, r.options.Pod.AgentImage = "http://server", "agent:1"
	r.tracker.nodes.put(readyNode("n1"))
	silent := r.tracker.pool(types.NamespacedName{Namespace: "ns", Name: "silent"})
	for _, name := range []string{"silent-1", "silent-2"} {
		silent.podSeen(named(name, func(p *corev1.Pod) { p.Spec.NodeName, p.Status.ContainerStatuses = "n1", nil }), t0)
	}
	a := limitedPool("a", 3)
	todo, err := r.plan(t.Context(), a, r.tracker.pool(types.NamespacedName{Namespace: "ns", Name: "a"}), wishFor(5))
	require.NoError(t, err)
	require.Equal(t, 1, todo.plan.Create)

	other := limitedPool("silent", 0)
	other.Spec.Template.NodeSelector = map[string]string{"fleet": "other"}
	_, err = r.plan(t.Context(), other, silent, wishFor(2))
	require.NoError(t, err)
	todo, err = r.plan(t.Context(), a, r.tracker.pool(types.NamespacedName{Namespace: "ns", Name: "a"}), wishFor(5))
	require.NoError(t, err)
	require.Equal(t, 2, todo.plan.Create, "it is of another fleet")
}

// POOL-5: a roll needs starts as well, though no runner is missing: a pool whose starts are limited still rolls, in steps no larger than
// what may start.
func TestPlan_POOL5_APoolWhoseStartsAreLimitedRolls(t *testing.T) {
	r := &Reconciler{options: Options{Burst: 100, NewSuffix: counter(), Now: func() time.Time { return t0 }}, tracker: newTracker()}
	r.options.Pod.DispatchURL, r.options.Pod.AgentImage = "http://server", "agent:1"
	r.tracker.nodes.put(readyNode("n1"))
	a, b := limitedPool("a", 2), limitedPool("b", 0)
	state := r.tracker.pool(types.NamespacedName{Namespace: "ns", Name: "a"})
	for i := range 5 {
		state.podSeen(named(fmt.Sprintf("a-%d", i), onNode("n1")), t0)
	}
	wish := wishFor(5)
	wish.TemplateHash, wish.MaxUnavailable = "newer", 3
	todo, err := r.plan(t.Context(), a, state, wish)
	require.NoError(t, err)
	require.Len(t, todo.plan.Ask, 2, "two may start on the one node")
	require.Zero(t, todo.plan.Create)

	state = r.tracker.pool(types.NamespacedName{Namespace: "ns", Name: "b"})
	state.podSeen(named("b-0", onNode("n1")), t0)
	wish.Desired, wish.MaxUnavailable = 1, 0
	for i := range 2 {
		r.tracker.pool(types.NamespacedName{Namespace: "ns", Name: "a"}).podSeen(named(fmt.Sprintf("a-new-%d", i), func(p *corev1.Pod) {
			p.Spec.NodeName, p.Status.ContainerStatuses = "n1", nil
		}), t0)
	}
	todo, err = r.plan(t.Context(), b, state, wish)
	require.NoError(t, err)
	require.Len(t, todo.plan.Ask, 1, "who has none starting may always replace one, whatever others start")
}

// POOL-4: that a runtime class cannot be read leaves no pool alone.
func TestPlan_POOL4_ARuntimeClassThatCannotBeReadHoldsUpNothing(t *testing.T) {
	for name, get := range map[string]func(context.Context) error{
		"forbidden":                   func(context.Context) error { return errors.New("forbidden") },
		"a cache that is never ready": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			reads := 0
			r := &Reconciler{options: Options{Burst: 100, NewSuffix: counter(), Now: func() time.Time { return t0 }, Log: slog.New(slog.DiscardHandler)}, tracker: newTracker()}
			r.options.Pod.DispatchURL, r.options.Pod.AgentImage = "http://server", "agent:1"
			r.client = interceptor.NewClient(nil, interceptor.Funcs{Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
				reads++
				return get(ctx)
			}})
			pool := limitedPool("a", 2)
			pool.Spec.Template.RuntimeClassName = ptr.To("kata")
			state := r.tracker.pool(types.NamespacedName{Namespace: "ns", Name: "a"})
			state.podSeen(named("a-1", terminal), t0)
			for range 2 {
				todo, err := r.plan(t.Context(), pool, state, wishFor(1))
				require.NoError(t, err)
				require.Len(t, todo.plan.Delete, 1)
			}
			require.Equal(t, 2, reads, "it is read again")
		})
	}
}

// After a restart a pool that sets no limit may have the first pass: the limit of its fleet still applies.
func TestReconcile_TheLimitOfAFleetHoldsFromTheFirstPass(t *testing.T) {
	s := newShop(t, interceptor.Funcs{})
	limiting := s.pool.DeepCopy()
	limiting.ObjectMeta = metav1.ObjectMeta{Namespace: s.pool.Namespace, Name: "limiting"}
	limiting.Spec.Labels, limiting.Spec.Provisioning.MaxConcurrentStarts = []string{"other"}, ptr.To[int32](2)
	require.NoError(t, s.admin.Create(t.Context(), limiting))
	s.pool.Spec.Replicas = ptr.To[int32](5)
	require.NoError(t, s.admin.Update(t.Context(), s.pool))
	_, err := s.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.state.key})
	require.NoError(t, err)
	require.Equal(t, 2, s.state.counts("").of[lifecycle.StageStarting])

	key := client.ObjectKeyFromObject(limiting)
	require.NoError(t, s.admin.Delete(t.Context(), limiting))
	_, err = s.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	require.NoError(t, err)
	_, err = s.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.state.key})
	require.NoError(t, err)
	require.Equal(t, 5, s.state.counts("").of[lifecycle.StageStarting], "it went before it ever looked")
}
