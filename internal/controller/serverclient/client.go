package serverclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// Limits of one exchange.
const (
	defaultTimeout = 10 * time.Second
	defaultBatch   = 200
	maxAnswer      = 4 << 20
	maxErrorText   = 512
)

// Options configures a Client.
type Options struct {
	// BaseURL of the server, such as http://bullpen-dispatch.bullpen-system.svc. Required.
	BaseURL string
	// TokenFile holds the controller's token for the audience bullpen-server. It is read again at each request,
	// because it is renewed while we run. Required.
	TokenFile string
	// Timeout of one exchange; the default is 10 s.
	Timeout time.Duration
	// Batch is how many runners one request asks about; the default is 200.
	Batch int
	// HTTPClient is used as it is; the default is one of our own.
	HTTPClient *http.Client
}

// Client asks the server. It is safe for concurrent use.
type Client struct {
	base      *url.URL
	tokenFile string
	timeout   time.Duration
	batch     int
	http      *http.Client
}

var _ lifecycle.Fence = (*Client)(nil)

// New checks the options. It does not speak to the server and does not need the token yet.
func New(options Options) (*Client, error) {
	base, err := url.Parse(options.BaseURL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("server URL %q is not an http or https URL: write it like http://bullpen-server:8080", options.BaseURL)
	}
	if options.TokenFile == "" {
		return nil, errors.New("no server token file: name the file that holds the token for the audience " + runnerapi.AudienceServer)
	}
	c := &Client{base: base, tokenFile: options.TokenFile, timeout: options.Timeout, batch: options.Batch, http: options.HTTPClient}
	if c.timeout <= 0 {
		c.timeout = defaultTimeout
	}
	if c.batch <= 0 {
		c.batch = defaultBatch
	}
	if c.http == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = 32 // reports and second questions go out side by side
		transport.Proxy = nil              // the server is inside the cluster; a proxy for the internet must not see the token
		// A redirect is no answer of the server's: a login page at its end would pass for a report that was taken.
		c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
	}
	return c, nil
}

// StatusError is an answer other than the one hoped for.
type StatusError struct {
	Status  int
	Message string
}

// Error says what the server said.
func (e *StatusError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("the server responded with status %d", e.Status)
	}
	return fmt.Sprintf("the server responded with status %d: %s", e.Status, e.Message)
}

// ErrBadAnswer: the server answered something that is not what was asked for. Nothing is known.
var ErrBadAnswer = errors.New("unusable response from the server")

// Ask implements lifecycle.Fence with the server's retire. What cannot be asked, and what is not answered in words we
// know, is unknown (EXCL-3).
func (c *Client) Ask(ctx context.Context, runners []lifecycle.RunnerRef) []lifecycle.Answer {
	answers := make([]lifecycle.Answer, 0, len(runners))
	for len(runners) > 0 {
		n := min(len(runners), c.batch)
		answers = append(answers, c.askBatch(ctx, runners[:n])...)
		runners = runners[n:]
	}
	return answers
}

func (c *Client) askBatch(ctx context.Context, runners []lifecycle.RunnerRef) []lifecycle.Answer {
	request := runnerapi.RetireRequest{Pods: make([]runnerapi.PodRef, len(runners))}
	for i, r := range runners {
		request.Pods[i] = runnerapi.PodRef{Namespace: r.Namespace, Name: r.Name, UID: r.UID, Pool: r.Owner, Lost: r.Lost}
	}
	answers := make([]lifecycle.Answer, len(runners))
	var response runnerapi.RetireResponse
	if err := c.post(ctx, runnerapi.PathRetire, request, &response); err != nil {
		for i := range answers {
			answers[i] = lifecycle.Answer{Verdict: lifecycle.Unknown, Detail: err.Error()} // EXCL-3
		}
		return answers
	}
	byUID := make(map[string]runnerapi.RetireAnswer, len(response.Answers))
	for _, answer := range response.Answers {
		byUID[answer.UID] = answer
	}
	for i, r := range runners {
		answer, answered := byUID[r.UID]
		switch {
		case !answered || r.UID == "":
			answers[i] = lifecycle.Answer{Verdict: lifecycle.Unknown, Detail: "the server's response lacks this runner"} // EXCL-3
		case answer.Verdict == runnerapi.Granted:
			answers[i] = lifecycle.Answer{Verdict: lifecycle.Granted, Proof: answer.Proof}
		case answer.Verdict == runnerapi.Busy:
			answers[i] = lifecycle.Answer{Verdict: lifecycle.Busy, Detail: busyDetail(answer)}
		default:
			answers[i] = lifecycle.Answer{Verdict: lifecycle.Unknown, Detail: unknownDetail(r, answer)}
		}
	}
	return answers
}

func unknownDetail(r lifecycle.RunnerRef, answer runnerapi.RetireAnswer) string {
	if answer.Reason != "" {
		return answer.Reason
	}
	if r.Lost {
		return "it is unreachable, and the removal of its registration is not confirmed yet"
	}
	return "the server returned unknown"
}

func busyDetail(answer runnerapi.RetireAnswer) string {
	if answer.Owner == "" {
		return "it has a claim (" + answer.State + ")"
	}
	return "busy with a job for " + answer.Owner + " (" + answer.State + ")"
}

// ReportStopped reports to the server that a pod is terminal or gone. After any error the caller must report it again.
func (c *Client) ReportStopped(ctx context.Context, stopped runnerapi.PodStopped) error {
	return c.post(ctx, runnerapi.PathPodsStopped, stopped, nil)
}

func (c *Client) post(ctx context.Context, path string, body, answer any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding the request to %s: %w", path, err)
	}
	content, err := c.exchange(ctx, http.MethodPost, path, encoded)
	if err != nil || answer == nil {
		return err
	}
	if err := json.Unmarshal(content, answer); err != nil {
		return fmt.Errorf("decoding the server's response: %w", err)
	}
	return nil
}

// exchange sends one request and returns the body of a 2xx answer.
func (c *Client) exchange(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	token, err := os.ReadFile(c.tokenFile)
	if err != nil {
		return nil, fmt.Errorf("reading the server token: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, c.base.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("making the request to %s: %w", path, err)
	}
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/json")
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking the server: %w", err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("reading the server's response: %w", err)
	}
	if response.StatusCode/100 != 2 {
		return nil, &StatusError{Status: response.StatusCode, Message: errorText(content)}
	}
	if len(content) > maxAnswer {
		return nil, fmt.Errorf("%w: it is larger than %d bytes", ErrBadAnswer, maxAnswer)
	}
	return content, nil
}

func errorText(content []byte) string {
	var body runnerapi.Error
	if json.Unmarshal(content, &body) != nil {
		return ""
	}
	if len(body.Error) > maxErrorText {
		return body.Error[:maxErrorText]
	}
	return body.Error
}
