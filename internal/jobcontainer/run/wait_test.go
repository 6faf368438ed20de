package run

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/plan"
)

var twoContainers = []plan.Container{{Name: "job", Container: "job-1-0", Image: "debian:12"}, {Name: "postgres", Container: "service-1-0", Image: "postgres:17"}}

func TestAwaitGuards_SaysWhatTheControllerSaysOfPulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := newStandIn(t)
		close(pod.guard("job-1-0").ready)
		time.AfterFunc(time.Second, func() {
			pod.fail("service-1-0", "Image 'postgres:17' can't be pulled yet: timeout.\n::error::forged", false)
		})
		time.AfterFunc(40*time.Second, func() { pod.fail("service-1-0", "Image 'postgres:17' could not be pulled: no such host.", true) })
		begun := time.Now()
		err := pod.call().awaitGuards(t.Context(), twoContainers)
		require.EqualError(t, err, "Image 'postgres:17' could not be pulled: no such host.")
		require.LessOrEqual(t, time.Since(begun), 40*time.Second+400*time.Millisecond)
		require.Equal(t, "Image 'postgres:17' can't be pulled yet: timeout.\n| ::error::forged\n"+
			"Waiting for image 'postgres:17' to be pulled and started (15s).\nWaiting for image 'postgres:17' to be pulled and started (30s).\n", pod.text())
	})
}

// A kubelet starts no container in a pod that is being deleted, and its node waits for the runner.
func TestAwaitGuards_GivesUpInAPodThatIsBeingDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := newStandIn(t)
		close(pod.guard("job-1-0").ready)
		time.AfterFunc(3*time.Second, func() { close(pod.deleted) })
		begun := time.Now()
		require.EqualError(t, pod.call().awaitGuards(t.Context(), twoContainers), "The pod is being deleted.")
		require.LessOrEqual(t, time.Since(begun), 15*time.Second)

		time.AfterFunc(5*time.Second, func() { close(pod.guard("service-1-0").ready) })
		require.NoError(t, pod.call().awaitGuards(t.Context(), twoContainers), "one that was being started may still start")
	})
}

func TestAwaitGuards_HasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := newStandIn(t)
		begun := time.Now()
		err := pod.call().awaitGuards(t.Context(), twoContainers)
		require.ErrorContains(t, err, "did not start within 60 minutes. Use smaller images,")
		require.Equal(t, time.Hour, time.Since(begun))
		require.Contains(t, pod.text(), "Waiting for image 'debian:12' to be pulled and started (15s).\nWaiting for image 'postgres:17' to be pulled and started (15s).\n")
	})
}

// A node may pull the images of other jobs first, and then one of many gigabytes.
func TestAwaitGuards_WaitsForALongPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := newStandIn(t)
		for _, container := range twoContainers {
			time.AfterFunc(13*time.Minute, func() { close(pod.guard(container.Container).ready) })
		}
		require.NoError(t, pod.call().awaitGuards(t.Context(), twoContainers))
	})
}

func TestAwaitGuards_EndsWhenTheJobIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := newStandIn(t)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		begun := time.Now()
		require.ErrorIs(t, pod.call().awaitGuards(ctx, twoContainers), errCancelled)
		require.Equal(t, 3*time.Second, time.Since(begun))
	})
}

// A container whose connection has ended has a reason, which the controller knows a moment later.
func TestReason_AwaitsTheControllersWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := newStandIn(t)
		c := pod.call()
		c.Resources = "8 CPU, 16Gi"
		m := &member{Name: "job", Container: "job-1-0"}
		time.AfterFunc(800*time.Millisecond, func() { pod.tell(letter.Failure{Container: "job-1-0", Text: "memory", OutOfMemory: true, Final: true}) })
		require.EqualError(t, c.reason(m, client.ErrLost), "Container 'job' was killed: the job used more memory than the pool allows (16Gi).")
		begun := time.Now()
		require.ErrorContains(t, c.reason(&member{Name: "db", Container: "service-1-0"}, client.ErrAbsent), "Container 'db' ended unexpectedly.")
		require.Equal(t, 5*time.Second, time.Since(begun), "bounded")
	})
}
