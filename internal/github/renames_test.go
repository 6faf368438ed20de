package github_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
)

const oneJob = "name: CI\non: [push]\njobs:\n  build:\n    runs-on: [linux]\n    steps:\n      - run: \"true\"\n"

// moved is a repository with a job and a runner that was renamed, so that its old name only redirects.
func moved(t *testing.T) (local *standin.Local, client *github.Client, job int64, was fleet.Repository) {
	t.Helper()
	local, client, hooks := world(t)
	_, err := local.Submit(standin.Submission{FileName: "ci.yaml", Repo: "acme/app", Content: oneJob})
	require.NoError(t, err)
	event := next[*github.WorkflowJobEvent](t, hooks)
	_, err = client.Mint(t.Context(), 42, fleet.MintRequest{
		Scope: fleet.Scope{Owner: "acme", Repo: "app"}, Name: "bp-x-1", Labels: []string{"other"}, WorkFolder: "_work",
	})
	require.NoError(t, err)
	require.NoError(t, local.Admin.RenameRepository(t.Context(), "acme/app", "former-app"))
	return local, client, event.Job.ID, fleet.Repository{Name: "acme/app", ID: event.Repository.ID}
}

// As long as no other repository has the old name, GitHub redirects it to the repository.
func TestRenamed_TheOldNameRedirects(t *testing.T) {
	t.Parallel()
	_, client, id, was := moved(t)
	job, err := client.Job(t.Context(), 42, fleet.Repository{Name: was.Name}, id)
	require.NoError(t, err)
	require.Equal(t, id, job.ID)
	found, err := client.FindRunner(t.Context(), 42, fleet.Scope{Owner: "acme", Repo: "app"}, "bp-x-1")
	require.NoError(t, err)
	name, err := client.RepositoryName(t.Context(), 42, was.ID)
	require.NoError(t, err)
	require.Equal(t, "acme/former-app", name)
	require.NoError(t, client.RemoveRunner(t.Context(), 42, fleet.Scope{Owner: "acme", Repo: "app"}, found.ID))
}

// EXCL-6: another repository has the old name, is readable, and has neither job nor runner. That proves nothing of the one
// that was meant, which is found by its id.
func TestRenamed_EXCL6_AnotherRepositorysAbsenceProvesNothing(t *testing.T) {
	t.Parallel()
	local, client, id, was := moved(t)
	_, err := local.Admin.Install(t.Context(), standin.Installation{Account: "acme", Repositories: []string{"app"}})
	require.NoError(t, err)
	nameOnly := fleet.Scope{Owner: "acme", Repo: "app"}
	_, err = client.FindRunner(t.Context(), 42, nameOnly, "bp-x-1")
	require.ErrorIs(t, err, github.ErrAbsent, "it is the other one that is asked")
	_, err = client.Job(t.Context(), 42, fleet.Repository{Name: was.Name}, id)
	require.ErrorIs(t, err, fleet.ErrNotFound)
	require.NoError(t, client.ReadRuns(t.Context(), 42, fleet.Repository{Name: was.Name}))

	job, err := client.Job(t.Context(), 42, was, id)
	require.NoError(t, err)
	require.Equal(t, id, job.ID)
	scope := nameOnly.Of(was.ID)
	found, err := client.FindRunner(t.Context(), 42, scope, "bp-x-1")
	require.NoError(t, err)
	list, err := client.Roster(t.Context(), 42, scope)
	require.NoError(t, err)
	require.True(t, list.Complete)
	require.Len(t, list.Runners, 1)
	require.NoError(t, client.RemoveRunner(t.Context(), 42, scope, found.ID))
	require.ErrorIs(t, client.RemoveRunner(t.Context(), 42, scope, found.ID), fleet.ErrNotFound)
	require.NoError(t, client.ControlRead(t.Context(), 42, scope))
	_, err = client.FindRunner(t.Context(), 42, scope, "bp-x-1")
	require.ErrorIs(t, err, github.ErrAbsent, "now it is gone, by the word of the one that was meant")
	_, err = client.Job(t.Context(), 42, was, 1<<40)
	require.ErrorIs(t, err, fleet.ErrNotFound)
	require.NoError(t, client.ReadRuns(t.Context(), 42, was))
}

// EXCL-6: a repository that cannot be read by its id proves nothing either, though its name can.
func TestRenamed_EXCL6_ARepositoryThatIsNotFoundByItsIdProvesNothing(t *testing.T) {
	t.Parallel()
	_, client, id, was := moved(t)
	was.ID = 1 << 40
	was.Name = "acme/former-app"
	scope := fleet.Scope{Owner: "acme", Repo: "former-app", RepositoryID: was.ID}
	_, err := client.Job(t.Context(), 42, was, id+1)
	require.ErrorIs(t, err, fleet.ErrUncertain)
	require.NotErrorIs(t, err, fleet.ErrNotFound)
	require.ErrorIs(t, client.ReadRuns(t.Context(), 42, was), fleet.ErrUncertain)
	require.ErrorIs(t, client.ControlRead(t.Context(), 42, scope), fleet.ErrUncertain)
	_, err = client.FindRunner(t.Context(), 42, scope, "nobody")
	require.ErrorIs(t, err, fleet.ErrUncertain)
	require.NotErrorIs(t, err, fleet.ErrNotFound)
}

// A job that is not found has cost a call, although the repository, which is read besides, has not changed. The same holds
// for the job, which is read once more where another repository has the old name.
func TestRenamed_WhatIsAskedBesidesMakesNothingFree(t *testing.T) {
	t.Parallel()
	local, client, id, was := moved(t)
	free := 0
	for range 2 {
		_, err := client.Job(github.WithFree(t.Context(), func() { free++ }), 42, fleet.Repository{Name: "acme/former-app", ID: was.ID}, 1<<40)
		require.ErrorIs(t, err, fleet.ErrNotFound)
	}
	_, err := local.Admin.Install(t.Context(), standin.Installation{Account: "acme", Repositories: []string{"app"}})
	require.NoError(t, err)
	for range 2 {
		_, err := client.Job(github.WithFree(t.Context(), func() { free++ }), 42, was, id)
		require.NoError(t, err)
	}
	require.Zero(t, free)
}
