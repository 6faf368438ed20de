package console_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// CLAIM-21: the overview and the pools' page name the labels that no pool serves, and what to write instead. The number of queued jobs is that of
// the pools: those without a pool, and those for GitHub's own runners, have numbers of their own.
func TestOverview_CLAIM21_NamesJobsThatNoPoolServes(t *testing.T) {
	d := newDesk(t)
	for id, labels := range map[int64][]string{1: {"linux-4"}, 2: {"linx-4"}, 3: {"linx-4"}, 4: {"ubuntu-latest"}} {
		d.tell(fleet.JobEventQueued, id, func(ev *dispatch.JobEvent) { ev.Labels = labels })
	}
	ada := d.session(adas)
	text := func(path string) string {
		shown := body(t, d.ask("GET", path, ada, ""))
		return strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(shown, " ")), " ")
	}
	require.NotContains(t, text("/ui/"), "no pool serves")
	require.Regexp(t, `Queued 4 Oldest wait [-0-9: ]+ UTC Blocked 2 Running 0`, text("/ui/"), "as the pools count")

	lanes, err := d.store.UnservedLanes(t.Context(), nil)
	require.NoError(t, err)
	found := dispatch.FindUnserved([]dispatch.Pool{linux4}, fleet.OutsideRunners{GitHub: fleet.GitHubHosted()}, lanes)
	d.unserved.Store(&found)
	require.Regexp(t, `Queued 4 Oldest wait [-0-9: ]+ UTC Blocked 2 No pool 2 For GitHub's own runners 1 Running 0`, text("/ui/"))
	for _, path := range []string{"/ui/", "/ui/pools"} {
		shown := body(t, d.ask("GET", path, ada, ""))
		require.Contains(t, text(path), "2 jobs queued for labels that no pool serves: linx-4. Nearest: pool linux-4 has linux-4, not linx-4.", path)
		require.Contains(t, shown, "Write <code>runs-on: linux-4</code> in the workflow", path)
		require.Contains(t, shown, `href="/ui/jobs?state=no_pool"`, path)
		require.Contains(t, shown, found.Oldest.UTC().Format(time.RFC3339Nano), path)
	}
}
