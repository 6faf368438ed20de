package console_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/poolaudit"
)

// The audit page names the person, marks a name that was not verified, links pools, and has the filters of the command line.
func TestAudit_ShowsPeopleAndPools(t *testing.T) {
	d := newDesk(t)
	cookie := d.session(adas)
	change := func(generation int64, intake, requester, stated string) {
		require.NoError(t, d.store.AuditPool(t.Context(), poolaudit.Entry{
			Pool:      poolaudit.Pool{Namespace: "runners", Name: "linux-4", UID: "u", Generation: generation, Spec: map[string]any{"intake": intake}},
			Requester: requester, Stated: stated, Now: time.Now(),
		}))
	}
	change(1, "Open", "", "")
	change(2, "Paused", "grace", "")
	change(3, "Open", "", "lin")
	_, err := d.store.Pause(t.Context(), admin.Change{Account: "acme", Actor: "system:serviceaccount:a:b", Requester: "joan", At: time.Now()}, true)
	require.NoError(t, err)

	all := d.page("/ui/audit", cookie)
	require.Contains(t, all, `<th scope="row">grace<details><summary>Details</summary><small>as kubernetes</small></details></th>`)
	require.Contains(t, all, `<th scope="row">kubernetes (stated by the client: lin)</th>`)
	require.Contains(t, all, `<th scope="row">joan<details><summary>Details</summary><small>as system:serviceaccount:a:b</small></details></th>`)
	require.Contains(t, all, `<a href="/ui/pools/runners/linux-4">runners/linux-4</a>`)
	require.Contains(t, all, "pool pause")
	require.Contains(t, all, "intake: Open → Paused")

	of := d.page("/ui/audit?pool=linux-4", cookie)
	require.Contains(t, of, "grace")
	require.NotContains(t, of, "joan")
	require.Contains(t, of, `name="pool" value="linux-4"`)
	tomorrow := time.Now().UTC().AddDate(0, 0, 1).Format(time.DateOnly)
	require.Contains(t, d.page("/ui/audit?since="+tomorrow, cookie), "No changes.")
	require.Contains(t, d.page("/ui/audit?until="+tomorrow, cookie), "joan")
}
