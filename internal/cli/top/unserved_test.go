package top

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// CLAIM-21: the headline counts the jobs that no pool serves, the line below it names their labels, and the list says it of each of them.
func TestUnserved_CLAIM21_HeadlineAndListAgree(t *testing.T) {
	k := aFleet()
	for i := range k.jobs {
		if k.jobs[i].ID <= 12 { // the oldest of those that are queued, more than are asked about
			k.jobs[i].Labels = []string{"Self-Hosted", "linux"}
		}
	}
	oldest := noon.Add(-29 * time.Minute)
	k.unserved = &adminapi.UnservedJobs{Jobs: 12, Oldest: &oldest, GitHubHosted: 3, LabelSets: []adminapi.UnservedLabels{
		{Labels: []string{"linux", "self-hosted"}, Jobs: 12, Sentence: "12 jobs queued for labels that no pool serves: linux, self-hosted.", Remedy: "Write the label of a pool in runs-on."},
	}}
	m := shown(t, k, 160, 60)
	screen := text(m)
	require.Contains(t, screen, "12 with no pool (oldest 29m00s), 3 for GitHub's own runners")
	require.Contains(t, screen, "12 jobs queued for labels that no pool serves: linux, self-hosted. Write the label of a pool in runs-on.")
	m.turn(jobs)
	require.Equal(t, 12-mostWhys, strings.Count(text(m), "  no pool  "), "the others were asked about")
}

// CLAIM-21: of a job that names only a runner group the list has the code of bullpen why.
func TestUnserved_CLAIM21_AGroupAloneHasItsOwnReason(t *testing.T) {
	f := Fleet{Why: map[int64]string{}, Jobs: []adminapi.Job{{ID: 1, State: "queued"}, {ID: 2, State: "queued", Labels: []string{"gpu"}}}}
	f.Pools.Unserved = &adminapi.UnservedJobs{LabelSets: []adminapi.UnservedLabels{{}, {Labels: []string{"gpu"}}}}
	f.explainUnserved()
	require.Equal(t, map[int64]string{1: "no-labels", 2: "no-pool"}, f.Why)
}
