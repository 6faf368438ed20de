package pool

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

func poolNamed(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

func TestServe_CLAIM12_TwoLivePoolsWithOneLabelNameEachOther(t *testing.T) {
	tr := newTracker()
	a, b, c := poolNamed("a"), poolNamed("b"), poolNamed("c")
	rivals, changed := tr.serve(a, []string{"Linux-4", "gpu"})
	require.Empty(t, rivals)
	require.Empty(t, changed)
	rivals, changed = tr.serve(b, []string{"linux-4"})
	require.Equal(t, []rival{{"a", "linux-4"}}, rivals, "GitHub does not tell upper case from lower case")
	require.Equal(t, []types.NamespacedName{a}, changed, "the other must look again")
	rivals, changed = tr.serve(a, []string{"Linux-4", "gpu"})
	require.Equal(t, []rival{{"b", "linux-4"}}, rivals)
	require.Empty(t, changed, "nothing has changed: no pool is woken")
	rivals, changed = tr.serve(c, []string{"gpu"})
	require.Equal(t, []rival{{"a", "gpu"}}, rivals, "a job that asks for gpu could go to either")
	require.Equal(t, []types.NamespacedName{a}, changed)
	rivals, _ = tr.serve(types.NamespacedName{Namespace: "elsewhere", Name: "d"}, []string{"gpu"})
	require.Empty(t, rivals, "another namespace is another fleet")

	_, changed = tr.serve(a, nil) // gone, or being deleted
	require.ElementsMatch(t, []types.NamespacedName{b, c}, changed)
	for _, key := range []types.NamespacedName{b, c} {
		require.Empty(t, tr.rivalry.of(key), "removing one heals the other")
	}
	_, changed = tr.serve(a, []string{"other", "linux-64"})
	require.Empty(t, changed)
}

// The condition says what dispatch does: a pool has no rival exactly if a job that asks for its first label is given to it,
// and no rival takes part in another's.
func TestServe_CLAIM12_AgreesWithDispatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr, live := newTracker(), map[string]dispatch.Pool{}
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "pool")
			labels := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"w", "x", "y", "Z"}), 1, 3, rapid.ID[string]).Draw(t, "labels")
			pool := dispatch.Pool{Namespace: "ns", Name: name, Labels: labels, Terminating: rapid.Bool().Draw(t, "terminating")}
			before := rivalsOfAll(tr)
			if pool.Terminating {
				labels = nil
			}
			_, changed := tr.serve(poolNamed(name), labels)
			live[name] = pool
			after := rivalsOfAll(tr)
			for other := range after {
				if other != name && !slices.Equal(before[other], after[other]) && !slices.Contains(changed, poolNamed(other)) {
					t.Fatalf("%s is not notified that its rivals have changed", other)
				}
			}
		}
		pools := slices.Collect(maps.Values(live))
		sets := []dispatch.LabelSet{}
		for _, pool := range pools {
			label := pool.Labels[:1]
			sets = append(sets, dispatch.LabelSet{Key: dispatch.LabelKey(label), Labels: label})
		}
		ambiguous := dispatch.Route(pools, sets).Ambiguous
		contends := map[string]bool{}
		for _, pool := range pools {
			if pool.Terminating {
				continue
			}
			for _, ref := range ambiguous[dispatch.LabelKey(pool.Labels[:1])] {
				contends[ref.Name] = true
			}
		}
		for _, pool := range pools {
			if got := len(tr.rivalry.of(poolNamed(pool.Name))) > 0; got != contends[pool.Name] {
				t.Fatalf("pool %s with %v has rivals: %t, and dispatch says %t of %v", pool.Name, pool.Labels, got, contends[pool.Name], live)
			}
		}
	})
}

func rivalsOfAll(tr *tracker) map[string][]rival {
	all := map[string][]rival{}
	for _, name := range []string{"a", "b", "c", "d"} {
		all[name] = tr.rivalry.of(poolNamed(name))
	}
	return all
}
