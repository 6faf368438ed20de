package cli

import (
	"context"
	"net/http"
	"net/url"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// Retire replaces an idle runner. An *APIError with status 409 if it is busy, 404 if there is none of that name.
func (c *Client) Retire(ctx context.Context, namespace, name, reason string) (adminapi.RetiredRunner, error) {
	var retired adminapi.RetiredRunner
	path := adminapi.PathRunners + "/" + url.PathEscape(namespace) + "/" + url.PathEscape(name) + "/retire"
	err := c.call(ctx, http.MethodPost, path, nil, "", adminapi.Change{Reason: reason}, &retired)
	return retired, err
}

// RetiredTable shows retired runners.
func RetiredTable(runners []adminapi.RetiredRunner) Table {
	t := Table{Columns: []string{"NAMESPACE", "RUNNER", "POOL", "STATE"}, Wide: []string{"UID", "CHANGED"}, Empty: "No runners."}
	for _, r := range runners {
		changed := "yes"
		if !r.Changed {
			changed = "no"
		}
		state := r.State
		if state == "spent" {
			state = "finished" // its job was completed already
		}
		t.Rows = append(t.Rows, []string{r.Namespace, r.Name, r.Pool, state, r.UID, changed})
	}
	return t
}
