package github

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const queuedBody = `{
  "action": "queued",
  "workflow_job": {
    "id": 81, "run_id": 9, "run_attempt": 2, "name": "build (1)", "workflow_name": "CI", "head_branch": "main",
    "head_sha": "abc", "labels": ["bullpen-linux"], "status": "queued", "conclusion": null,
    "runner_id": null, "runner_name": null, "created_at": "2026-01-02T03:04:05Z", "started_at": null,
    "completed_at": null, "steps": []
  },
  "repository": {"id": 7, "full_name": "acme/app", "owner": {"id": 5, "login": "acme", "type": "Organization"}},
  "organization": {"id": 5, "login": "acme"},
  "installation": {"id": 42, "node_id": "x"},
  "sender": {"login": "someone"}
}`

const installedBody = `{"action":"created","installation":{"id":42,"account":{"id":5,"login":"acme",` +
	`"type":"Organization"},"suspended_at":null},"repositories":[]}`

func TestVerifySignature_NET6_OnlyOurSecretIsAccepted(t *testing.T) {
	body := []byte(queuedBody)
	good := Sign("secret", body)
	require.NoError(t, VerifySignature("secret", good, body))
	// The value that RFC 4231's second case gives for this key and text.
	require.Equal(t, "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
		Sign("Jefe", []byte("what do ya want for nothing?")))

	bad := map[string][3]string{
		"other secret":   {"secret", Sign("other", body), queuedBody},
		"other body":     {"secret", good, queuedBody + " "},
		"no header":      {"secret", "", queuedBody},
		"no prefix":      {"secret", strings.TrimPrefix(good, "sha256="), queuedBody},
		"old algorithm":  {"secret", "sha1=" + strings.TrimPrefix(good, "sha256="), queuedBody},
		"not hex":        {"secret", "sha256=zz", queuedBody},
		"cut":            {"secret", good[:len(good)-2], queuedBody},
		"only prefix":    {"secret", "sha256=", queuedBody},
		"empty secret":   {"", Sign("", body), queuedBody},
		"trailing bytes": {"secret", good + "00", queuedBody},
	}
	for name, one := range bad {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, VerifySignature(one[0], one[1], []byte(one[2])), ErrBadSignature)
		})
	}
}

// NET-6: while a secret is rotated a webhook may be signed with either of the two, and with nothing else.
func TestWebhookSecrets_NET6_EitherOfTwoIsAcceptedAndNamedByPosition(t *testing.T) {
	body := []byte(queuedBody)
	secrets, err := NewWebhookSecrets("new", "old")
	require.NoError(t, err)
	position := func(secret string) SecretPosition {
		found, err := secrets.Verify(Sign(secret, body), body)
		if err != nil {
			require.ErrorIs(t, err, ErrBadSignature)
			require.Empty(t, found)
		}
		return found
	}
	require.Equal(t, SecretCurrent, position("new"))
	require.Equal(t, SecretPrevious, position("old"))
	for _, wrong := range []string{"", "newold", "new|old", "other"} {
		require.Empty(t, position(wrong), wrong)
	}
	_, err = secrets.Verify("", body)
	require.ErrorIs(t, err, ErrBadSignature)

	require.NoError(t, secrets.Set("new", "new"))
	require.Equal(t, SecretCurrent, position("new"), "the old one may go")
	require.NoError(t, secrets.Set("new", ""))
	require.Empty(t, position("old"), "the rotation is over")
	require.Empty(t, position(""), "an absent secret is not an empty one")

	require.Error(t, secrets.Set("", "old"))
	require.Error(t, secrets.Set("new\nold", ""))
	require.Equal(t, SecretCurrent, position("new"), "what was in use stays")
	_, err = (&WebhookSecrets{}).Verify(Sign("", body), body)
	require.ErrorIs(t, err, ErrBadSignature, "without a secret nothing is accepted")
	_, err = NewWebhookSecrets("", "")
	require.Error(t, err)
}

func TestParseWebhook_WorkflowJob(t *testing.T) {
	got, err := ParseWebhook("workflow_job", []byte(queuedBody))
	require.NoError(t, err)
	require.Equal(t, &WorkflowJobEvent{
		Action: JobQueued,
		Job: WorkflowJob{
			ID: 81, RunID: 9, RunAttempt: 2, Name: "build (1)", WorkflowName: "CI", HeadBranch: "main", HeadSHA: "abc",
			Labels: []string{"bullpen-linux"}, Status: "queued", CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		},
		Repository: Repository{
			ID: 7, FullName: "acme/app", Owner: Account{ID: 5, Login: "acme", Type: "Organization"},
		},
		InstallationID: 42, Organization: "acme",
	}, got)
}

func TestParseWebhook_Installation(t *testing.T) {
	got, err := ParseWebhook("installation", []byte(installedBody))
	require.NoError(t, err)
	require.Equal(t, &InstallationEvent{
		Action: InstallationCreated, InstallationID: 42, Account: Account{ID: 5, Login: "acme", Type: "Organization"},
	}, got)
}

