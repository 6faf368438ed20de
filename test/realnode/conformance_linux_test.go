package realnode

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/podconformance"
)

// The rows that our node agent is held to (internal/node, TestConformance_WithAKubelet) are what a kubelet does.
func TestConformance_OfAKubelet(t *testing.T) {
	const name, image = "one", "registry.test/host:v1"
	requireMachine(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cluster, err := realnode.Start(ctx, realnode.Options{
		StateDir: t.TempDir(), ControlPlane: controlplane.Options{FastUnsafe: true, AssetsDir: kit.AssetsOrFail(t)}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Stop(context.WithoutCancel(ctx))) })
	node, err := cluster.AddNode(ctx, name)
	require.NoError(t, err)
	files, err := realnode.HostPrograms(podconformance.Programs...)
	require.NoError(t, err)
	var archive bytes.Buffer
	files = append(files, realnode.File{Path: "/tmp", Mode: 0o777 | fs.ModeSticky})
	require.NoError(t, realnode.Image{Ref: image, Files: files, Env: []string{"PATH=/usr/bin:/bin"}}.Write(&archive))
	require.NoError(t, node.Import(ctx, &archive))
	kube, err := kubernetes.NewForConfig(cluster.Plane().AdminConfig())
	require.NoError(t, err)
	podconformance.Run(t, podconformance.Env{
		Kube: kube, Config: cluster.Plane().AdminConfig(), Node: name, Image: image, Differences: podconformance.Kubelet, AtOnce: 16,
		Namespace: func(t testing.TB) string {
			namespace, err := kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "conformance-"}}, metav1.CreateOptions{})
			require.NoError(t, err)
			assert.Eventually(t, func() bool { // pods are refused before
				_, err := kube.CoreV1().ServiceAccounts(namespace.Name).Get(ctx, "default", metav1.GetOptions{})
				return err == nil
			}, patience, interval)
			return namespace.Name
		},
	})
}
