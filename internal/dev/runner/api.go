package runner

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// callTimeout bounds every call but the long poll.
	callTimeout = 60 * time.Second
	// pollTimeout is the genuine client's limit for a poll that the service holds for 50 s.
	pollTimeout = 100 * time.Second
	// maxAnswer is the most that is read of an answer.
	maxAnswer = 32 << 20
)

// apiError is an answer other than success.
type apiError struct {
	Op      string
	Status  int
	Source  string // "actions-broker-listener", "actions-run-service", …
	Kind    string // RunnerNotFound, …
	Message string
}

func (e *apiError) Error() string {
	text := fmt.Sprintf("%s: the service answers %d", e.Op, e.Status)
	if e.Kind != "" {
		text += " " + e.Kind
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// Is lets callers ask what the answer means, whichever service it came from.
func (e *apiError) Is(target error) bool {
	switch target {
	case errRemoved:
		return e.Kind == "RunnerNotFound" || e.Kind == "HostedRunnerDeprovisioned"
	case errVersion:
		return e.Kind == "RunnerVersionTooOld"
	case errSession:
		return e.Kind == "RunnerSessionInvalid"
	case errConflict:
		return e.Status == http.StatusConflict && e.Source != runServiceSource
	case errJobGone:
		return e.Kind == "AcknowledgeJobNotFound" || (e.Source == runServiceSource &&
			(e.Status == http.StatusNotFound || e.Status == http.StatusConflict || e.Status == http.StatusUnprocessableEntity))
	}
	return false
}

const runServiceSource = "actions-run-service"

// authority supplies the token of a call and is notified when it was refused.
type authority interface {
	token(ctx context.Context) (string, error)
	forget(refused string)
}

// fixedToken is the token that came with a job.
type fixedToken string

func (t fixedToken) token(context.Context) (string, error) { return string(t), nil }
func (t fixedToken) forget(string)                         {}

// caller makes JSON calls.
type caller struct {
	http *http.Client
	auth authority
}

// call sends in and reads the answer into out; both may be nil. It returns the status of a success. A token that is
// refused is replaced once.
func (c caller) call(ctx context.Context, op, method, address string, in, out any, timeout time.Duration) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return 0, fmt.Errorf("%s: %w", op, err)
		}
	}
	for attempt := 0; ; attempt++ {
		token, err := c.auth.token(ctx)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", op, err)
		}
		status, err := c.once(ctx, op, method, address, token, body, out)
		if status == http.StatusUnauthorized && attempt == 0 {
			c.auth.forget(token)
			continue
		}
		return status, err
	}
}

func (c caller) once(ctx context.Context, op, method, address, token string, body []byte, out any) (int, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", op, err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json; charset=utf-8")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", op, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return 0, fmt.Errorf("%s: reading the answer: %w", op, err)
	}
	if res.StatusCode >= 300 {
		return res.StatusCode, failure(op, res.StatusCode, answer)
	}
	if out != nil && len(bytes.TrimSpace(answer)) > 0 {
		if err := json.Unmarshal(answer, out); err != nil {
			return res.StatusCode, fmt.Errorf("%s: the answer is not the JSON expected: %w", op, err)
		}
	}
	return res.StatusCode, nil
}

func failure(op string, status int, answer []byte) error {
	var body struct {
		Source    string `json:"source"`
		ErrorKind string `json:"errorKind"`
		Message   string `json:"errorMessage"`
		Code      int    `json:"statusCode"`
		REST      string `json:"message"` // of the REST API, which a runner asks when it registers itself
	}
	_ = json.Unmarshal(answer, &body) // an error page that is no JSON still has its status
	body.Message = cmp.Or(body.Message, body.REST)
	if len(body.Message) > 200 {
		body.Message = body.Message[:200]
	}
	e := &apiError{Op: op, Status: status, Source: body.Source, Kind: body.ErrorKind, Message: body.Message}
	if body.Source == runServiceSource && body.Code != 0 {
		e.Status = body.Code
	}
	return e
}

// join appends a path to an address, whether or not it ends in a slash.
func join(base, path string) string { return strings.TrimRight(base, "/") + "/" + path }

// withoutAddress takes the address out of an HTTP client's error: it may be a signed one.
func withoutAddress(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
