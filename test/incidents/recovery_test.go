package incidents

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
	"github.com/bullpen-ci/bullpen/test/kit/rig"
)

// proofs remembers what was known of each pod when the controller had it deleted.
type proofs struct {
	mu    sync.Mutex
	fleet *rig.Fleet
	uids  map[string]string // by name
	said  map[string]string // by name
}

func (p *proofs) deleting(name string, _ *metav1.Preconditions) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fleet == nil || p.uids[name] == "" {
		return
	}
	if claim, err := p.fleet.Store.Claim(p.fleet.Context(), p.uids[name]); err == nil && claim.Proof != "" {
		p.said[name] = claim.Proof
	}
}

func (p *proofs) watch(pod corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uids[pod.Name] = string(pod.UID)
}

func (p *proofs) of(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said[name]
}

// gone reports whether a pod and its ServiceAccount are.
func (y *yard) gone(pod corev1.Pod) bool {
	key := client.ObjectKeyFromObject(&pod)
	return apierrors.IsNotFound(y.Admin.Get(y.t.Context(), key, &corev1.Pod{})) &&
		apierrors.IsNotFound(y.Admin.Get(y.t.Context(), key, &corev1.ServiceAccount{}))
}

// worker waits for the one pod of a pool that has an owner.
func (y *yard) worker(pool string) (found corev1.Pod) {
	y.t.Helper()
	y.eventually("a pod is given the job", func() bool {
		for _, p := range y.podsOf(pool) {
			if kit.Owned(&p) {
				found = p
				return true
			}
		}
		return false
	})
	return found
}

// Three pods hold their places for nothing: one whose runner never gets as far as GitHub, one whose job was cancelled
// before it came, and one that has the label of an owner but no claim, as a server of old left it, though it polls. No
// administrator intervenes.
func TestRecovery_RECV1_RECV5_PodsThatWaitForNothing(t *testing.T) {
	t.Parallel()
	why, late := &proofs{uids: map[string]string{}, said: map[string]string{}}, newClock()
	y := newYard(t, rig.Options{RecoveryEvery: time.Second, OnDelete: why.deleting, Now: late.Now})
	why.mu.Lock()
	why.fleet = y.Fleet
	why.mu.Unlock()
	pools := []string{"never-registers", "cancelled", "stamped"}
	for _, pool := range pools {
		y.NewPool(pool, 1)
	}
	for _, pool := range pools {
		y.warm(pool, 1)
	}
	away := standin.Fault{Kind: standin.FaultRESTLatency, Route: "session", Delay: standin.Duration(time.Hour), Times: 1}
	waits := y.work("never-registers", 1, away)
	cancelled := y.work("cancelled", 1, away)
	pods := []corev1.Pod{y.worker("never-registers"), y.worker("cancelled"), y.podsOf("stamped")[0]}
	require.NoError(t, y.GitHub.Admin.CancelRun(t.Context(), cancelled.run))
	server := kit.Cluster(t).ClientAs(t, kit.Cluster(t).As(t, "system:serviceaccount:bullpen-system:bullpen-server", "system:serviceaccounts"))
	labelled := client.MergeFrom(pods[2].DeepCopy())
	pods[2].Labels[runnerpod.LabelOwner] = "org-1"
	before := late.Now()
	require.NoError(t, server.Patch(t.Context(), &pods[2], labelled))
	for _, p := range pods {
		why.watch(p)
	}

	y.eventually("the label that lies is noticed: its age counts from there", func() bool {
		return ledgertest.Int(t, y.database, `SELECT count(*) FROM pod_sightings WHERE pod_uid = $1 AND since >= $2`, string(pods[2].UID), before) == 1
	})
	late.Advance(recovery.DefaultPatience + time.Second)
	y.eventually("the label that lies is taken off", func() bool {
		now := y.podsOf("stamped")
		return len(now) == 1 && now[0].UID == pods[2].UID && now[0].Labels[runnerpod.LabelOwner] == ""
	})
	y.eventually("the others have no registration any more", func() bool {
		for _, p := range pods[:2] {
			left, err := y.Store.Registrations(t.Context(), string(p.UID), math.MaxInt64)
			if err != nil || len(left) > 0 {
				return false
			}
		}
		return true
	})
	late.Advance(recovery.DefaultPatience/5 + time.Second) // their pods have shown by now whether a job had started
	y.eventually("the others have no claim any more", func() bool {
		for _, p := range pods[:2] {
			claim, err := y.Store.Claim(t.Context(), string(p.UID))
			if err != nil || claim.State.Live() || claim.Proof == "" && !y.gone(p) {
				return false
			}
		}
		return true
	})
	late.Advance(time.Minute + time.Second) // what they had to exit
	// Their runners wait for GitHub's answer for an hour, and SIGTERM is no signal to them (EXCL-8): they are killed when their short grace is over.
	require.Eventually(t, func() bool { return y.gone(pods[0]) && y.gone(pods[1]) }, removal.ProvenGrace*time.Second+2*patience, 50*time.Millisecond,
		"pod and ServiceAccount go together")
	require.NotEmpty(t, why.of(pods[0].Name), "it looked busy: only a proof that it is not releases it")
	waits.running().succeed() // on the pod that took its place
	require.True(t, cancelled.all(func(j standin.JobView) bool { return j.Conclusion == "cancelled" && j.Acquisitions == 0 }))
	y.warm("cancelled", 1)
	last := y.work("stamped", 1).running()
	require.Equal(t, pods[2].Name, y.worker("stamped").Name, "a healthy pod is not burnt for its label")
	last.succeed()
}
