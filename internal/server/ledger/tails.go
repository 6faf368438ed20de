package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

// mostTails bounds what is kept of one pool's runners that died within an hour.
const mostTails = 20

// KeepTail keeps what a runner that died had said last, once, unless enough is kept of its pool.
func (s *Store) KeepTail(ctx context.Context, t fleet.Tail) error {
	err := s.queries().KeepTail(ctx, sqlcgen.KeepTailParams{
		PodUid: t.PodUID, Namespace: t.Namespace, PodName: t.Pod, Pool: t.Pool, EndedAt: t.EndedAt, ExitCode: t.ExitCode, Reason: t.Reason,
		Tail: t.Text, Cut: t.Cut, Since: t.EndedAt.Add(-time.Hour), Most: mostTails,
	})
	if err != nil {
		return fmt.Errorf("keeping the last lines of pod %s: %w", t.Pod, err)
	}
	return nil
}

// RunnerLog returns what is kept of the pod of that name which died last; admin.ErrNotFound.
func (s *Store) RunnerLog(ctx context.Context, namespace, pod string) (adminapi.RunnerLog, error) {
	if !storable(namespace) || !storable(pod) {
		return adminapi.RunnerLog{}, admin.ErrNotFound
	}
	row, ok, err := found(s.queries().TailOfPod(ctx, namespace, pod))
	switch {
	case err != nil:
		return adminapi.RunnerLog{}, fmt.Errorf("reading the last lines of pod %s: %w", pod, err)
	case !ok:
		return adminapi.RunnerLog{}, admin.ErrNotFound
	}
	return adminapi.RunnerLog{
		Namespace: row.Namespace, Name: row.PodName, Pool: row.Pool, EndedAt: row.EndedAt.UTC(), ExitCode: row.ExitCode, Reason: row.Reason,
		Tail: row.Tail, Cut: row.Cut,
	}, nil
}
