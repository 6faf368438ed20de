package github

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Members that GitHub's schema allows to be null, absent or empty have a zero value.
func TestParseWebhook_R12_WhatMayBeNullIsZero(t *testing.T) {
	for name, c := range map[string]struct{ member, value string }{
		"a number":             {`"run_id": 9`, `"run_id": 9.0`},
		"a number, empty":      {`"runner_id": null`, `"runner_id": ""`},
		"labels null":          {`"labels": ["bullpen-linux"]`, `"labels": null`},
		"labels absent":        {`"labels": ["bullpen-linux"],`, ``},
		"labels empty":         {`"labels": ["bullpen-linux"]`, `"labels": []`},
		"a label null":         {`"labels": ["bullpen-linux"]`, `"labels": [null, ""]`},
		"name null":            {`"name": "build (1)"`, `"name": null`},
		"branch null":          {`"head_branch": "main"`, `"head_branch": null`},
		"times empty":          {`"2026-01-02T03:04:05Z"`, `""`},
		"times zero":           {`"2026-01-02T03:04:05Z"`, `"0001-01-01T00:00:00Z"`},
		"attempt null":         {`"run_attempt": 2`, `"run_attempt": null`},
		"organization null":    {`{"id": 5, "login": "acme"},`, `null,`},
		"installation null":    {`{"id": 42, "node_id": "x"}`, `null`},
		"installation's null":  {`{"id": 42, "node_id": "x"}`, `{"id": null}`},
		"installation absent":  {`"installation": {"id": 42, "node_id": "x"},`, ``},
		"the owner's type":     {`"login": "acme", "type": "Organization"`, `"login": "acme", "type": null`},
		"installation of none": {`{"id": 42, "node_id": "x"}`, `{"id": -1}`},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, queuedBody, c.member)
			got, err := ParseWebhook("workflow_job", []byte(strings.Replace(queuedBody, c.member, c.value, 1)))
			require.NoError(t, err)
			event, ok := got.(*WorkflowJobEvent)
			require.True(t, ok)
			require.NotNil(t, event.Job.Labels)
			require.NotContains(t, event.Job.Labels, "")
			require.GreaterOrEqual(t, event.InstallationID, int64(0))
			require.True(t, event.Job.StartedAt.IsZero())
		})
	}
}

func TestParseWebhook_R12_ARefusalNamesTheMemberAndNotItsValue(t *testing.T) {
	replace := func(old, by string) string {
		require.Contains(t, queuedBody, old)
		return strings.Replace(queuedBody, old, by, 1)
	}
	long := strings.Repeat("hunter2-", 64)
	for names, body := range map[string]string{
		"workflow_job.id":                       replace(`"id": 81`, `"id": "hunter2"`),
		"workflow_job.labels":                   replace(`["bullpen-linux"]`, `"hunter2"`),
		"workflow_job.run_id is not a whole":    replace(`"run_id": 9`, `"run_id": 9.4242`),
		"workflow_job.created_at is not a time": replace(`"2026-01-02T03:04:05Z"`, `"hunter2"`),
		"workflow_job.completed_at":             replace(`"completed_at": null`, `"completed_at": 1e300`),
		"workflow_job.started_at is not a time": replace(`"started_at": null`, `"started_at": {"hunter2": 1}`),
		"workflow_job.runner_name is longer":    replace(`"runner_name": null`, `"runner_name": "`+long+`"`),
		"repository.full_name is longer":        replace(`"acme/app"`, `"acme/`+long+`"`),
		"it has no repository.full_name":        replace(`"acme/app"`, `""`),
		"it has no repository.owner.login":      replace(`"login": "acme", "type"`, `"login": "", "type"`),
		"it has no repository.owner.id":         replace(`{"id": 5, "login": "acme", "type": "Organization"}`, `null`),
		"it has no workflow_job.id":             `{"action": "queued", "workflow_job": null}`,
		"it has no action":                      `null`,
		"the body is not a JSON object":         `["hunter2"]`,
		"set the webhook's content type":        `hunter2=1`,
		"repository must not be of type bool":   `{"repository": true}`,
	} {
		t.Run(names, func(t *testing.T) {
			_, err := ParseWebhook("workflow_job", []byte(body))
			require.ErrorContains(t, err, names)
			require.NotContains(t, err.Error(), "hunter2")
			require.NotContains(t, err.Error(), "4242")
		})
	}
}

