package courier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
)

// ErrNoResponse is returned by Ask when no response arrived in time.
var ErrNoResponse = errors.New("no response from the controller")

// ErrNotEnabled is returned by Ask in a pod that was made without job containers.
var ErrNotEnabled = errors.New("this pool has no job containers: set spec.template.jobContainers of the RunnerPool, or use a pool that has them")

// Wait is how long Ask waits for a response. The controller looks up images for at most a minute of it.
const Wait = 3 * time.Minute

// Client is the runner's side of the volume.
type Client struct {
	// Dir is the volume.
	Dir string
	// PublicKey is what requests are sealed to.
	PublicKey string
	// Wait and Every are how long to wait for a response, and how often to read the directory; Wait and 20 ms when zero.
	Wait, Every time.Duration
}

// Default is the client for the pod that this process runs in.
func Default() Client { return Client{Dir: Dir, PublicKey: os.Getenv(EnvPublicKey)} }

// Ask has containers added to the pod that this process runs in. It returns when the controller has decided, and added them or not; they start
// after that. It does not fail because of what was asked for: that is the response's Refusal. Asked again with the same ID, it returns the
// same response. An ID has at most 40 lower-case letters, digits and hyphens, and begins with no hyphen.
func Ask(ctx context.Context, request jobcontainer.Request) (jobcontainer.Response, error) {
	return Default().Ask(ctx, request)
}

// FailureOf returns why a container that was added to the pod does not run; false while nothing is known.
func FailureOf(container string) (letter.Failure, bool) { return Default().FailureOf(container) }

// Deleted returns a sentence for the job once the pod is being deleted: a container that the kubelet has not started then never starts.
func (c Client) Deleted() (sentence string, deleted bool) {
	return DeletedText, closedText(c.Dir) == DeletedText
}

// Ask is Ask for the client's volume.
func (c Client) Ask(ctx context.Context, request jobcontainer.Request) (jobcontainer.Response, error) {
	if c.Dir == "" || c.PublicKey == "" {
		return jobcontainer.Response{}, fmt.Errorf("asking for containers: %w", ErrNotEnabled)
	}
	if !letter.ValidID(request.ID) {
		return jobcontainer.Response{}, fmt.Errorf("asking for containers: %q is no id of a request: use lower-case letters, digits and hyphens", request.ID)
	}
	if err := c.send(request); err != nil {
		return jobcontainer.Response{}, fmt.Errorf("asking for containers: %w", err)
	}
	wait, every := c.Wait, c.Every
	if wait <= 0 {
		wait = Wait
	}
	if every <= 0 {
		every = 20 * time.Millisecond
	}
	deadline, look := time.NewTimer(wait), time.NewTicker(every)
	defer deadline.Stop()
	defer look.Stop()
	for {
		if response, done, err := c.response(request.ID); done {
			return response, err
		}
		if text := closedText(c.Dir); text != "" {
			return jobcontainer.Response{ID: request.ID, Refusal: text}, nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return jobcontainer.Response{}, fmt.Errorf("asking for containers: %w", ctx.Err())
		case <-deadline.C:
			return jobcontainer.Response{}, fmt.Errorf("asking for containers: %w within %s: check that the controller runs with --job-containers", ErrNoResponse, wait)
		}
	}
}

// send writes the request, unless it was written before: each sealing makes another text, of which a part may have been sent.
func (c Client) send(request jobcontainer.Request) error {
	if err := prepare(c.Dir); err != nil {
		return err
	}
	path := filepath.Join(requestsDir, request.ID)
	for _, at := range []string{path, filepath.Join(responsesDir, request.ID)} {
		if _, err := os.Lstat(filepath.Join(c.Dir, at)); err == nil {
			return nil
		}
	}
	text, err := letter.Seal(request, c.PublicKey)
	if err != nil {
		return err
	}
	return place(c.Dir, path, []byte(text))
}

func (c Client) response(id string) (response jobcontainer.Response, done bool, err error) {
	content, err := read(filepath.Join(c.Dir, responsesDir, id))
	if errors.Is(err, os.ErrNotExist) {
		return response, false, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &response)
	}
	if err != nil {
		return jobcontainer.Response{}, true, fmt.Errorf("reading the response to a request for containers: %w", err)
	}
	return response, true, nil
}

// FailureOf is FailureOf for the client's volume.
func (c Client) FailureOf(container string) (failure letter.Failure, known bool) {
	if !letter.ValidID(container) {
		return failure, false
	}
	content, err := read(filepath.Join(c.Dir, failuresDir, container))
	if err != nil || json.Unmarshal(content, &failure) != nil {
		return letter.Failure{}, false
	}
	return failure, true
}
