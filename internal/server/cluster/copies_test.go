package cluster_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/bullpen-ci/bullpen/internal/server/cluster"
	"github.com/bullpen-ci/bullpen/internal/server/restore/epoch"
	"github.com/bullpen-ci/bullpen/test/kit"
)

// NET-8, CLAIM-17: the server keeps the copy of its epoch under its shipped role, which allows it no other ConfigMap.
func TestCopies_NET8_CLAIM17_UnderTheShippedRole(t *testing.T) {
	env := kit.Cluster(t)
	env.ShippedRoles(t, env.Namespace(t))
	config := env.As(t, serverUser, "system:serviceaccounts", "system:authenticated")
	maps := env.Kube.CoreV1().ConfigMaps("bullpen-system")
	t.Cleanup(func() { _ = maps.Delete(context.Background(), cluster.CopyName, metav1.DeleteOptions{}) })
	one, err := cluster.NewCopies(config, "bullpen-system")
	require.NoError(t, err)
	two, err := cluster.NewCopies(config, "bullpen-system")
	require.NoError(t, err)
	for _, c := range []*cluster.Copies{one, two} {
		require.Eventually(t, func() bool {
			_, exists, err := c.ReadCopy(t.Context())
			return err == nil && !exists
		}, 20*time.Second, 20*time.Millisecond, "the role takes effect")
	}
	read := func(c *cluster.Copies) epoch.Mark {
		mark, exists, err := c.ReadCopy(t.Context())
		require.NoError(t, err)
		require.True(t, exists)
		return mark
	}
	first, second := epoch.Mark{Lineage: "a", Epoch: 1}, epoch.Mark{Lineage: "a", Epoch: 2}
	require.NoError(t, one.WriteCopy(t.Context(), first))
	require.NoError(t, two.WriteCopy(t.Context(), second), "another client was faster, which is no failure")
	require.Equal(t, first, read(one))
	require.Equal(t, first, read(two))
	require.NoError(t, two.WriteCopy(t.Context(), second))
	require.NoError(t, one.WriteCopy(t.Context(), epoch.Mark{Lineage: "a", Epoch: 3}), "nor is that")
	require.Equal(t, second, read(one), "a later write is not overwritten by an earlier reader")

	for _, data := range []map[string]string{nil, {"lineage": "a"}, {"lineage": "a", "epoch": "x"}, {"lineage": "", "epoch": "1"}, {"lineage": "a", "epoch": "0"}} {
		broken, err := maps.Get(t.Context(), cluster.CopyName, metav1.GetOptions{})
		require.NoError(t, err)
		broken.Data = data
		_, err = maps.Update(t.Context(), broken, metav1.UpdateOptions{})
		require.NoError(t, err)
		_, _, err = one.ReadCopy(t.Context())
		require.ErrorContains(t, err, "delete it")
	}

	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	mine := client.CoreV1().ConfigMaps("bullpen-system")
	_, err = mine.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
	require.NoError(t, err, "a create cannot be limited to a name")
	t.Cleanup(func() { _ = maps.Delete(context.Background(), "other", metav1.DeleteOptions{}) })
	for what, err := range map[string]error{
		"reads another":         failure(mine.Get(t.Context(), "other", metav1.GetOptions{})),
		"lists":                 failure(mine.List(t.Context(), metav1.ListOptions{})),
		"deletes its own":       mine.Delete(t.Context(), cluster.CopyName, metav1.DeleteOptions{}),
		"writes among runners":  failure(client.CoreV1().ConfigMaps("bullpen-runners").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})),
		"reads Secrets":         failure(client.CoreV1().Secrets("bullpen-system").List(t.Context(), metav1.ListOptions{})),
		"reads others' Leases":  failure(client.CoordinationV1().Leases("bullpen-system").List(t.Context(), metav1.ListOptions{})),
		"changes another of it": failure(mine.Update(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.UpdateOptions{})),
	} {
		require.True(t, apierrors.IsForbidden(err), "%s: %v", what, err)
	}
}

func failure[T any](_ T, err error) error { return err }
