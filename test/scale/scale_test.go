package scale

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
	"github.com/bullpen-ci/bullpen/test/kit/rig"
)

const (
	label    = "scale"
	accounts = 5 // so that no account's limit holds jobs back
)

// patience bounds each phase; it grows with the pool.
func patience() time.Duration { return 4*time.Minute + time.Duration(*podsFlag)*300*time.Millisecond }

// TestScale takes a pool up, rolls its template, shrinks it to a quarter and deletes it, while jobs arrive and are
// claimed. No runner with a live claim is deleted, by the ledger's rows right before each deletion (EXCL-1, EXCL-2); the
// roll takes no more runners out of service at once than its limit (POOL-5); every job succeeds (RECV-7); and the pool
// is gone when its last busy runner has finished, not before (POOL-2).
func TestScale_EXCL1_POOL2_POOL5_NoJobIsLost(t *testing.T) {
	s := newScenario(t, *podsFlag)
	s.fill()
	load := s.fleet.StartLoad(label, s.jobs, time.Second, 3*time.Second, 2*time.Second)
	s.roll()
	s.shrink(*podsFlag / 4)
	load.Stop()
	s.drain()
	s.verdict()
}

type scenario struct {
	*testing.T
	size  int
	limit int // MaxUnavailable: more than the jobs, or the places of those that ended would be all that is replaced on a slow machine
	jobs  int // on their way at a time
	fleet *rig.Fleet
	o     *observer
	pool  *v1alpha1.RunnerPool
}

func newScenario(t *testing.T, size int) *scenario {
	t.Helper()
	s := &scenario{T: t, size: size, limit: max(4, size/20), jobs: cmp.Or(*jobsFlag, max(2, min(size/20, 6))), o: newObserver()}
	env := kit.Cluster(t)
	s.fleet = rig.Start(t, rig.Options{
		Cluster: env, Database: postgrestest.NewDatabase(t, nil), Nodes: *nodesFlag, PodsEach: int64(size), Accounts: accounts,
		OnDelete: s.o.beforeDeletion, OnGranted: s.o.grant,
	})
	s.o.watch(t, env, s.fleet.Namespace, s.fleet.Store)
	return s
}

func (s *scenario) fill() {
	s.Helper()
	began := time.Now()
	s.pool = &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.fleet.Namespace, Name: "linux"},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform: v1alpha1.PlatformLinux, Labels: []string{label}, Replicas: ptr.To(int32(s.size)),
			Resources: v1alpha1.RunnerResources{CPU: resource.MustParse("100m"), Memory: resource.MustParse("64Mi")},
			Template:  v1alpha1.RunnerTemplate{Image: "runner:1"},
			Rollout:   v1alpha1.Rollout{MaxUnavailable: ptr.To(intstr.FromInt32(int32(s.limit)))},
		},
	}
	require.NoError(s, s.fleet.Admin.Create(s.Context(), s.pool))
	s.eventually("every runner serves", func() bool {
		_, serving, _ := s.o.settled("")
		return serving == s.size
	})
	s.Logf("fill: %d runners serve after %s", s.size, phaseTime(began))
}

func (s *scenario) roll() {
	s.Helper()
	s.o.phase()
	began, before := time.Now(), s.status().TemplateHash
	s.edit(func(p *v1alpha1.RunnerPool) { p.Spec.Template.Image = "runner:2" })
	hash := before
	s.eventually("the controller knows the new template", func() bool {
		hash = s.status().TemplateHash
		return hash != before
	})
	s.eventually("no idle runner has the old template", func() bool {
		_, serving, outdated := s.o.settled(hash)
		return outdated == 0 && serving >= s.size-s.limit
	})
	worst, c, _ := s.o.report()
	s.Logf("roll: %s; %d idle runners replaced, %d jobs ended meanwhile; at most %d places not serving because of the roll (limit %d), %d with those whose job had ended",
		phaseTime(began), c.removedIdle, c.finished, worst[taken], s.limit, worst[all])
	require.Positive(s, c.finished, "jobs ran all the while")
	require.Positive(s, c.removedIdle, "the roll replaced idle runners")
	// A runner that has not started yet costs nothing to replace, and some of them begin to serve while the fence is being asked: at most
	// those that took the place of jobs.
	require.LessOrEqual(s, worst[taken], s.limit+s.jobs, "POOL-5")
}

