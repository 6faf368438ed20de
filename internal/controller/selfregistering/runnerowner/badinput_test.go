package runnerowner_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/test/kit/registeredtest"
)

// Bad input is shown with a sentence, and costs no calls.
func forbiddenIsLeftAlone(t *testing.T, b *bench) {
	b.github.Fault(func(op registeredtest.Op, _ string) error {
		if op == registeredtest.JIT {
			return fleet.ErrForbidden
		}
		return nil
	})
	b.kind.create(b, some(2, true, func(s *settings) { s.spec.Credentials = &v1alpha1.GitHubCredentials{SecretName: "pat"} }))
	b.is(v1alpha1.ConditionProgressing, metav1.ConditionFalse, "CannotRegister")
	b.eventually("both were tried", func() bool { return b.github.Calls(registeredtest.JIT) == 2 })
	b.ahead.Add(int64(4 * time.Minute))
	b.stays("no request is repeated, and no pod is made", func() bool { return b.github.Calls(registeredtest.JIT) == 2 && len(b.pods()) == 0 })
	require.NotEmpty(t, b.condition(v1alpha1.ConditionProgressing).Message)
	b.github.Fault(nil)
	require.NoError(t, b.admin.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "pat"}}))
	b.idle(b.have(2)...)
	b.is(v1alpha1.ConditionProgressing, metav1.ConditionFalse, "UpToDate")
	require.Equal(t, 4, b.github.Calls(registeredtest.JIT), "a changed Secret is tried at once")
}

func noNodeFits(t *testing.T, b *bench) {
	b.kind.create(b, some(2, true, func(s *settings) { s.spec.Template.Spec.NodeSelector = map[string]string{"none": "has-this"} }))
	b.is(v1alpha1.ConditionProgressing, metav1.ConditionFalse, "Unschedulable")
	b.eventually("of both", func() bool {
		c := b.condition(v1alpha1.ConditionProgressing)
		return c.Reason == "Unschedulable" && strings.HasPrefix(c.Message, "2 runners without a node: ")
	})
	versions := func() map[string]string {
		found := map[string]string{}
		members := b.kind.members(b)
		require.NoError(t, b.admin.List(t.Context(), members, client.InNamespace(b.namespace)))
		b.eachMember(members, func(o client.Object) { found[o.GetName()] = o.GetResourceVersion() })
		for _, pod := range b.pods() {
			// Without its status: the scheduler says something else whenever another test adds a node.
			found[pod.Name+" pod"] = fmt.Sprint(pod.Labels, pod.Annotations, pod.Finalizers, pod.DeletionTimestamp, pod.Spec.NodeSelector)
		}
		return found
	}
	var before map[string]string
	same := 0
	b.eventually("everything is written", func() bool {
		last := before
		if before = versions(); len(before) != 4 || !maps.Equal(last, before) {
			same = 0
		}
		same++
		return same > 30
	})
	b.ahead.Add(int64(time.Hour))
	b.stays("nothing is made again, and nothing is written", func() bool { return maps.Equal(before, versions()) })
	require.Equal(t, 2, b.github.Calls(registeredtest.JIT))
	require.Zero(t, b.github.Calls(registeredtest.Remove))
}
