package runnerowner_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

func refusedDeletion(_ *testing.T, b *bench) {
	b.kind.create(b, some(1, true))
	b.idle(b.have(1)...)
	b.counts("1 idle", func(c v1alpha1.RunnerCounts) bool { return c.Idle == 1 })
	b.guard.Store(true)
	b.kind.edit(b, replicas(0))
	b.eventually("the reason is shown", func() bool {
		b.pass(10 * time.Second)
		c := b.condition(v1alpha1.ConditionStuckTerminating)
		return c.Status == metav1.ConditionTrue && strings.Contains(c.Message, "guard.example")
	})
	b.guard.Store(false)
	b.eventually("it is deleted, and nothing is stuck", func() bool {
		b.pass(10 * time.Second)
		return len(b.pods()) == 0 && b.condition(v1alpha1.ConditionStuckTerminating).Status == metav1.ConditionFalse
	})
}