func (s *scenario) shrink(to int) {
	s.Helper()
	s.o.phase()
	began := time.Now()
	s.edit(func(p *v1alpha1.RunnerPool) { p.Spec.Replicas = ptr.To(int32(to)) })
	s.eventually("the pool has its new size", func() bool {
		live, serving, _ := s.o.settled("")
		return live == to && serving >= to/2 // the others take the place of those whose job has ended
	})
	_, c, _ := s.o.report()
	s.Logf("scale to %d: %s; %d idle runners removed, %d jobs ended meanwhile", to, phaseTime(began), c.removedIdle, c.finished)
	s.size = to
}

// drain deletes the pool while some of its runners are busy.
func (s *scenario) drain() {
	s.Helper()
	s.eventually("no job waits", func() bool {
		state := s.fleet.State()
		return state.Jobs["queued"]+state.Jobs["waiting"] == 0
	})
	s.o.phase()
	busy := min(5, s.size/2)
	require.NoError(s, s.fleet.Submit(s.Context(), label, 1, busy, 45*time.Second+time.Duration(*podsFlag)*50*time.Millisecond))
	s.eventually("the last jobs run", func() bool {
		state := s.fleet.State()
		return state.Jobs["queued"] == 0 && state.Jobs["in_progress"] >= busy
	})
	began := time.Now()
	require.NoError(s, s.fleet.Admin.Delete(s.Context(), s.pool))
	s.eventually("the idle runners go", func() bool {
		live, _, _ := s.o.settled("")
		return live <= busy
	})
	idle := phaseTime(began)
	require.Equal(s, busy, s.fleet.State().Jobs["in_progress"], "the jobs must outlast the idle runners for this to show anything")
	require.NoError(s, s.fleet.Admin.Get(s.Context(), client.ObjectKeyFromObject(s.pool), s.pool), "POOL-2: it waits for its busy runners")
	s.eventually("the pool goes", func() bool {
		return apierrors.IsNotFound(s.fleet.Admin.Get(s.Context(), client.ObjectKeyFromObject(s.pool), s.pool))
	})
	s.Logf("drain: the idle runners went in %s, the pool behind its %d busy ones after %s", idle, busy, phaseTime(began))
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.ServiceAccountList{}} {
		require.NoError(s, s.fleet.Admin.List(s.Context(), list, client.InNamespace(s.fleet.Namespace), client.HasLabels{"bullpen.dev/runner"}))
	}
}

func (s *scenario) verdict() {
	s.Helper()
	state := s.fleet.State()
	s.Logf("jobs: %v, concluded %v, requeued %d", state.Jobs, state.Conclusions, state.Requeued)
	_, _, trouble := s.o.report()
	require.Empty(s, trouble)
	require.Equal(s, map[string]int{"success": state.Jobs["completed"]}, state.Conclusions, "every job ends, and ends well")
	require.Equal(s, len(state.Jobs), 1, "RECV-7: %v", state.Jobs)
	require.Zero(s, state.Lost)
	require.Empty(s, state.AcquiredTwice)
}

func (s *scenario) status() v1alpha1.RunnerPoolStatus {
	s.Helper()
	require.NoError(s, s.fleet.Admin.Get(s.Context(), client.ObjectKeyFromObject(s.pool), s.pool))
	return s.pool.Status
}

func (s *scenario) edit(change func(*v1alpha1.RunnerPool)) {
	s.Helper()
	s.status()
	base := s.pool.DeepCopy()
	change(s.pool)
	require.NoError(s, s.fleet.Admin.Patch(s.Context(), s.pool, client.MergeFrom(base)))
}

func (s *scenario) eventually(what string, condition func() bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience())
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			s.giveUp(what)
		case <-ticker.C:
		}
	}
}

// giveUp says how far it came.
func (s *scenario) giveUp(what string) {
	s.Helper()
	live, serving, outdated := s.o.settled(s.pool.Status.TemplateHash)
	_, c, trouble := s.o.report()
	text := fmt.Sprintf("%d live, %d serve, %d outdated, %+v, jobs %v", live, serving, outdated, c, s.fleet.State().Jobs)
	require.FailNow(s, "this never happened: "+what, "%s\n%v\npool: %+v", text, trouble, s.status())
}
