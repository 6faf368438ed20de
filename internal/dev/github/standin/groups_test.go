package standin_test

import (
	"testing"

	"github.com/google/go-github/v88/github"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
)

// A runner gets jobs of the repositories that its group serves alone, and of a job that names a group its runners alone.
func TestGroups_ServeTheirRepositories(t *testing.T) {
	for name, c := range map[string]struct {
		access   standin.GroupAccess
		public   bool
		runsOn   string
		assigned bool
	}{
		"all":                       {assigned: true},
		"all, public":               {public: true},
		"all, public allowed":       {access: standin.GroupAccess{AllowsPublicRepositories: true}, public: true, assigned: true},
		"selected":                  {access: standin.GroupAccess{Visibility: "selected", Repositories: []string{"APP"}}, assigned: true},
		"selected, another":         {access: standin.GroupAccess{Visibility: "selected", Repositories: []string{"other"}}},
		"private":                   {access: standin.GroupAccess{Visibility: "private"}, assigned: true},
		"private, public":           {access: standin.GroupAccess{Visibility: "private", AllowsPublicRepositories: true}, public: true},
		"the job names the group":   {runsOn: "{group: Builders, labels: [linux]}", assigned: true},
		"the job names no label":    {runsOn: "{group: builders}", assigned: true},
		"the job names a different": {runsOn: "{group: Default, labels: [linux]}"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(o *standin.Options) {
				o.Installations[0].RunnerGroups = []string{"builders"}
				o.Installations[0].GroupAccess = map[string]standin.GroupAccess{"builders": c.access}
				if c.public {
					o.Installations[0].PublicRepositories = []string{"app"}
				}
			})
			runsOn := c.runsOn
			if runsOn == "" {
				runsOn = "linux"
			}
			run := w.submit("on: push\njobs:\n  one:\n    runs-on: " + runsOn + "\n    steps: [{run: 'true'}]\n")
			request := &github.GenerateJITConfigRequest{Name: "r1", RunnerGroupID: 2, Labels: []string{"linux"}}
			newRunner(t, must(w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", request))).start(w.clock.Now())
			require.Equal(t, c.assigned, w.job(run, "one").Assigned)
		})
	}
}

// A group that is opened to a repository gives its jobs to runners that wait already.
func TestGroups_AreOpened(t *testing.T) {
	w := newWorld(t, func(o *standin.Options) {
		o.Installations[0].RunnerGroups = []string{"builders"}
		o.Installations[0].GroupAccess = map[string]standin.GroupAccess{"builders": {Visibility: "selected", Repositories: []string{"lib"}}}
	})
	run := w.submit(oneJob)
	request := &github.GenerateJITConfigRequest{Name: "r1", RunnerGroupID: 2, Labels: []string{"self-hosted", "linux"}}
	newRunner(t, must(w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", request))).start(w.clock.Now())
	require.False(t, w.job(run, "build").Assigned)
	selected, _, err := w.org.Actions.ListRepositoryAccessRunnerGroup(w.ctx, "acme", 2, nil)
	require.NoError(t, err)
	require.Len(t, selected.Repositories, 1)
	require.Equal(t, "acme/lib", selected.Repositories[0].GetFullName())
	visible, _, err := w.org.Actions.ListOrganizationRunnerGroups(w.ctx, "acme", &github.ListOrgRunnerGroupOptions{VisibleToRepository: "app"})
	require.NoError(t, err)
	require.Len(t, visible.RunnerGroups, 1, "the default one")
	group, _, err := w.org.Actions.GetOrganizationRunnerGroup(w.ctx, "acme", 2)
	require.NoError(t, err)
	require.Equal(t, "selected", group.GetVisibility())

	_, err = w.in.Admin.Install(w.ctx, standin.Installation{Account: "acme", GroupAccess: map[string]standin.GroupAccess{"builders": {}}})
	require.NoError(t, err)
	require.True(t, w.job(run, "build").Assigned)

	_, err = w.in.Admin.Install(w.ctx, standin.Installation{Account: "acme", GroupAccess: map[string]standin.GroupAccess{"none": {}}})
	require.ErrorContains(t, err, `there is no runner group "none"`)
	_, err = w.in.Admin.Install(w.ctx, standin.Installation{Account: "acme", GroupAccess: map[string]standin.GroupAccess{"builders": {Visibility: "some"}}})
	require.ErrorContains(t, err, "give all, selected or private")
}
