package agent

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
)

// maxAnswer bounds an answer whose content is of no interest.
const maxAnswer = 64 << 10

type answerKind int

const (
	answerFailed  answerKind = iota // nothing usable: ask again
	answerJIT                       // work
	answerNone                      // no work yet
	answerGone                      // this pod's shot is spent, or the fleet takes the pod
	answerRefused                   // the token is not accepted
	answerLater                     // retry later
)

// result of one poll.
type result struct {
	kind     answerKind
	status   int
	dispatch runnerapi.Dispatch
	after    time.Duration
	err      error
}

// ask polls once. An answer that is cut or makes no sense is a failure like any other: the next poll of this pod is
// given a fresh configuration (CLAIM-7).
func (p *poller) ask(ctx context.Context) result {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	// A later request has a larger number, also than those of a poller that ran in this pod before.
	p.sequence = max(p.sequence+1, p.Now().UnixMicro())
	resp, err := p.post(ctx, runnerapi.PathDispatch, runnerapi.Poll{Sequence: p.sequence})
	if err != nil {
		return result{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	got := result{status: resp.StatusCode}
	switch resp.StatusCode {
	case http.StatusOK:
		got.dispatch, got.err = decode(resp.Body)
		if got.err == nil {
			got.kind = answerJIT
		}
	case http.StatusNoContent:
		got.kind = answerNone
	case http.StatusUnauthorized, http.StatusForbidden:
		got.kind = answerRefused
	case http.StatusGone:
		got.kind = answerGone
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		got.kind = answerLater
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
			got.after = time.Duration(min(seconds, 3600)) * time.Second
		}
	}
	return got
}

// decode accepts a configuration only if it is whole. Its errors show nothing of it (NET-3).
func decode(body io.Reader) (runnerapi.Dispatch, error) {
	var got runnerapi.Dispatch
	text, err := io.ReadAll(io.LimitReader(body, maxJIT+1))
	if err != nil {
		return got, fmt.Errorf("reading the response: %w", err)
	}
	if len(text) > maxJIT {
		return got, errors.New("the response is too long")
	}
	if err := json.Unmarshal(text, &got); err != nil {
		return runnerapi.Dispatch{}, errors.New("the response is not the expected JSON")
	}
	if decoded, err := base64.StdEncoding.DecodeString(got.JITConfig); err != nil || len(decoded) == 0 {
		return runnerapi.Dispatch{}, errors.New("the response has no configuration")
	}
	return got, nil
}

// acknowledgeOnce returns when the answer has ended. The status alone says that the acknowledgement is recorded: an answer
// that is cut after it was usually cut while writing the label, and counts as ended.
func (p *poller) acknowledgeOnce(ctx context.Context, generation int64) (int, error) {
	resp, err := p.post(ctx, runnerapi.PathAcknowledge, runnerapi.Acknowledge{Generation: generation})
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)) // TEN-8
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}

// post sends JSON with the token as it is now.
func (p *poller) post(ctx context.Context, path string, body any) (*http.Response, error) {
	token, err := os.ReadFile(p.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("reading the pod's token: %w", err)
	}
	bearer := strings.TrimSpace(string(token))
	if bearer == "" || strings.ContainsAny(bearer, "\r\n") {
		return nil, fmt.Errorf("reading the pod's token: %s is empty", p.TokenFile)
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+path, bytes.NewReader(encoded))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return resp, err
}
