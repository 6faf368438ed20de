package scale

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// observer follows every pod of the pool through a watch of its own, and every deletion that the controller asks for.
type observer struct {
	mu      sync.Mutex
	store   *ledger.Store
	read    func(name string) (*corev1.Pod, error) // past every cache
	pods    map[string]*seen                       // by UID
	vacant  []vacancy                              // places whose runner has stopped serving, oldest first
	granted map[string]bool                        // UIDs whose removal the server has granted
	asked   map[string]bool                        // UIDs whose deletion the controller asked for
	worst   map[vacancy]int                        // most vacancies at once
	counts  counts
	trouble []string
}

// vacancy is why a place of the pool does not serve.
type vacancy string

const (
	jobEnded vacancy = "jobs"  // its runner's job has ended
	taken    vacancy = "fleet" // its runner was idle and was removed
	all      vacancy = "both"
)

// seen is what the watch showed of a pod.
type seen struct {
	name, hash       string
	serves, ended    bool // can take a job or has one; is terminal, deleted or being deleted
	terminal, active bool // active: its poller has traded the token
	gone             bool
}

type counts struct{ started, finished, removedIdle int }

func newObserver() *observer {
	return &observer{pods: map[string]*seen{}, granted: map[string]bool{}, asked: map[string]bool{}, worst: map[vacancy]int{}}
}

// watch begins to follow the pods of a namespace.
func (o *observer) watch(t *testing.T, env *kit.Env, namespace string, store *ledger.Store) {
	t.Helper()
	o.mu.Lock()
	o.store = store
	o.read = func(name string) (*corev1.Pod, error) {
		return env.Kube.CoreV1().Pods(namespace).Get(context.Background(), name, metav1.GetOptions{})
	}
	o.mu.Unlock()
	pods := cache.NewListWatchFromClient(env.Kube.CoreV1().RESTClient(), "pods", namespace, fields.Everything())
	informer := cache.NewSharedInformer(pods, &corev1.Pod{}, 0)
	show := func(obj any, gone bool) {
		if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = unknown.Obj
		}
		if pod, ok := obj.(*corev1.Pod); ok {
			o.show(pod, gone)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { show(obj, false) }, UpdateFunc: func(_, obj any) { show(obj, false) }, DeleteFunc: func(obj any) { show(obj, true) },
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { informer.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); await.Return(t, wg.Wait, "the informer ends") })
	require.True(t, cache.WaitForCacheSync(ctx.Done(), informer.HasSynced))
}

func (o *observer) show(pod *corev1.Pod, gone bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.pods[string(pod.UID)]
	if p == nil {
		p = &seen{name: pod.Name, hash: pod.Labels[runnerpod.LabelTemplateHash]}
		o.pods[string(pod.UID)] = p
	}
	ready, traded := podsigns.Jobless(pod, podsigns.Container(pod, runnerpod.ContainerRunner)), false
	for _, c := range pod.Status.ContainerStatuses {
		traded = traded || c.Name == runnerpod.ContainerPoller && c.State.Terminated != nil && c.State.Terminated.ExitCode == 0
	}
	p.active = p.active || traded
	p.terminal = pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	leaves := p.terminal || gone || pod.DeletionTimestamp != nil
	switch {
	case leaves && !p.ended:
		p.ended = true
		if p.serves {
			o.vacate(p.terminal && !o.granted[string(pod.UID)])
		}
	case !leaves && !p.serves && (ready || traded):
		p.serves = true
		o.counts.started++
		if len(o.vacant) > 0 {
			o.vacant = o.vacant[1:]
		}
	}
	if gone {
		p.gone = true
		if !o.asked[string(pod.UID)] {
			o.trouble = append(o.trouble, fmt.Sprintf("pod %s went, and the controller had not asked for it", pod.Name))
		}
	}
}

// grant records that the server has granted a removal. Such a pod exits like one whose job has ended: this distinguishes them.
func (o *observer) grant(uid string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.granted[uid] = true
}

// ledger is what the ledger says of a pod.
func (o *observer) ledger(uid string) fleet.ClaimState {
	o.mu.Lock()
	store := o.store
	o.mu.Unlock()
	claim, err := store.Claim(context.Background(), uid)
	if err != nil {
		return fleet.ClaimNone
	}
	return claim.State
}

// vacate notes that a place has stopped serving. Places are filled again in the order in which they fell vacant, so that
// those which the fleet emptied are distinguished from those whose job ended.
func (o *observer) vacate(byJob bool) {
	why := taken
	if byJob {
		why = jobEnded
		o.counts.finished++
	} else {
		o.counts.removedIdle++
	}
	o.vacant = append(o.vacant, why)
	byWhy := map[vacancy]int{all: len(o.vacant)}
	for _, v := range o.vacant {
		byWhy[v]++
	}
	for v, n := range byWhy {
		o.worst[v] = max(o.worst[v], n)
	}
}

// beforeDeletion compares a deletion with the ledger before it is sent: a live claim must never be deleted.
func (o *observer) beforeDeletion(name string, conditions *metav1.Preconditions) {
	uid := ""
	if conditions != nil && conditions.UID != nil && conditions.ResourceVersion != nil {
		uid = string(*conditions.UID)
	}
	state, ended := o.ledger(uid), o.hasEnded(name, uid)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked[uid] = true
	switch {
	case uid == "":
		o.trouble = append(o.trouble, fmt.Sprintf("the deletion of %s has no preconditions", name))
	case ended: // its containers have, even if the ledger does not know yet
	case state != fleet.ClaimRetired && state != fleet.ClaimSpent:
		o.trouble = append(o.trouble, fmt.Sprintf("%s is deleted, and the ledger says %q", name, state))
	}
}

// hasEnded asks the API server itself whether the pod is terminal or gone: the observer's own watch may lag.
func (o *observer) hasEnded(name, uid string) bool {
	o.mu.Lock()
	read := o.read
	o.mu.Unlock()
	pod, err := read(name)
	if apierrors.IsNotFound(err) {
		return true
	}
	return err == nil && (string(pod.UID) != uid || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
}

// settled is how many pods live, serve, and are idle with another template than hash.
func (o *observer) settled(hash string) (live, serving, outdated int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.pods {
		if p.ended {
			continue
		}
		live++
		if p.serves {
			serving++
		}
		if p.hash != hash && !p.active {
			outdated++
		}
	}
	return live, serving, outdated
}

// phase forgets what was worst so far, and what is vacant: a resized pool has other places.
func (o *observer) phase() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.vacant, o.worst, o.counts = nil, map[vacancy]int{}, counts{}
}

// report returns what happened since phase.
func (o *observer) report() (worst map[vacancy]int, c counts, trouble []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.worst, o.counts, slices.Clone(o.trouble)
}

// phaseTime says how long something took, to a tenth of a second.
func phaseTime(since time.Time) string {
	return time.Since(since).Round(100 * time.Millisecond).String()
}
