package dispatch_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// words that jobs and pools make their labels of: few, so that sets meet.
var someLabels = []string{"self-hosted", "linux", "Linux", "x64", "linux-4", "LINUX-4", "gpu", "arm64"}

// CLAIM-18: GitHub gives a runner any job whose labels are among the runner's. Independently of the job that a runner was
// registered for, no job that its pool does not serve can run on it.
func TestLabels_CLAIM18_NoJobRunsOnAPoolThatDoesNotServeIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := rapid.SliceOfN(rapid.SampledFrom(someLabels), 1, 5)
		pool := dispatch.Pool{Name: "p", Labels: set.Draw(t, "labels of the pool")}
		made, other := set.Draw(t, "labels of the job it is made for"), set.Draw(t, "labels of another job")
		registered := pool.RegistrationLabels(made)
		require.Equal(t, pool.Serves(made), len(registered) > 0)
		if !pool.Serves(made) {
			return
		}
		require.Equal(t, dispatch.LabelKey(made), dispatch.LabelKey(registered), "exactly the job's own")
		has := func(label string) bool {
			return slices.ContainsFunc(registered, func(l string) bool { return strings.EqualFold(l, label) })
		}
		if !slices.ContainsFunc(other, func(label string) bool { return !has(label) }) { // GitHub may assign it
			require.True(t, pool.Serves(other), "%v runs on a runner made for %v", other, made)
		}
	})
}

func TestPool_CLAIM18_ServesJobsAllOfWhoseLabelsAreItsOwn(t *testing.T) {
	pool := linuxPool("p", "Linux-4cpu", "gpu")
	require.True(t, pool.Serves([]string{"linux-4cpu"}))
	require.True(t, pool.Serves([]string{"GPU", "linux-4cpu"}))
	require.Equal(t, []string{"GPU", "linux-4cpu"}, pool.RegistrationLabels([]string{"GPU", " linux-4cpu", "gpu"}), "as the job writes them, once each")
	require.False(t, pool.Serves([]string{"self-hosted"}), "asks for no pool in particular")
	require.False(t, pool.Serves([]string{"self-hosted", "linux", "gpu"}), "a runner with these could be given a job that asks for self-hosted alone")
	require.False(t, pool.Serves([]string{"linux-4cpu", "macOS"}))
	require.False(t, pool.Serves(nil))

	general := linuxPool("p", "linux-4", "self-hosted", "linux")
	require.True(t, general.Serves([]string{"self-hosted"}), "it lists that label")
	require.True(t, general.Serves([]string{"self-hosted", "Linux", "linux-4"}))
}

// CLAIM-18: what a runner is registered with at GitHub is the label set of its job.
func TestMint_CLAIM18_RegistersTheLabelsOfTheJob(t *testing.T) {
	h := newHarness(t)
	h.cluster.PutPool(linuxPool("linux", "linux", "gpu", "self-hosted"))
	h.record(job(fleet.JobEventQueued, 1, labelled("GPU", "self-hosted")))
	d := h.replica()
	pod := h.pod("linux")
	first := h.served(d, pod)
	require.Equal(t, []string{"GPU", "self-hosted"}, h.forge.Asked().Labels)

	// The answer was lost: the registration that replaces it has the same.
	again := h.served(d, pod)
	require.NotEqual(t, first.JIT.Name, again.JIT.Name)
	require.Equal(t, []string{"GPU", "self-hosted"}, h.forge.Asked().Labels)
}
