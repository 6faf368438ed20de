package intake_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// whole are payloads with every member that is read, by event and action.
func whole(event, action string) string {
	switch event {
	case "workflow_job":
		return `{"action":"` + action + `","workflow_job":{"id":81,"run_id":9,"run_attempt":2,"name":"build (1)","workflow_name":"CI","head_branch":"main",
			"head_sha":"abc","labels":["bullpen-linux"],"status":"` + action + `","conclusion":"success","runner_id":3,"runner_name":"another",
			"created_at":"2026-01-02T03:04:05Z","started_at":"2026-01-02T03:04:06Z","completed_at":"2026-01-02T03:04:07Z","steps":[]},
			"repository":{"id":7,"full_name":"acme/app","owner":{"id":5,"login":"acme","type":"Organization"}},
			"organization":{"id":5,"login":"acme"},"installation":{"id":42,"node_id":"x"}}`
	case "installation":
		return `{"action":"` + action + `","installation":{"id":42,"account":{"id":5,"login":"acme","type":"Organization"},"target_type":"Organization",
			"suspended_at":"2026-01-02T03:04:05Z"},"repositories":[]}`
	default:
		return `{"action":"` + action + `","installation":{"id":42,"account":{"id":5,"login":"acme","type":"Organization"},"target_type":"Organization"},
			"repositories_added":[{"id":7,"full_name":"acme/app"}],"repositories_removed":[{"id":8,"full_name":"acme/lib"}]}`
	}
}

// events that reach the ledger, by event.
func eventsAndActions() map[string][]string {
	return map[string][]string{
		"workflow_job":              {"queued", "waiting", "in_progress", "completed"},
		"installation":              {"created", "deleted", "suspend", "unsuspend", "new_permissions_accepted"},
		"installation_repositories": {"added", "removed"},
	}
}

// odd is what a member may be beside what it is.
var odd = map[string]any{
	"null": nil, "empty text": "", "zero": 0, "negative": -1, "half": 0.5, "huge": 1e30, "empty list": []any{}, "list of null": []any{nil}, "empty object": map[string]any{},
	"false": false, "text": "odd", "NUL": "a\x00b", "no UTF-8": "\xff\xfe", "incompressible": incompressible(5000), "late": "9999-12-31T23:59:59Z", "early": "0000-01-01T00:00:00Z",
}

// incompressible text is longer in an index than one page's third, however it is packed.
func incompressible(n int) string {
	text, state := make([]byte, n), uint32(1)
	for i := range text {
		state = state*1664525 + 1013904223
		text[i] = "abcdefghijklmnopqrstuvwxyz0123456789-_ABCDEFGHIJKLMNOPQRSTUVWXYZ"[state>>26]
	}
	return string(text)
}

// mutants are a payload with each of its members absent, and as each odd thing, by what was done.
func mutants(t testing.TB, body string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	var root any
	require.NoError(t, json.Unmarshal([]byte(body), &root))
	write := func(what string) {
		raw, err := json.Marshal(root)
		require.NoError(t, err)
		all[what] = raw
	}
	var walk func(path string, within map[string]any)
	walk = func(path string, within map[string]any) {
		for _, name := range slices.Sorted(maps.Keys(within)) {
			was, at := within[name], path+"."+name
			delete(within, name)
			write(at + " absent")
			for how, value := range odd {
				within[name] = value
				write(at + " " + how)
			}
			within[name] = was
			switch below := was.(type) {
			case map[string]any:
				walk(at, below)
			case []any:
				for i := range below {
					if inner, ok := below[i].(map[string]any); ok {
						walk(at, inner)
					}
				}
			}
		}
	}
	top, ok := root.(map[string]any)
	require.True(t, ok)
	write("whole")
	walk("", top)
	return all
}

// taken checks what becomes of a payload: it is taken, ignored or refused for good, and the same again changes nothing. Nothing asks for it again.
func taken(t testing.TB, in *intake.Intake, d intake.Delivery, what string) intake.Result {
	t.Helper()
	first := in.Take(t.Context(), d)
	require.NotEqual(t, intake.Failed, first.Outcome, "%s %s would be redelivered for ever: %s", d.Event, what, first.Reason)
	require.NotEmpty(t, first.Reason, what)
	second := in.Take(t.Context(), d)
	want := first.Outcome
	if first.Outcome == intake.Recorded && first.Event != "ping" {
		want = intake.Repeated
	}
	require.Equal(t, want, second.Outcome, "%s %s: %s", d.Event, what, second.Reason)
	return first
}