const takenBody = `{"action":"removed","installation":{"id":42,"account":{"id":5,"login":"acme","type":"Organization"}},
	"repository_selection":"selected","repositories_added":[],"repositories_removed":[{"id":7,"full_name":"acme/app"},{"id":8}]}`

func TestParseWebhook_InstallationRepositories(t *testing.T) {
	got, err := ParseWebhook("installation_repositories", []byte(takenBody))
	require.NoError(t, err)
	require.Equal(t, &InstallationRepositoriesEvent{
		Action: RepositoriesRemoved, InstallationID: 42, Account: Account{ID: 5, Login: "acme", Type: "Organization"},
		Removed: []string{"acme/app"},
	}, got)
	for body, says := range map[string]string{
		`{}`: "it has no action", `{"action":"added"}`: "installation.id",
		`{"action":"added","installation":{"id":1,"account":{"id":5}}}`: "installation.account.login",
		`{"action":"added","repositories_added":"all"}`:                 "repositories_added must not be of type string",
	} {
		_, err := ParseWebhook("installation_repositories", []byte(body))
		var malformed *MalformedError
		require.ErrorAs(t, err, &malformed)
		require.ErrorContains(t, err, says)
	}
}

func TestParseWebhook_OtherEvents(t *testing.T) {
	got, err := ParseWebhook("ping", []byte(`{"zen":"…"}`))
	require.NoError(t, err)
	require.IsType(t, &PingEvent{}, got)
	got, err = ParseWebhook("star", []byte(`whatever`))
	require.NoError(t, err)
	require.Equal(t, &UnknownEvent{Event: "star"}, got)
}

func TestParseWebhook_MalformedIsTypedAndShowsNothing(t *testing.T) {
	for name, body := range map[string]string{
		"empty":          ``,
		"truncated":      queuedBody[:len(queuedBody)/2],
		"not an object":  `[1]`,
		"no job":         `{"action":"queued","repository":{"id":7,"full_name":"a/b","owner":{"id":5,"login":"a"}}}`,
		"no action":      strings.Replace(queuedBody, `"queued",`, `"",`, 1),
		"no repository":  `{"action":"queued","workflow_job":{"id":81}}`,
		"id is a string": strings.Replace(queuedBody, `"id": 81`, `"id": "hunter2"`, 1),
		"bad time":       strings.Replace(queuedBody, "2026-01-02T03:04:05Z", "yesterday", 1),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseWebhook("workflow_job", []byte(body))
			var malformed *MalformedError
			require.ErrorAs(t, err, &malformed)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
	_, err := ParseWebhook("installation", []byte(`{"action":"created","installation":{"id":1,"account":{"login":"acme"}}}`))
	require.ErrorContains(t, err, "installation.account.id")
}

func TestParseWebhook_ZeroBytesCannotReachTheDatabase(t *testing.T) {
	got, err := ParseWebhook("workflow_job", []byte(strings.Replace(queuedBody, "build (1)", `a\u0000b`, 1)))
	require.NoError(t, err)
	require.Equal(t, "a\uFFFDb", got.(*WorkflowJobEvent).Job.Name)
}

func FuzzParseWebhook(f *testing.F) {
	f.Add("workflow_job", []byte(queuedBody))
	f.Add("installation", []byte(installedBody))
	f.Add("installation_repositories", []byte(takenBody))
	f.Add("ping", []byte(`{}`))
	f.Add("workflow_job", []byte(queuedBody[:200]))
	f.Add("workflow_job", []byte(strings.Replace(queuedBody, "CI", `\u0000\ud800`, 1)))
	f.Fuzz(func(t *testing.T, event string, body []byte) {
		got, err := ParseWebhook(event, body)
		if err != nil {
			var malformed *MalformedError
			if !errors.As(err, &malformed) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatalf("a decoded event does not encode: %v", err)
		}
		if strings.Contains(string(text), `\u0000`) && !strings.Contains(string(text), `\\u0000`) {
			t.Fatalf("a zero byte came through: %s", text)
		}
		if job, ok := got.(*WorkflowJobEvent); ok && (job.Job.ID <= 0 || job.Repository.Owner.ID <= 0 || job.Job.Labels == nil) {
			t.Fatalf("an event without identity: %+v", job)
		}
	})
}

func FuzzVerifySignature(f *testing.F) {
	f.Add("sha256=00", []byte("body"))
	f.Add("sha256=", []byte(""))
	f.Fuzz(func(t *testing.T, header string, body []byte) {
		if VerifySignature("a secret nobody guesses", header, body) == nil && header != Sign("a secret nobody guesses", body) &&
			!strings.EqualFold(header, Sign("a secret nobody guesses", body)) {
			t.Fatal("a foreign signature was accepted")
		}
	})
}
