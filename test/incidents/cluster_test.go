package incidents

import (
	"context"

	"github.com/bullpen-ci/bullpen/internal/server/cluster"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
)

// identities knows the pods of a cluster in memory, each of which has its UID for its token. Scenarios that Kubernetes has a part in
// use a real API server.
type identities struct{ *dispatchtest.Cluster }

func (i identities) Review(_ context.Context, token, _ string) (cluster.Identity, error) {
	return cluster.Identity{PodUID: token}, nil
}

func (i identities) Runner(id cluster.Identity) (dispatch.Pod, bool) { return i.Pod(id.PodUID) }
