package standin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// AdminClient speaks the admin API of a stand-in that runs elsewhere. Safe for concurrent use.
type AdminClient struct {
	// URL is the stand-in's address.
	URL string
	// Token is its admin token, if it has one.
	Token string
	// HTTP is the client used; nil means one with a timeout of a minute.
	HTTP *http.Client
}

// AdminError is a refusal by the admin API.
type AdminError struct {
	Status  int
	Message string
}

// Error returns the API's own sentence.
func (e *AdminError) Error() string { return e.Message }

func (c *AdminClient) client() *http.Client {
	if c.HTTP != nil {
		return c.HTTP
	}
	return &http.Client{Timeout: time.Minute}
}

func (c *AdminClient) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encoding a call of the stand-in: %w", err)
		}
		body = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(c.URL, "/")+"/_standin"+path, body)
	if err != nil {
		return fmt.Errorf("calling the stand-in: %w", err)
	}
	if in != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	response, err := c.client().Do(request)
	if err != nil {
		return fmt.Errorf("calling the stand-in: %w", err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reading the stand-in's answer: %w", err)
	}
	if response.StatusCode >= 300 {
		refused := &AdminError{Status: response.StatusCode, Message: response.Status}
		var answer apiError
		if json.Unmarshal(data, &answer) == nil && answer.Message != "" {
			refused.Message = answer.Message
		}
		return refused
	}
	if text, ok := out.(*string); ok {
		*text = string(data)
		return nil
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("decoding the stand-in's answer: %w", err)
	}
	return nil
}

func getOf[T any](ctx context.Context, c *AdminClient, path string) (T, error) {
	var out T
	err := c.call(ctx, http.MethodGet, path, nil, &out)
	return out, err
}

// Submit starts runs of a workflow file.
func (c *AdminClient) Submit(ctx context.Context, sub Submission) ([]RunView, error) {
	var out struct {
		Runs []RunView `json:"runs"`
	}
	err := c.call(ctx, http.MethodPost, "/workflows", sub, &out)
	return out.Runs, err
}

// State sums up jobs and runners.
func (c *AdminClient) State(ctx context.Context) (StateView, error) {
	return getOf[StateView](ctx, c, "/state")
}

// Stats returns the counters a benchmark reads.
func (c *AdminClient) Stats(ctx context.Context) (StatsView, error) {
	return getOf[StatsView](ctx, c, "/stats")
}

// ResetStats sets the REST counters to zero.
func (c *AdminClient) ResetStats(ctx context.Context) error {
	return c.call(ctx, http.MethodDelete, "/stats", nil, nil)
}

// Runs lists every run.
func (c *AdminClient) Runs(ctx context.Context) ([]RunView, error) {
	out, err := getOf[struct {
		Runs []RunView `json:"runs"`
	}](ctx, c, "/runs")
	return out.Runs, err
}

// WaitRun waits until a run is done or ctx ends.
func (c *AdminClient) WaitRun(ctx context.Context, id int64) (RunView, error) {
	for {
		view, err := getOf[RunView](ctx, c, fmt.Sprintf("/runs/%d?wait=20s", id))
		if err != nil || view.Conclusion != "" {
			return view, err
		}
	}
}

// CancelRun cancels a run.
func (c *AdminClient) CancelRun(ctx context.Context, id int64) error {
	return c.call(ctx, http.MethodPost, fmt.Sprintf("/runs/%d/cancel", id), nil, nil)
}

// ApproveRun queues the jobs of a run that was submitted to be held.
func (c *AdminClient) ApproveRun(ctx context.Context, id int64) error {
	return c.call(ctx, http.MethodPost, fmt.Sprintf("/runs/%d/approve", id), nil, nil)
}

// Jobs lists jobs: of one run (0: all), with one status or conclusion ("": all).
func (c *AdminClient) Jobs(ctx context.Context, runID int64, status string) ([]JobView, error) {
	query := url.Values{"run_id": {strconv.FormatInt(runID, 10)}, "status": {status}}
	out, err := getOf[struct {
		Jobs []JobView `json:"jobs"`
	}](ctx, c, "/jobs?"+query.Encode())
	return out.Jobs, err
}

// Job returns one job.
func (c *AdminClient) Job(ctx context.Context, id int64) (JobView, error) {
	return getOf[JobView](ctx, c, fmt.Sprintf("/jobs/%d", id))
}

// JobLog returns a job's log.
func (c *AdminClient) JobLog(ctx context.Context, id int64) (string, error) {
	return getOf[string](ctx, c, fmt.Sprintf("/jobs/%d/log", id))
}

// CancelJob cancels one job.
func (c *AdminClient) CancelJob(ctx context.Context, id int64) error {
	return c.call(ctx, http.MethodPost, fmt.Sprintf("/jobs/%d/cancel", id), nil, nil)
}

// LoseJob fails a running job whose runner is known to be dead.
func (c *AdminClient) LoseJob(ctx context.Context, id int64) error {
	return c.call(ctx, http.MethodPost, fmt.Sprintf("/jobs/%d/lose", id), nil, nil)
}