// PostgreSQL decides about each member of a payload, and no payload is answered as if it could be stored later.
func TestTake_RECV10_R12_NoMemberOfAPayloadIsAskedForAgain(t *testing.T) {
	t.Parallel()
	in, _, _ := newIntake(t)
	n := 0
	for event, actions := range eventsAndActions() {
		for _, action := range actions {
			for what, body := range mutants(t, whole(event, action)) {
				n++ // another job of another installation each time, or the first one's end would stand for all
				body = bytes.ReplaceAll(body, []byte(`"id":81`), fmt.Appendf(nil, `"id":%d`, 1000+n))
				body = bytes.ReplaceAll(body, []byte(`"id":42`), fmt.Appendf(nil, `"id":%d`, 1000+n))
				got := taken(t, in, intake.Delivery{GUID: fmt.Sprint("g", n), Event: event, Body: body, At: time.Now()}, action+what)
				if got.Outcome == intake.Malformed {
					member := what[1:strings.IndexAny(what+" ", " ")]
					require.Contains(t, got.Reason, strings.Split(member, ".")[0], "%s %s %s", event, action, what)
				}
				if what == "whole" {
					require.Equal(t, intake.Recorded, got.Outcome, got.Reason)
				}
			}
		}
	}
	require.Greater(t, n, 2000)
}

// The label sets of a job are never NULL in the ledger, whatever the source of the job.
func TestTake_R12_AJobWithoutLabelsIsRecorded(t *testing.T) {
	in, store, _ := newIntake(t)
	for i, labels := range []string{`null`, `[]`, `[null]`, `[""]`} {
		body := strings.Replace(string(payload("queued", int64(i+1), "")), `["linux"]`, labels, 1)
		got := in.Take(t.Context(), intake.Delivery{GUID: fmt.Sprint("g", i), Event: "workflow_job", Body: []byte(body), At: time.Now()})
		require.Equal(t, intake.Recorded, got.Outcome, "%s: %s", labels, got.Reason)
		require.Equal(t, fleet.JobQueued, state(t, store, int64(i+1)))
	}
	in, _, _ = newIntake(t) // which knows no set of labels yet
	owner := dispatch.Account{ID: 5, Login: "acme", InstallationID: 42}
	_, err := in.Observe(t.Context(), dispatch.JobEvent{Kind: fleet.JobEventQueued, Account: owner, JobID: 9, Repository: "acme/app"}, time.Now())
	require.NoError(t, err, "a job that was read at GitHub, too")
}

// GitHub's schema lets an installation's account be null. The ledger knows the account from an earlier event.
func TestTake_R12_AnInstallationWithoutAnAccount(t *testing.T) {
	in, store, _ := newIntake(t)
	n := 0
	take := func(event, action, account string, want intake.Outcome) {
		t.Helper()
		n++
		body := fmt.Sprintf(`{"action":%q,"installation":{"id":42,"account":%s},"repositories_removed":[{"full_name":"acme/app"}]}`, action, account)
		got := in.Take(t.Context(), intake.Delivery{GUID: fmt.Sprint("g", n), Event: event, Body: []byte(body), At: time.Now()})
		require.Equal(t, want, got.Outcome, got.Reason)
		require.NotEmpty(t, got.Reason)
	}
	is := func(want adminapi.AccountState) {
		t.Helper()
		a, err := store.Account(t.Context(), "acme")
		require.NoError(t, err)
		require.Equal(t, want, a.State)
	}
	const acme, enterprise = `{"id":5,"login":"acme","type":"Organization"}`, `{"id":77,"slug":"octo","name":"Octo"}`
	take("installation", "created", "null", intake.Ignored)
	take("installation", "suspend", "null", intake.Recorded) // of an installation that is not known
	take("installation", "created", enterprise, intake.Ignored)
	take("installation_repositories", "removed", enterprise, intake.Ignored)
	take("installation", "created", acme, intake.Recorded)
	is(adminapi.AccountActive)
	take("installation", "suspend", "null", intake.Recorded)
	is(adminapi.AccountSuspended)
	take("installation", "unsuspend", "null", intake.Recorded)
	is(adminapi.AccountActive)
	take("workflow_job", "queued", "null", intake.Malformed)
	require.Equal(t, intake.Recorded, in.Take(t.Context(), intake.Delivery{
		GUID: "job", Event: "workflow_job", Body: payload("queued", 1, ""), At: time.Now(),
	}).Outcome)
	take("installation_repositories", "removed", "null", intake.Recorded)
	a, err := store.Account(t.Context(), "acme")
	require.NoError(t, err)
	require.EqualValues(t, 1, a.Blocked, "the repository's job waits until it is given back")
	take("installation", "deleted", "null", intake.Recorded)
	is(adminapi.AccountUninstalled)
	take("installation", "created", acme, intake.Recorded) // late: it has ended
	is(adminapi.AccountUninstalled)
}

