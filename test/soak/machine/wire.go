package machine

import (
	"errors"
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// call is one method of sandbox.Sandbox with its arguments; the path names the method.
type call struct {
	Pod       *corev1.Pod        `json:"pod,omitempty"`
	Spec      *sandbox.Container `json:"spec,omitempty"`
	UID       string             `json:"uid,omitempty"`
	Container string             `json:"container,omitempty"`
	Signal    sandbox.Signal     `json:"signal,omitempty"`
	Command   []string           `json:"command,omitempty"`
}

// answer is what it returned.
type answer struct {
	State *sandbox.PodState `json:"state,omitempty"`
	Exit  *sandbox.Exit     `json:"exit,omitempty"`
	Code  int               `json:"code,omitempty"`
	Pods  []sandbox.PodRef  `json:"pods,omitempty"`
	// Error is empty for none. NotFound and Reason say which.
	Error    string `json:"error,omitempty"`
	NotFound bool   `json:"notFound,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

func (a *answer) fail(err error) {
	if err == nil {
		return
	}
	a.Error = err.Error()
	a.NotFound = errors.Is(err, sandbox.ErrNotFound)
	var invalid *sandbox.InvalidError
	if errors.As(err, &invalid) {
		a.Reason = invalid.Reason
	}
}

func (a *answer) err() error {
	switch {
	case a.Error == "":
		return nil
	case a.NotFound:
		return sandbox.ErrNotFound
	case a.Reason != "":
		return &sandbox.InvalidError{Reason: a.Reason, Message: a.Error}
	}
	return errors.New(a.Error)
}

const maxCall = 4 << 20

func limited(r *http.Request) *http.Request {
	r.Body = http.MaxBytesReader(nil, r.Body, maxCall)
	return r
}