// An account may be null or an enterprise's in GitHub's schema.
func TestParseWebhook_R12_InstallationsOfOtherAccounts(t *testing.T) {
	const form = `{"action":"ACTION","installation":{"id":42,INSTALLATION},"repositories_removed":[{"full_name":"acme/app"}]}`
	for name, c := range map[string]struct {
		members    string
		account    Account
		enterprise bool
		at         time.Time
	}{
		"null":                     {members: `"account":null`},
		"an enterprise":            {members: `"account":{"id":7,"slug":"octo","name":"Octo","node_id":"x"},"target_type":"Enterprise"`, enterprise: true},
		"a deleted enterprise":     {members: `"account":null,"target_type":"Enterprise"`, enterprise: true},
		"a user":                   {members: `"account":{"id":8,"login":"ada","type":"User"}`, account: Account{8, "ada", "User"}},
		"a user by its target":     {members: `"account":{"id":8,"login":"ada"},"target_type":"User"`, account: Account{8, "ada", "User"}},
		"suspended by Unix time":   {members: `"account":null,"suspended_at":1700000000`, at: time.Unix(1_700_000_000, 0).UTC()},
		"suspended at no time":     {members: `"account":null,"suspended_at":""`},
		"suspended at a zero time": {members: `"account":null,"suspended_at":0`},
	} {
		t.Run(name, func(t *testing.T) {
			body := strings.NewReplacer("ACTION", "deleted", "INSTALLATION", c.members).Replace(form)
			got, err := ParseWebhook("installation", []byte(body))
			require.NoError(t, err)
			require.Equal(t, &InstallationEvent{
				Action: "deleted", InstallationID: 42, Account: c.account, Enterprise: c.enterprise, SuspendedAt: c.at,
			}, got)
			got, err = ParseWebhook("installation_repositories", []byte(body))
			require.NoError(t, err)
			require.Equal(t, &InstallationRepositoriesEvent{
				Action: "deleted", InstallationID: 42, Account: c.account, Enterprise: c.enterprise, Removed: []string{"acme/app"},
			}, got)
		})
	}
}

func TestPayloadOf_R12_AFormHoldsThePayload(t *testing.T) {
	form := url.Values{"payload": {queuedBody}}.Encode()
	for _, kind := range []string{"application/x-www-form-urlencoded", "Application/X-WWW-Form-URLEncoded; charset=UTF-8"} {
		for _, body := range []string{form, "other=1&" + form} {
			got, err := PayloadOf(kind, []byte(body))
			require.NoError(t, err)
			require.Equal(t, queuedBody, string(got))
		}
	}
	for _, kind := range []string{"application/json", "", "text/plain", "application/vnd.github+json; charset=utf-8", "none at all"} {
		got, err := PayloadOf(kind, []byte(queuedBody))
		require.NoError(t, err)
		require.Equal(t, queuedBody, string(got), kind)
	}
	for _, body := range []string{"", "other=1", "payload=%zz", queuedBody} {
		_, err := PayloadOf("application/x-www-form-urlencoded", []byte(body))
		require.ErrorContains(t, err, "payload")
	}
}

// NET-6: the headers that name an event are not signed. The end of a repository is no end of the installation, even if a
// replay names another event.
func TestParseWebhook_NET6_AnotherEventsInstallationIsNoInstallationEvent(t *testing.T) {
	for _, installation := range []string{`{"id":42}`, `{"id":42,"node_id":"x"}`, `null`, `{}`} {
		body := `{"action":"deleted","repository":{"id":7,"full_name":"acme/app"},"installation":` + installation + `}`
		for _, event := range []string{"installation", "installation_repositories"} {
			_, err := ParseWebhook(event, []byte(body))
			require.ErrorContains(t, err, "it has no installation.")
		}
	}
}
