package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
)

// Runner reads one, by the name of its pod.
func (c *Client) Runner(ctx context.Context, namespace, name string) (adminapi.Runner, error) {
	runners, err := c.Runners(ctx, RunnerFilter{Namespace: namespace, Most: math.MaxInt})
	if err != nil {
		return adminapi.Runner{}, err
	}
	return findRunner(runners, namespace, name)
}

func findRunner(runners []adminapi.Runner, namespace, name string) (adminapi.Runner, error) {
	var names []string
	for _, r := range runners {
		if r.Name == name {
			return r, nil
		}
		names = append(names, r.Name)
	}
	text := fmt.Sprintf("runner %q not found in namespace %s", name, namespace)
	if near := commandline.Near(name, names); len(near) > 0 {
		return adminapi.Runner{}, errors.New(text + ". Did you mean " + strings.Join(near, " or ") + "?")
	}
	return adminapi.Runner{}, errors.New(text + ". `bullpen runners` lists runners; `bullpen runners logs` shows the log of one that failed")
}

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
