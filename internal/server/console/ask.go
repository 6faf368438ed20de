package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
)

// refusedError is a refusal of the admin API. Its sentence says what to do.
type refusedError struct {
	Status   int
	Sentence string
}

// Error is the API's own sentence.
func (e *refusedError) Error() string { return e.Sentence }

// answer collects what a handler answers.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

// call is one request to the admin API.
type call struct {
	method, path string
	version      int64 // the version that the user saw of what is changed; 0: any
	body         any   // nil: none
}

func reading(path string) call { return call{method: http.MethodGet, path: path} }

// caller is the user of a session: one with a Kubernetes token, or one of the identity provider.
type caller struct {
	token string
	user  *admin.User
	name  string // as it was when they logged in; empty in a session of an earlier version
}

// ask asks a handler of this process on behalf of the caller. *refusedError when it refuses; into may be nil.
func ask(ctx context.Context, handler http.Handler, who caller, what call, into any) error {
	if who.user != nil {
		ctx = admin.As(ctx, *who.user)
	}
	var body io.Reader = http.NoBody
	if what.body != nil {
		text, err := json.Marshal(what.body)
		if err != nil {
			return fmt.Errorf("encoding the request: %w", err)
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, what.method, what.path, body)
	if err != nil {
		return fmt.Errorf("making the request: %w", err)
	}
	if who.token != "" {
		req.Header.Set("Authorization", "Bearer "+who.token)
	}
	if what.version != 0 {
		req.Header.Set("If-Match", adminapi.Account{Version: what.version}.ETag())
	}
	got := &answer{header: http.Header{}}
	handler.ServeHTTP(got, req)
	if got.status >= http.StatusBadRequest {
		var refused adminapi.Error
		if json.Unmarshal(got.body.Bytes(), &refused) != nil || refused.Error == "" {
			refused.Error = http.StatusText(got.status)
		}
		return &refusedError{Status: got.status, Sentence: refused.Error}
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(got.body.Bytes(), into); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", req.URL.Path, err)
	}
	return nil
}

// visitor sends requests to the admin API on behalf of the page's user, and records them: a user may see the page if that user may send all
// of them.
type visitor struct {
	ctx   context.Context
	api   http.Handler
	who   caller
	asked []string
}

func (v *visitor) get(path string, into any) error {
	v.asked = append(v.asked, path)
	return ask(v.ctx, v.api, v.who, reading(path), into)
}

// do makes a change. It is audited as the visitor's own.
func (v *visitor) do(what call, into any) error { return ask(v.ctx, v.api, v.who, what, into) }

// refusal is how an error is shown.
func refusal(err error) (status int, sentence string) {
	var refused *refusedError
	if errors.As(err, &refused) {
		return refused.Status, refused.Sentence
	}
	return http.StatusInternalServerError, "The console could not render this page. See the server's log."
}