// Runners lists every registration.
func (c *AdminClient) Runners(ctx context.Context) ([]RunnerView, error) {
	out, err := getOf[struct {
		Runners []RunnerView `json:"runners"`
	}](ctx, c, "/runners")
	return out.Runners, err
}

// Deliveries lists finished webhook deliveries, newest first, with their payloads.
func (c *AdminClient) Deliveries(ctx context.Context, limit int) ([]DeliveryView, error) {
	out, err := getOf[struct {
		Deliveries []DeliveryView `json:"deliveries"`
	}](ctx, c, fmt.Sprintf("/deliveries?payloads=true&limit=%d", limit))
	return out.Deliveries, err
}

// AddFault puts a fault in force and returns it with its id.
func (c *AdminClient) AddFault(ctx context.Context, f Fault) (Fault, error) {
	var out Fault
	err := c.call(ctx, http.MethodPost, "/faults", f, &out)
	return out, err
}

// Faults lists the faults in force and how often they struck.
func (c *AdminClient) Faults(ctx context.Context) ([]Fault, error) {
	out, err := getOf[struct {
		Faults []Fault `json:"faults"`
	}](ctx, c, "/faults")
	return out.Faults, err
}

// RemoveFault ends one fault, or all of them with id 0.
func (c *AdminClient) RemoveFault(ctx context.Context, id int64) error {
	path := "/faults"
	if id != 0 {
		path = fmt.Sprintf("/faults/%d", id)
	}
	return c.call(ctx, http.MethodDelete, path, nil, nil)
}

// Install adds an installation or repositories to one, and announces it.
func (c *AdminClient) Install(ctx context.Context, in Installation) (Installation, error) {
	var out Installation
	err := c.call(ctx, http.MethodPost, "/installations", in, &out)
	return out, err
}

// Installations lists them.
func (c *AdminClient) Installations(ctx context.Context) ([]Installation, error) {
	out, err := getOf[struct {
		Installations []Installation `json:"installations"`
	}](ctx, c, "/installations")
	return out.Installations, err
}

// AddEnterprise adds an enterprise, or accounts and runner groups to one that exists.
func (c *AdminClient) AddEnterprise(ctx context.Context, enterprise Enterprise) (Enterprise, error) {
	var out Enterprise
	err := c.call(ctx, http.MethodPost, "/enterprises", enterprise, &out)
	return out, err
}

// AddToken makes a person's token.
func (c *AdminClient) AddToken(ctx context.Context, token PersonalToken) (PersonalToken, error) {
	var out PersonalToken
	err := c.call(ctx, http.MethodPost, "/tokens", token, &out)
	return out, err
}

// RevokeToken ends the tokens of that name.
func (c *AdminClient) RevokeToken(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, "/tokens/"+url.PathEscape(name), nil, nil)
}

// RenameRepository gives a repository ("owner/name") another name, without its owner.
func (c *AdminClient) RenameRepository(ctx context.Context, repository, name string) error {
	return c.call(ctx, http.MethodPost, "/repositories/"+repository+"/rename", map[string]string{"name": name}, nil)
}

// Suspend suspends an installation, with its webhook.
func (c *AdminClient) Suspend(ctx context.Context, installation int64) error {
	return c.call(ctx, http.MethodPost, fmt.Sprintf("/installations/%d/suspend", installation), nil, nil)
}

// Unsuspend ends a suspension, with its webhook.
func (c *AdminClient) Unsuspend(ctx context.Context, installation int64) error {
	return c.call(ctx, http.MethodPost, fmt.Sprintf("/installations/%d/unsuspend", installation), nil, nil)
}

// Uninstall takes the App from an account, with its webhook. Install brings it back.
func (c *AdminClient) Uninstall(ctx context.Context, installation int64) error {
	return c.call(ctx, http.MethodDelete, fmt.Sprintf("/installations/%d", installation), nil, nil)
}

// Ledger returns everything that GitHub saw: jobs, registrations, webhooks.
func (c *AdminClient) Ledger(ctx context.Context) (Ledger, error) {
	return getOf[Ledger](ctx, c, "/ledger")
}

// Announce sends an installation's webhook again.
func (c *AdminClient) Announce(ctx context.Context, installation int64) error {
	return c.call(ctx, http.MethodPost, fmt.Sprintf("/installations/%d/announce", installation), nil, nil)
}

// SetWebhook changes where webhooks go.
func (c *AdminClient) SetWebhook(ctx context.Context, target, secret string) error {
	return c.call(ctx, http.MethodPut, "/webhook", map[string]string{"url": target, "secret": secret}, nil)
}

// Ready waits until the stand-in answers or ctx ends.
func (c *AdminClient) Ready(ctx context.Context) error {
	for {
		_, err := c.State(ctx)
		if err == nil {
			return nil
		}
		var refused *AdminError
		if ctx.Err() != nil || errors.As(err, &refused) {
			return fmt.Errorf("waiting for the stand-in at %s: %w", c.URL, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}
