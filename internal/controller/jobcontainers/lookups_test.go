package jobcontainers

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/image"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// hanging are registries, of which those of tenant "slow" never respond.
type hanging struct{ asked, ended chan image.Query }

func (h *hanging) Resolve(ctx context.Context, query image.Query) (image.Resolved, error) {
	h.asked <- query
	if query.Tenant == "slow" {
		<-ctx.Done()
		h.ended <- query
		return image.Resolved{}, ctx.Err()
	}
	return image.Resolved{Reference: query.Image}, nil
}

// newTestLookups run until the test ends; queued are the pods that were queued again.
func newTestLookups(t *testing.T) (l *lookups, h *hanging, queued chan string) {
	t.Helper()
	h = &hanging{asked: make(chan image.Query, 1000), ended: make(chan image.Query, 1000)}
	l = newLookups(h, time.Hour)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	require.NoError(t, l.source(t.Context(), queue))
	queued = make(chan string, 1000)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = l.Start(ctx) })
	running.Go(func() {
		for {
			next, down := queue.Get()
			if down {
				return
			}
			queue.Done(next)
			queued <- next.Name
		}
	})
	t.Cleanup(func() {
		cancel()
		queue.ShutDown()
		await.Return(t, running.Wait, "all lookups end with their owner")
	})
	return l, h, queued
}

func pod(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "runners", Name: name}
}

func asks(tenant, id string) question {
	return question{id: id, tenant: tenant, queries: []image.Query{{Tenant: tenant, Image: id}}}
}

// A tenant whose registries hang delays no other one, and has a bounded number of lookups.
func TestLookups_ATenantWithSlowRegistriesDelaysNoOther(t *testing.T) {
	l, h, queued := newTestLookups(t)
	for i := range 40 {
		_, err := l.get(pod(fmt.Sprint("slow-", i)), asks("slow", fmt.Sprint(i)), time.Hour)
		require.ErrorIs(t, err, errLooking)
	}
	for range tenantLookups {
		require.Equal(t, "slow", await.Receive(t, h.asked, "a hanging registry is asked").Tenant)
	}
	_, err := l.get(pod("other"), asks("other", "r"), time.Hour)
	require.ErrorIs(t, err, errLooking)
	require.Equal(t, "other", await.Receive(t, h.asked, "the other's registry is asked, and no more of the first").Tenant)
	require.Equal(t, "other", await.Receive(t, queued, "the other pod is queued again"))
	for range 2 { // it is kept until the request is answered
		known, err := l.get(pod("other"), asks("other", "r"), time.Hour)
		require.NoError(t, err)
		require.Equal(t, []image.Resolved{{Reference: "r"}}, known.found)
	}
	require.Empty(t, h.asked)

	l.forget(pod("other"))
	for i := range 40 { // the pods are deleted
		l.forget(pod(fmt.Sprint("slow-", i)))
	}
	for range tenantLookups {
		await.Receive(t, h.ended, "a lookup ends with its pod")
	}
	require.Empty(t, l.of)
	require.Empty(t, queued)
}

// A pod that asks for something else, or is another one by the same name, has a lookup of its own.
func TestLookups_OnePerPodForItsNewestRequest(t *testing.T) {
	l, h, queued := newTestLookups(t)
	_, err := l.get(pod("a"), asks("slow", "r-1"), time.Hour)
	require.ErrorIs(t, err, errLooking)
	_, err = l.get(pod("a"), asks("slow", "r-1"), time.Hour)
	require.ErrorIs(t, err, errLooking)
	require.Equal(t, "r-1", await.Receive(t, h.asked, "the registry is asked").Image)
	second := asks("other", "r-1")
	second.uid = "another"
	_, err = l.get(pod("a"), second, time.Hour)
	require.ErrorIs(t, err, errLooking)
	require.Equal(t, "slow", await.Receive(t, h.ended, "the first lookup is canceled").Tenant)
	require.Equal(t, "a", await.Receive(t, queued, "the pod is queued once"))
	known, err := l.get(pod("a"), second, time.Hour)
	require.NoError(t, err)
	require.NoError(t, known.failures[0])
	require.Equal(t, "other", await.Receive(t, h.asked, "the registry was asked once more").Tenant)
	require.Empty(t, h.asked)
}

// A lookup ends when the job no longer waits for it, also without a turn.
func TestLookups_EndInTime(t *testing.T) {
	l, _, queued := newTestLookups(t)
	for i := range tenantLookups {
		_, err := l.get(pod(fmt.Sprint(i)), asks("slow", "r"), time.Hour)
		require.ErrorIs(t, err, errLooking)
	}
	_, err := l.get(pod("late"), asks("slow", "r"), 0)
	require.ErrorIs(t, err, errLooking)
	require.Equal(t, "late", await.Receive(t, queued, "its time is over"))
	known, err := l.get(pod("late"), asks("slow", "r"), 0)
	require.NoError(t, err)
	require.ErrorIs(t, known.failures[0], context.DeadlineExceeded)
}

func TestLookups_HaveABound(t *testing.T) {
	l, _, _ := newTestLookups(t)
	for i := range maxLookups {
		_, err := l.get(pod(fmt.Sprint(i)), asks("slow", "r"), time.Hour)
		require.ErrorIs(t, err, errLooking)
	}
	_, err := l.get(pod("one more"), asks("other", "r"), time.Hour)
	require.ErrorIs(t, err, errFull)
}
