package pool

import (
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/nodeload"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// owner is the pool's name among all owners of runners.
func (s *poolState) owner() string { return v1alpha1.KindRunnerPool + " " + s.key.String() }

// noteWeight has a runner counted on the node that it holds, for the owners that choose which of their runners to remove.
func (s *poolState) noteWeight(m *member, r lifecycle.Runner, has bool) {
	if now := nodeload.WeightOf(r, has); now != m.weight {
		s.loads.Set(s.owner(), m.name, now)
		m.weight = now
	}
}

// others are the runners of other owners on the nodes that this pool has runners on, if it has more runners than it wants: nothing else asks
// for them.
func (s *poolState) others(wish lifecycle.Wish) map[string]lifecycle.Load {
	if !lifecycle.Shrinks(wish, s.runners) {
		return nil
	}
	return s.loads.Others(s.owner())
}
