package cli_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// idle is a runner of the one pool there is.
func (d *desk) idle(name string) dispatch.Pod {
	d.t.Helper()
	pod := dispatch.Pod{Namespace: "runners", Name: name, UID: podUIDs[name], Pool: dispatch.PoolRef{Namespace: "runners", Name: "linux-4"}}
	require.NotEmpty(d.t, pod.UID)
	d.fleet.runners = append(d.fleet.runners, pod)
	return pod
}

func (d *desk) refused(name string) *cli.APIError {
	d.t.Helper()
	_, err := d.Retire(d.t.Context(), "runners", name, "")
	var refused *cli.APIError
	require.ErrorAs(d.t, err, &refused)
	return refused
}

func (d *desk) retirements() []adminapi.AuditEvent {
	d.t.Helper()
	events, err := d.Audit(d.t.Context(), cli.AuditFilter{Most: 100})
	require.NoError(d.t, err)
	var found []adminapi.AuditEvent
	for _, event := range events {
		if event.Action == adminapi.ActionRetire {
			found = append(found, event)
		}
	}
	return found
}

// An idle runner is retired once, and the audit log says by whom; it is never given work after that.
func TestRetire_EXCL5_AnIdleRunner(t *testing.T) {
	d := newDesk(t)
	pod := d.idle("linux-4-a")
	retired, err := d.Retire(t.Context(), "runners", pod.Name, "its disk is slow")
	require.NoError(t, err)
	require.Equal(t, adminapi.RetiredRunner{
		Namespace: "runners", Name: pod.Name, UID: pod.UID, Pool: "linux-4", State: string(fleet.ClaimRetired), Changed: true,
	}, retired)
	require.Equal(t, []string{pod.UID}, d.fleet.changed, "whoever holds its poll is told")

	again, err := d.Retire(t.Context(), "runners", pod.Name, "")
	require.NoError(t, err)
	require.Equal(t, string(fleet.ClaimRetired), again.State)
	require.False(t, again.Changed)
	d.fleet.runners[0].PollerEnded = true // it was asked to stop, and exits
	again, err = d.Retire(t.Context(), "runners", pod.Name, "")
	require.NoError(t, err)
	require.False(t, again.Changed)
	events := d.retirements()
	require.Len(t, events, 1, "a repetition changes nothing")
	require.Equal(t, []string{"ada", "JTI=1", "runners/linux-4-a", "its disk is slow"},
		[]string{events[0].Actor, events[0].Credential, events[0].Account, events[0].Reason})
	require.Equal(t, "runners/linux-4", events[0].Pool)
	ofPool, err := d.Audit(t.Context(), cli.AuditFilter{Pool: "linux-4", Most: 10})
	require.NoError(t, err)
	require.Equal(t, events, ofPool)
	require.JSONEq(t, `{"pod":"linux-4-a","pool":"linux-4","uid":"`+pod.UID+`"}`, string(events[0].After))

	d.tell(fleet.JobEventQueued, 7)
	d.claim("linux-4-a")
	claim, err := d.store.Claim(t.Context(), pod.UID)
	require.NoError(t, err)
	require.Equal(t, fleet.ClaimRetired, claim.State)
}

// A runner that was chosen for a job is refused, whatever its pod shows, and its claim stays what it was (EXCL-1).
func TestRetire_EXCL1_ABusyRunnerIsLeftAlone(t *testing.T) {
	d := newDesk(t)
	pod := d.idle("linux-4-a")
	d.tell(fleet.JobEventQueued, 7)
	d.claim("linux-4-a")
	before, err := d.store.Claim(t.Context(), pod.UID)
	require.NoError(t, err)
	require.True(t, before.State.Live())

	refused := d.refused(pod.Name)
	require.Equal(t, http.StatusConflict, refused.Status)
	require.Contains(t, refused.Sentence, "busy with a job for acme")
	after, err := d.store.Claim(t.Context(), pod.UID)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Empty(t, d.retirements())
	require.Empty(t, d.fleet.changed)
}

// EXCL-4: any sign of work vetoes, also where the ledger has lost its rows. EXCL-3: what cannot be known is no yes.
func TestRetire_EXCL4_AnySignOfWorkVetoes(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(*desk, *dispatch.Pod)
		status int
		says   string
	}{
		"an owner":            {func(_ *desk, p *dispatch.Pod) { p.OwnerLabel = "acme" }, http.StatusConflict, "busy with a job for acme"},
		"a staged job":        {func(_ *desk, p *dispatch.Pod) { p.PollerEnded = true }, http.StatusConflict, "was left running"},
		"a ledger on hold":    {func(d *desk, _ *dispatch.Pod) { d.fleet.held = "it was restored" }, http.StatusConflict, "after a restore"},
		"one of another kind": {func(_ *desk, p *dispatch.Pod) { p.Pool = dispatch.PoolRef{} }, http.StatusConflict, "is a self-registering runner"},
		"none at all":         {func(_ *desk, p *dispatch.Pod) { p.Name = "another" }, http.StatusNotFound, `runner "linux-4-a" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			uid := d.idle("linux-4-a").UID
			c.spoil(d, &d.fleet.runners[0])
			refused := d.refused("linux-4-a")
			require.Equal(t, c.status, refused.Status)
			require.Contains(t, refused.Sentence, c.says)
			claim, err := d.store.Claim(t.Context(), uid)
			require.NoError(t, err)
			require.Empty(t, claim.State, "nothing was written")
			require.Empty(t, d.retirements())
		})
	}
}

// EXCL-1: an administrator and dispatch at the same time: exactly one has the pod.
func TestRetire_EXCL1_RacesWithAClaim(t *testing.T) {
	for range 8 {
		d := newDesk(t)
		pod := d.idle("linux-4-a")
		d.tell(fleet.JobEventQueued, 7)
		done := make(chan error, 1)
		go func() {
			_, err := d.Retire(t.Context(), "runners", pod.Name, "")
			done <- err
		}()
		d.claim("linux-4-a")
		var err error
		select {
		case err = <-done:
		case <-time.After(20 * time.Second):
			t.Fatal("no answer")
		}
		claim, readErr := d.store.Claim(t.Context(), pod.UID)
		require.NoError(t, readErr)
		if claim.State == fleet.ClaimRetired {
			require.NoError(t, err)
		} else {
			require.True(t, claim.State.Live())
			require.Error(t, err)
		}
		require.Equal(t, claim.State == fleet.ClaimRetired, len(d.retirements()) == 1)
	}
}
