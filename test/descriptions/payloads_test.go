package descriptions

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/cluster"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	server "github.com/bullpen-ci/bullpen/internal/server/http"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/deep"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

const secret = "the secret of the webhooks"

// receiver is a server with a real ledger, as far as webhooks go.
type receiver struct {
	t       *testing.T
	public  http.Handler
	posted  int
	refused []string
}

// everywhere: the App is installed wherever it is asked about.
type everywhere struct{}

func (everywhere) InstallationFor(context.Context, fleet.Scope) (int64, error) { return 43, nil }

// noIdentities: no token is accepted. Only webhooks are posted.
type noIdentities struct{}

func (noIdentities) Review(context.Context, string, string) (cluster.Identity, error) {
	return cluster.Identity{}, cluster.ErrRejected
}
func (noIdentities) Runner(cluster.Identity) (dispatch.Pod, bool) { return dispatch.Pod{}, false }

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	store, err := ledger.Open(t.Context(), postgrestest.NewDatabase(t, ledger.Migrate), 0)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	dispatcher, err := dispatch.New(dispatch.Options{
		Store: store, Forge: dispatchtest.NewGitHub(fleet.Owner{}), Cluster: dispatchtest.NewCluster(),
	})
	require.NoError(t, err)
	owners, err := intake.NewOwners(intake.OwnersOptions{Store: store, GitHub: everywhere{}})
	require.NoError(t, err)
	payloads, err := intake.New(intake.Options{Store: store, Owners: owners})
	require.NoError(t, err)
	secrets, err := github.NewWebhookSecrets(secret, "")
	require.NoError(t, err)
	made, err := server.New(server.Options{
		Dispatcher: dispatcher, Intake: payloads, Identities: noIdentities{}, WebhookSecrets: secrets,
		ControllerPrincipal: "system:serviceaccount:bullpen-system:bullpen-controller", Ready: store.Ping,
	})
	require.NoError(t, err)
	return &receiver{t: t, public: made.Public()}
}

// post sends a signed payload, which has to be answered 2xx: GitHub's descriptions allow it. done reports what is not.
func (r *receiver) post(event, what string, payload []byte) {
	r.t.Helper()
	r.posted++
	request := httptest.NewRequestWithContext(r.t.Context(), http.MethodPost, "/webhooks/github", strings.NewReader(string(payload)))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(github.HeaderEvent, event)
	request.Header.Set(github.HeaderDelivery, fmt.Sprint("delivery-", r.posted))
	request.Header.Set(github.HeaderSignature, github.Sign(secret, payload))
	answer := httptest.NewRecorder()
	r.public.ServeHTTP(answer, request)
	if answer.Code < 200 || answer.Code > 299 {
		r.refused = append(r.refused, fmt.Sprintf("%s: %s: %d %s", event, what, answer.Code, strings.TrimSpace(answer.Body.String())))
	}
}

// done reports what was refused.
func (r *receiver) done(least int) {
	r.t.Helper()
	require.Greater(r.t, r.posted, least, "payloads are missing")
	for _, one := range r.refused[:min(len(r.refused), 20)] {
		r.t.Error(one)
	}
	if len(r.refused) > 20 {
		r.t.Errorf("… and %d others", len(r.refused)-20)
	}
}

// webhook is one action of one event, as a description has it.
type webhook struct {
	event, name string
	schema      any
}

func webhooks(d document) (all []webhook) {
	hooks, ok := d["webhooks"].(map[string]any)
	if !ok {
		hooks, _ = d["x-webhooks"].(map[string]any)
	}
	for name, hook := range hooks {
		post := d.at(hook, "post")
		event, _ := d.at(post, "x-github", "subcategory").(string)
		schema := d.at(post, "requestBody", "content", "application/json", "schema")
		if event != "" && schema != nil {
			all = append(all, webhook{strings.ReplaceAll(event, "-", "_"), name, schema})
		}
	}
	slices.SortFunc(all, func(a, b webhook) int { return strings.Compare(a.name, b.name) })
	return all
}

// fresh gives a payload a job and an installation of its own: a completed job stays completed, and would stand for all that follow.
func fresh(event string, payload any, n int) {
	root, ok := payload.(map[string]any)
	if !ok {
		return
	}
	if job, ok := root["workflow_job"].(map[string]any); ok && event == "workflow_job" && job["id"] != nil {
		job["id"] = 1000 + n
	}
	if installation, ok := root["installation"].(map[string]any); ok && event != "workflow_job" && installation["id"] != nil {
		installation["id"] = 1000 + n
	}
}