// An organization may give the App thousands of repositories at once: those that were taken come back, and the event is answered in time.
func TestTake_R12_ThousandsOfRepositoriesAtOnce(t *testing.T) {
	in, store, _ := newIntake(t)
	require.Equal(t, intake.Recorded, in.Take(t.Context(), intake.Delivery{GUID: "job", Event: "workflow_job", Body: payload("queued", 1, ""), At: time.Now()}).Outcome)
	var names []string
	for i := range 5000 {
		names = append(names, fmt.Sprintf(`{"full_name":"acme/app-%d"}`, i))
	}
	names = append(names, `{"full_name":"acme/app"}`)
	for i, member := range []string{"removed", "added"} {
		body := fmt.Sprintf(`{"action":%q,"installation":{"id":42,"account":{"id":5,"login":"acme","type":"Organization"}},"repositories_%s":[%s]}`,
			member, member, strings.Join(names, ","))
		got := in.Take(t.Context(), intake.Delivery{GUID: member, Event: "installation_repositories", Body: []byte(body), At: time.Now()})
		require.Equal(t, intake.Recorded, got.Outcome, got.Reason)
		a, err := store.Account(t.Context(), "acme")
		require.NoError(t, err)
		require.EqualValues(t, 1-i, a.Blocked)
	}
}

// A value that the database refuses is refused for good, also if this package accepted it.
func TestTake_RECV10_R12_WhatCannotBeStoredIsNotAskedForAgain(t *testing.T) {
	_, store, _ := newIntake(t)
	text := string([]byte{0xff, 0})
	_, err := store.RecordJob(t.Context(), dispatch.Delivery{GUID: "a", At: time.Now()}, dispatch.JobEvent{
		Kind: fleet.JobEventQueued, Account: dispatch.Account{ID: 5, Login: "acme", InstallationID: 42}, JobID: 1, Repository: text,
	})
	require.ErrorIs(t, err, fleet.ErrUnstorable)
	_, err = store.RecordJob(t.Context(), dispatch.Delivery{GUID: "b", At: time.Now()}, dispatch.JobEvent{
		Kind: fleet.JobEventQueued, Account: dispatch.Account{ID: 5, Login: "acme", InstallationID: 42}, JobID: 1, Repository: incompressible(10_000),
	})
	require.ErrorIs(t, err, fleet.ErrUnstorable)
	in, err := intake.New(intake.Options{Store: &scripted{err: fmt.Errorf("recording a job: %w", err)}})
	require.NoError(t, err)
	got := in.Take(t.Context(), intake.Delivery{GUID: "c", Event: "workflow_job", Body: payload("queued", 1, ""), At: time.Now()})
	require.Equal(t, intake.Malformed, got.Outcome)
}

// FuzzTake: no payload causes a panic in the intake, and there is none that the ledger could store at another time.
func FuzzTake(f *testing.F) {
	for event, actions := range eventsAndActions() {
		for _, action := range actions {
			f.Add("guid", event, []byte(whole(event, action)))
		}
	}
	for what, body := range mutants(f, whole("workflow_job", "queued")) {
		if strings.HasSuffix(what, "null") || strings.HasSuffix(what, "absent") {
			f.Add("guid", "workflow_job", body)
		}
	}
	f.Add("guid", "workflow_job", payload("completed", 1, `,"conclusion":"\u0000"`))
	f.Add("guid", "installation", []byte(`{"action":"suspend","installation":{"id":1,"account":null}}`))
	f.Add("guid", "installation_repositories", []byte(`{"action":"added","installation":{"id":1,"account":{"slug":"octo"}}}`))
	f.Add("\x00", "ping", []byte{})
	f.Add("guid", "push", []byte(`{}`))
	store, err := ledger.Open(f.Context(), postgrestest.NewDatabase(f, ledger.Migrate), 0)
	require.NoError(f, err)
	f.Cleanup(store.Close)
	in, err := intake.New(intake.Options{Store: store})
	require.NoError(f, err)
	away, err := intake.New(intake.Options{Store: &scripted{err: errors.New("away")}})
	require.NoError(f, err)
	var n atomic.Int64
	f.Fuzz(func(t *testing.T, guid, event string, body []byte) {
		d := intake.Delivery{GUID: guid, Event: event, Body: body, At: time.Unix(1_700_000_000, 0)}
		if guid == "guid" {
			d.GUID = fmt.Sprint("fuzz-", n.Add(1))
		}
		first := in.Take(t.Context(), d)
		if first.Outcome != intake.Repeated { // a GUID that was tried before
			d.GUID += "x"
			first = taken(t, in, d, "")
		}
		if event == "workflow_job" {
			lost := away.Take(t.Context(), d)
			require.Equal(t, first.Outcome == intake.Recorded || first.Outcome == intake.Repeated, lost.Outcome == intake.Failed)
		}
	})
}
