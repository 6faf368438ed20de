package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
)

// CLAIM-21: queued jobs that no pool serves are found, by the database's jobs and the cluster's pools; jobs for GitHub's own runners are not.
func TestDoctor_CLAIM21_FindsJobsThatNoPoolServes(t *testing.T) {
	s := newSite(t)
	s.look.Outside = fleet.OutsideRunners{GitHub: fleet.GitHubHosted()}
	store, err := ledger.Open(t.Context(), s.look.DatabaseURL, 2)
	require.NoError(t, err)
	defer store.Close()
	queue := func(id int64, age time.Duration, labels ...string) {
		_, err := store.RecordJob(t.Context(), dispatch.Delivery{Event: "workflow_job", At: time.Now()}, dispatch.JobEvent{
			Kind: fleet.JobEventQueued, Account: dispatch.Account{ID: 1, Login: "acme", InstallationID: 42}, JobID: id, Repository: "acme/app", RunID: 1,
			Labels: labels, QueuedAt: time.Now().Add(-age),
		})
		require.NoError(t, err)
	}
	queue(1, time.Hour, "linux-4")
	queue(2, time.Hour, "ubuntu-latest")
	require.Empty(t, s.examine().Findings)
	queue(3, time.Minute, "linx-4")
	r := s.examine()
	require.Len(t, r.Findings, 1)
	require.Equal(t, SeverityWarning, r.Findings[0].Severity)
	queue(4, time.Hour, "linx-4")
	f := s.finds("unserved-labels", "2 jobs queued for labels that no pool serves: linx-4. Nearest: pool linux has linux-4, not linx-4.", "job 4 of acme/app, was queued 1h0m")
	require.Contains(t, f.Remedy, "Write `runs-on: linux-4`")
}

// CLAIM-21: a job that names only a runner group is counted by the pools' groups, as the server does.
func TestDoctor_CLAIM21_CountsAGroupAloneByThePoolsGroups(t *testing.T) {
	lanes := dispatch.UnservedLanes{Lanes: []dispatch.UnservedLane{{LabelKey: dispatch.LabelKey(nil), Jobs: 2}}}
	find := func(group *intstr.IntOrString) dispatch.Unserved {
		pool := &v1alpha1.RunnerPool{Spec: v1alpha1.RunnerPoolSpec{Labels: []string{"linux"}, RunnerGroup: group}}
		return dispatch.FindUnserved(routedPools(Cluster{Pools: []Pool{readPool(pool)}}), fleet.OutsideRunners{}, lanes)
	}
	for name, group := range map[string]*intstr.IntOrString{"unset": nil, "the default": ptr.To(intstr.FromInt32(1))} {
		require.Equal(t, map[fleet.Outside]int64{fleet.OutsideOther: 2}, find(group).Outside, name)
	}
	for name, group := range map[string]*intstr.IntOrString{"a name": ptr.To(intstr.FromString("builders")), "an ID": ptr.To(intstr.FromInt32(7))} {
		found := find(group)
		require.EqualValues(t, 2, found.Jobs, name)
		report := Report{}
		examineUnserved(&report, found, time.Now())
		require.Contains(t, report.Findings[0].Sentence, "only a runner group", name)
		require.Equal(t, "Write the label of a pool in runs-on, such as linux.", report.Findings[0].Remedy, name)
	}
}
