package cluster_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/server/cluster"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// NET-8: with the chart's rights for Macs the server shows them. Without these rights, dispatch does not wait for them, and
// they are reported as unknown.
func TestHosts_NET8_AreShownWhereMacsArePrepared(t *testing.T) {
	env := kit.Cluster(t)
	prepared, other := env.Namespace(t), env.Namespace(t)
	env.ShippedMacRoles(t, prepared, "mac-ssh")
	env.ShippedRoles(t, other)
	watch := func(namespace string, macs bool) *cluster.View {
		t.Helper()
		view, err := cluster.New(cluster.Options{
			Config: env.As(t, serverUser, "system:serviceaccounts", "system:authenticated"), Namespace: namespace, MacHosts: macs,
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { _ = view.Run(ctx, &scene{}) })
		t.Cleanup(func() { cancel(); await.Return(t, wg.Wait, "the view stops") })
		require.Eventually(t, view.Synced, time.Minute, 10*time.Millisecond)
		return view
	}
	shown := watch(prepared, true)
	for _, view := range []*cluster.View{watch(other, true), watch(prepared, false)} {
		hosts, watched := view.Hosts()
		require.False(t, watched)
		require.Empty(t, hosts)
	}
	admin := env.Client(t, v1alpha1.AddToScheme)
	host := &v1alpha1.MacHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: prepared, Name: "mini-1"},
		Spec: v1alpha1.MacHostSpec{
			Address: "10.0.0.7", Pool: "minis", SSHKeySecretRef: v1alpha1.SecretKey{Name: "mac-ssh", Key: "id"},
			ConfigRef: &v1alpha1.ConfigMapKey{Name: "minis", Key: "host.yaml"},
		},
	}
	require.NoError(t, admin.Create(t.Context(), host))
	host.Status.NodeName = "mini-1"
	host.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Unreachable", Message: "it does not answer", LastTransitionTime: metav1.Now()}}
	require.NoError(t, admin.Status().Update(t.Context(), host))
	require.Eventually(t, func() bool {
		hosts, watched := shown.Hosts()
		return watched && len(hosts) == 1 && hosts[0].State == "Unreachable" && hosts[0].Message == "it does not answer" && hosts[0].Pool == "minis"
	}, time.Minute, 10*time.Millisecond)
}
