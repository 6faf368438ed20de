package realnode

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
)

func TestNode_RunsPodsAndLeavesNothing(t *testing.T) {
	if err := CheckMachine(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cluster, err := Start(ctx, Options{
		StateDir: t.TempDir(), ControlPlane: controlplane.Options{FastUnsafe: true}, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, cluster.Stop(context.WithoutCancel(ctx))) }()
	node, err := cluster.AddNode(ctx, "one")
	require.NoError(t, err)
	if sh := os.Getenv("DEBUG_PAUSE"); sh != "" {
		t.Log(cluster.Plane().AdminKubeconfig())
		<-time.After(10 * time.Minute)
	}
	_ = node
}
