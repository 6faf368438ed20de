package incidents

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// A pool with the longest name that Kubernetes allows.
func TestName_CLAIM10_OfAPoolWithALongName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := strings.Repeat("long-", 12) + "x"
	w.pool(name)
	p := w.add(name)
	run := w.submit("acme", name, 1)
	run.running()
	runner := w.claim(p).RunnerName
	require.LessOrEqual(t, len(runner), 64)
	uid, ours := runnerpod.PodUID(runner)
	require.True(t, ours)
	require.Equal(t, p.UID, uid, "the pod is read from the name, without any row")
	run.release()
	run.succeed()

	// Control: a name made of the pod's.
	_, err := w.forge.Mint(t.Context(), 101, mintRequest(p.Name))
	require.ErrorIs(t, err, fleet.ErrRejected)
}

// GitHub mints, and the answer is lost.
func TestName_CLAIM10_CLAIM16_UsedAgainAfterALostAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lost := w.fault(standin.Fault{Kind: "rest-cut", Route: "generate-jitconfig", Times: 1})
	p := w.add("linux")
	run := w.submit("acme", "linux", 1)
	w.eventually("the answer is lost", func() bool { return w.struck(lost) == 1 })
	w.clock.Advance(time.Minute) // the installation's back-off
	run.running()
	require.Equal(t, run.jobs[0], w.claim(p).JobID, "the same pod")
	require.Len(t, w.runners(), 1, "the registration of the lost answer was found by its name and removed")
	require.EqualValues(t, 2, w.count(`SELECT count(*) FROM runner_registrations`), "two names for two mints")
	run.release()
	run.succeed()

	// Control: the same name again.
	w.fault(standin.Fault{Kind: "rest-cut", Route: "generate-jitconfig", Times: 1})
	_, err := w.forge.Mint(t.Context(), 101, mintRequest("the-same-name"))
	require.ErrorIs(t, err, fleet.ErrUncertain)
	for range 3 {
		_, err = w.forge.Mint(t.Context(), 101, mintRequest("the-same-name"))
		require.ErrorIs(t, err, fleet.ErrNameTaken)
	}
}

func mintRequest(name string) fleet.MintRequest {
	return fleet.MintRequest{Scope: fleet.Scope{Owner: "acme"}, Name: name, Labels: []string{"linux"}, RunnerGroupID: 1, WorkFolder: "_work"}
}

// An account is known under a login that GitHub does not have, as it is after a rename while jobs wait.
func TestInstallation_CLAIM11_AWrongLoginPinsAndSpinsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *worldOptions) { o.accounts = []string{"acme", "other"} })
	stuck := w.submit("acme", "linux", 1).known()
	w.write(`UPDATE accounts SET login = 'the-handle-it-has-with-us' WHERE login = 'acme'`)
	w.add("linux")
	refused := func() int {
		stats, err := w.github.Admin.Stats(t.Context())
		require.NoError(t, err)
		return stats.Routes["POST /orgs/{login}/actions/runners/generate-jitconfig"].ByStatus[http.StatusNotFound]
	}
	w.eventually("GitHub does not know that organization", func() bool { return refused() > 0 })
	for range 3 { // all other readers see the same pod
		run := w.submit("other", "linux", 1)
		run.running()
		run.release()
		run.succeed()
		w.add("linux")
	}
	for range 10 { // ten minutes, in which thirty polls a minute ask elsewhere
		w.clock.Advance(time.Minute)
		w.settle()
	}
	require.LessOrEqual(t, refused(), 12, "asked less and less often, and not at every poll")
	w.eventually("the job waits, and no pod with it", func() bool { // the last one that was asked for may just be refused
		return w.state(stuck.jobs[0]) == fleet.JobQueued && w.count(`SELECT count(*) FROM runner_claims WHERE state IN ('claimed', 'minted')`) == 0
	})

	again := w.submit("acme", "linux", 1).known() // any event says what the account is called
	w.add("linux")
	w.add("linux")
	w.clock.Advance(5 * time.Minute) // the longest back-off
	stuck.running()
	again.release()
	stuck.release()
	stuck.succeed()
}