// variants posts the payload of each webhook with all members, with the required ones alone, and with each member null,
// absent or of another type, as far as the description allows it, down to a depth.
func (r *receiver) variants(d document, hook webhook, most int) {
	r.t.Helper()
	send := func(what string, payload any) {
		fresh(hook.event, payload, r.posted)
		raw, err := json.Marshal(payload)
		require.NoError(r.t, err)
		r.post(hook.event, hook.name+" "+what, raw)
	}
	whole := d.sample(hook.schema, true, 0)
	send("with all members", whole)
	send("with required members alone", d.sample(hook.schema, false, 0))
	if most == 0 {
		return
	}
	for _, v := range d.variations(hook.schema, most) {
		if undo, ok := v.apply(whole); ok {
			send(strings.Join(v.path, ".")+" "+v.how, whole)
			undo()
		}
	}
}

// A payload that GitHub's description allows is accepted or ignored, and never refused: GitHub would show it as a failure, and catching up
// would request it again.
func TestWebhooks_R12_WhateverTheDescriptionAllowsIsTaken(t *testing.T) {
	t.Parallel()
	documents, depth, others := []string{"api.github.com"}, 2, 0
	if deep.Enabled() {
		documents, depth, others = []string{"api.github.com", "ghec", "ghes-3.14"}, deepest, 2
	}
	r := newReceiver(t)
	for _, name := range documents {
		d := document(description(t, packageWebhooks, name))
		hooks := webhooks(d)
		require.Greater(t, len(hooks), 150, "%s has webhooks", name)
		for _, event := range []string{"workflow_job", "installation", "installation_repositories"} {
			require.True(t, slices.ContainsFunc(hooks, func(h webhook) bool { return h.event == event }), "%s has %s", name, event)
		}
		for _, hook := range hooks {
			most := others
			if github.IsWebhookEvent(hook.event) {
				most = depth
			}
			r.variants(d, hook, most)
		}
	}
	r.done(1000)
}

// The payloads that GitHub's examples hold, of github.com and of Enterprise Servers, were once sent.
func TestWebhooks_R12_GitHubsExamplesAreTaken(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	require.NoError(t, filepath.WalkDir(filepath.Join(directory(t), packageExamples), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".json" || entry.Name() == "package.json" {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var groups []struct {
			Name     string
			Examples []json.RawMessage
		}
		if json.Unmarshal(raw, &groups) == nil {
			for _, group := range groups {
				for i, example := range group.Examples {
					r.post(group.Name, fmt.Sprintf("%s, number %d", path, i), example)
				}
			}
		}
		return nil
	}))
	r.done(500)
}

// The generator finds what it is to find.
func TestVariations_NullAbsentAndOtherTypes(t *testing.T) {
	d := document{"components": map[string]any{"schemas": map[string]any{
		"user":       map[string]any{"type": "object", "required": []any{"login"}, "properties": map[string]any{"login": map[string]any{"type": "string"}}},
		"enterprise": map[string]any{"type": "object", "required": []any{"slug"}, "properties": map[string]any{"slug": map[string]any{"type": "string"}}},
	}}}
	ref := func(name string) any { return map[string]any{"$ref": "#/components/schemas/" + name} }
	schema := map[string]any{"type": "object", "required": []any{"account", "list", "at"}, "properties": map[string]any{
		"account": map[string]any{"anyOf": []any{ref("user"), ref("enterprise"), map[string]any{"type": "null"}}},
		"list":    map[string]any{"type": "array", "items": map[string]any{"allOf": []any{ref("user"), map[string]any{"properties": map[string]any{"id": map[string]any{"type": []any{"integer", "null"}}}}}}},
		"at":      map[string]any{"type": "string", "format": "date-time", "nullable": true},
		"extra":   map[string]any{"type": "boolean"},
	}}
	require.Equal(t, map[string]any{
		"account": map[string]any{"login": "text"}, "list": []any{map[string]any{"login": "text", "id": 7}}, "at": "2026-01-02T03:04:05Z", "extra": true,
	}, d.sample(schema, true, 0))
	require.Equal(t, map[string]any{"account": map[string]any{"login": "text"}, "list": []any{}, "at": "2026-01-02T03:04:05Z"}, d.sample(schema, false, 0))
	var found []string
	whole := d.sample(schema, true, 0)
	before, err := json.Marshal(whole)
	require.NoError(t, err)
	for _, v := range d.variations(schema, deepest) {
		found = append(found, strings.Join(v.path, ".")+" "+v.how)
		undo, ok := v.apply(whole)
		require.True(t, ok)
		undo()
	}
	require.Equal(t, []string{"account null", "account another type", "at null", "extra absent", "list.0.id null", "list.0.id absent"}, found)
	after, err := json.Marshal(whole)
	require.NoError(t, err)
	require.JSONEq(t, string(before), string(after))
}
