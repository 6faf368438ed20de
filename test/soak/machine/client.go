package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// Sandbox speaks to a machine in another process. Safe for concurrent use.
type Sandbox struct{ http *http.Client }

var _ sandbox.Sandbox = (*Sandbox)(nil)

// Dial makes a sandbox of the machine behind a socket. It does not connect: a machine may be off for a while.
func Dial(socket string) *Sandbox {
	dialer := &net.Dialer{}
	return &Sandbox{http: &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 256,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
	}}}
}

func (s *Sandbox) call(ctx context.Context, method string, q call) (answer, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return answer{}, fmt.Errorf("encoding a call of the machine: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://machine/"+method, bytes.NewReader(body))
	if err != nil {
		return answer{}, fmt.Errorf("calling the machine: %w", err)
	}
	response, err := s.http.Do(request)
	if err != nil {
		return answer{}, fmt.Errorf("calling the machine: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return answer{}, fmt.Errorf("calling the machine: %s", response.Status)
	}
	var a answer
	if err := json.NewDecoder(response.Body).Decode(&a); err != nil {
		return answer{}, fmt.Errorf("reading the machine's answer: %w", err)
	}
	return a, a.err()
}

// Admit implements sandbox.Sandbox. A machine that cannot be asked refuses nothing: what it would refuse fails later.
func (s *Sandbox) Admit(pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if a, err := s.call(ctx, "admit", call{Pod: pod}); a.Reason != "" {
		return err
	}
	return nil
}

// Prepare implements sandbox.Sandbox.
func (s *Sandbox) Prepare(ctx context.Context, pod *corev1.Pod) error {
	_, err := s.call(ctx, "prepare", call{Pod: pod})
	return err
}

// Start implements sandbox.Sandbox.
func (s *Sandbox) Start(ctx context.Context, pod *corev1.Pod, container sandbox.Container) error {
	_, err := s.call(ctx, "start", call{Pod: pod, Spec: &container})
	return err
}

// Inspect implements sandbox.Sandbox.
func (s *Sandbox) Inspect(ctx context.Context, podUID string) (sandbox.PodState, error) {
	a, err := s.call(ctx, "inspect", call{UID: podUID})
	if err != nil {
		return sandbox.PodState{}, err
	}
	return *a.State, nil
}

// Wait implements sandbox.Sandbox.
func (s *Sandbox) Wait(ctx context.Context, podUID, container string) (sandbox.Exit, error) {
	a, err := s.call(ctx, "wait", call{UID: podUID, Container: container})
	if err != nil {
		return sandbox.Exit{}, err
	}
	return *a.Exit, nil
}

// Signal implements sandbox.Sandbox.
func (s *Sandbox) Signal(ctx context.Context, podUID, container string, signal sandbox.Signal) error {
	_, err := s.call(ctx, "signal", call{UID: podUID, Container: container, Signal: signal})
	return err
}

// Exec implements sandbox.Sandbox, for probes: streams do not go over the wire.
func (s *Sandbox) Exec(ctx context.Context, podUID, container string, command []string, streams sandbox.Streams) (int, error) {
	if streams.In != nil || streams.Out != nil || streams.Err != nil || streams.TTY {
		return 0, fmt.Errorf("running a command with streams on a machine in another process: %w", errors.ErrUnsupported)
	}
	a, err := s.call(ctx, "exec", call{UID: podUID, Container: container, Command: command})
	return a.Code, err
}

// OpenLog implements sandbox.Sandbox: what a synthetic container writes stays in its machine.
func (s *Sandbox) OpenLog(string, string) (sandbox.Log, error) {
	return nil, fmt.Errorf("reading a log on a machine in another process: %w", errors.ErrUnsupported)
}

// Remove implements sandbox.Sandbox.
func (s *Sandbox) Remove(ctx context.Context, podUID string) error {
	_, err := s.call(ctx, "remove", call{UID: podUID})
	return err
}

// List implements sandbox.Sandbox.
func (s *Sandbox) List(ctx context.Context) ([]sandbox.PodRef, error) {
	a, err := s.call(ctx, "list", call{})
	return a.Pods, err
}
