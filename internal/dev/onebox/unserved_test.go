package onebox

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

func queuedJob(id int64, name string, labels ...string) standin.JobView {
	return standin.JobView{ID: id, Name: name, Status: "queued", Labels: labels}
}

// CLAIM-21: a job that no pool serves is named as soon as it is queued, with its labels, the nearest pool and the label to write.
func TestUnservedEvents_CLAIM21_NameTheLabelToWrite(t *testing.T) {
	pools := []fleet.LabelledPool{{Name: "default", Labels: []string{"bullpen", "self-hosted", "linux"}}}
	for name, c := range map[string]struct {
		jobs []standin.JobView
		want []string
	}{
		"served": {[]standin.JobView{queuedJob(1, "ok", "bullpen"), queuedJob(2, "ok", "Self-Hosted", "linux")}, nil},
		"misspelt": {
			[]standin.JobView{queuedJob(1, "build", "bulpen")},
			[]string{"job build stays queued: no pool serves bulpen. Nearest: pool default has bullpen, not bulpen. Write `runs-on: bullpen` in the workflow, or add bulpen to spec.labels of pool default."},
		},
		"as ARC's users write it, many times": {
			[]standin.JobView{queuedJob(1, "t (1)", "self-hosted", "linux", "x64"), queuedJob(2, "t (2)", "self-hosted", "linux", "x64"), queuedJob(3, "t (3)", "self-hosted", "linux", "x64")},
			[]string{"job t (1) (and 2 more) stays queued: no pool serves self-hosted, linux, x64. Nearest: pool default lacks x64. Write `runs-on: [self-hosted, linux]` in the workflow, or add x64 to spec.labels of pool default."},
		},
		"GitHub's": {
			[]standin.JobView{queuedJob(1, "ub", "ubuntu-latest")},
			[]string{"job ub stays queued: no pool serves ubuntu-latest. GitHub's own runners are not part of the stand-in. Write the label of a pool in runs-on, such as bullpen, or add a RunnerPool with these labels."},
		},
		"a runner group": {[]standin.JobView{queuedJob(1, "g")}, []string{"job g stays queued: its runs-on names no label. Write the label of a pool in runs-on, such as bullpen."}},
	} {
		t.Run(name, func(t *testing.T) {
			var says []string
			for _, event := range unservedEvents(pools, c.jobs) {
				require.Equal(t, EventNote, event.Kind)
				says = append(says, event.Message)
			}
			require.Equal(t, c.want, says)
		})
	}
}

// Each job is reported once. Jobs that runners take are ignored, and pools that cannot be read are read again.
func TestUnservedWatch_ReportsEachJobOnce(t *testing.T) {
	read, failing := 0, errors.New("the API server is being restarted")
	w := unservedWatch{pools: func(context.Context) ([]fleet.LabelledPool, error) {
		read++
		return []fleet.LabelledPool{{Name: "default", Labels: []string{"bullpen"}}}, failing
	}, at: " --state-dir /x"}
	jobs := []standin.JobView{queuedJob(1, "a", "gpu"), {ID: 2, Status: "in_progress", Labels: []string{"gpu"}}, {ID: 3, Status: "queued", Assigned: true, Labels: []string{"gpu"}}}
	require.Empty(t, w.look(t.Context(), jobs))
	failing = nil
	jobs[0].RunID = 8
	events := w.look(t.Context(), jobs)
	require.Len(t, events, 1)
	require.Regexp(t, "^job a stays queued: no pool serves gpu\\. .*\\. `bullpen cancel --run 8 --state-dir /x` cancels the run\\.$", events[0].Message)
	require.Empty(t, w.look(t.Context(), jobs))
	require.Equal(t, 2, read, "pools are read only for new jobs")
	require.Len(t, w.look(t.Context(), append(jobs, queuedJob(4, "b", "gpu"))), 1)
}
