package tart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// record is what this back end has begun for a pod. It is written before each step that it records: an agent that is killed in between is
// assumed to have taken the step.
type record struct {
	sandbox.PodRef
	sandbox.Terms
	Owner string `json:"owner"`
	// VM is the name of the pod's virtual machine, from before it is cloned.
	VM    string `json:"vm,omitempty"`
	Image string `json:"image,omitempty"`
	// Digest is the image's, once that is known.
	Digest string `json:"digest,omitempty"`
	// Shared is the directory of this machine that the guest reads.
	Shared string `json:"shared,omitempty"`
	// Attempt counts the starts of the machine. Begun says that the last one counts: from before `tart run` on, until it is known that no guest came up.
	Attempt   int       `json:"attempt,omitempty"`
	Begun     bool      `json:"begun,omitempty"`
	StartedAt time.Time `json:"startedAt,omitzero"`
	// StayedUp indicates that the machine was seen to run.
	StayedUp bool `json:"stayedUp,omitempty"`
	// Heard reports that the guest's agent has reported: from then on a job may run in the machine.
	Heard bool `json:"heard,omitempty"`
	// Killed indicates that it is ended on request; GaveUp, that this agent ends it by itself, and why.
	Killed        bool   `json:"killed,omitempty"`
	GaveUp        string `json:"gaveUp,omitempty"`
	GaveUpMessage string `json:"gaveUpMessage,omitempty"`
	// Exit is the runner's end, once settled. It never changes then.
	Exit *sandbox.Exit `json:"exit,omitempty"`
}

// process is the name of the process container that holds `tart run`. Kubernetes allows no container a name with a dot.
func (r record) process() string { return containerPrefix + strconv.Itoa(r.Attempt) }

const containerPrefix = "runner."

// running reports whether a machine may run.
func (r record) running() bool { return r.Begun && r.Exit == nil }

func (s *Sandbox) vmsDir() string            { return filepath.Join(s.opts.StateDir, "vms") }
func (s *Sandbox) goldensDir() string        { return filepath.Join(s.opts.StateDir, "goldens") }
func (s *Sandbox) fetchedDir() string        { return filepath.Join(s.opts.StateDir, "fetched") }
func (s *Sandbox) fetchingDir() string       { return filepath.Join(s.opts.StateDir, "fetching") }
func (s *Sandbox) goneDir() string           { return filepath.Join(s.opts.StateDir, "vms-removing") }
func (s *Sandbox) vmDir(uid string) string   { return filepath.Join(s.vmsDir(), filepath.Base(uid)) }
func (s *Sandbox) statusDir(u string) string { return filepath.Join(s.vmDir(u), "status") }

const recordFile = "record.json"

// load reads a pod's record. NODE-7: one that does not carry this state directory's mark is none.
func (s *Sandbox) load(uid string) (record, error) {
	var r record
	found, err := readJSON(filepath.Join(s.vmDir(uid), recordFile), &r)
	if err != nil {
		return r, fmt.Errorf("reading the pod's record: %w", err)
	}
	if !found || r.Owner != s.owner || r.UID != uid || r.VM != "" && !carriesMark(s.owner, r.VM) {
		return record{}, sandbox.ErrNotFound
	}
	return r, nil
}

func (s *Sandbox) save(r record) error {
	if err := writeJSON(filepath.Join(s.vmDir(r.UID), recordFile), r); err != nil {
		return fmt.Errorf("recording the pod: %w", err)
	}
	return nil
}

// records are those of all pods. One that cannot be read hides no other.
func (s *Sandbox) records() ([]record, error) {
	entries, err := os.ReadDir(s.vmsDir())
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	var all []record
	var failed error
	for _, e := range entries {
		switch r, err := s.load(e.Name()); {
		case err == nil:
			all = append(all, r)
		case !errors.Is(err, sandbox.ErrNotFound):
			failed = errors.Join(failed, err)
		}
	}
	return all, failed
}

// writeJSON puts v at path so that a reader, also after a power failure, sees the old one or the new one.
func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", filepath.Base(path), err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // after the rename there is nothing left to remove
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// readJSON reads a record; false when there is none.
func readJSON(path string, v any) (bool, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, json.Unmarshal(data, v)
}

// locks are one lock for each key. An unused lock takes no memory.
type locks struct {
	mu   sync.Mutex
	held map[string]*heldLock
}

type heldLock struct {
	token chan struct{} // holds one element while the lock is free
	users int
}

// tryLock takes the key's lock if it is free and no caller waits for it.
func (l *locks) tryLock(key string) (unlock func(), taken bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[key] != nil {
		return nil, false
	}
	if l.held == nil {
		l.held = map[string]*heldLock{}
	}
	h := &heldLock{token: make(chan struct{}, 1), users: 1} // no token: it is taken
	l.held[key] = h
	return func() { l.release(key, h, true) }, true
}

// lock takes the key's lock; callers with another key do not wait (NODE-6). The error is ctx's.
func (l *locks) lock(ctx context.Context, key string) (unlock func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*heldLock{}
	}
	h := l.held[key]
	if h == nil {
		h = &heldLock{token: make(chan struct{}, 1)}
		h.token <- struct{}{}
		l.held[key] = h
	}
	h.users++
	l.mu.Unlock()
	select {
	case <-h.token:
		return func() { l.release(key, h, true) }, nil
	case <-ctx.Done():
		l.release(key, h, false)
		return nil, context.Cause(ctx)
	}
}

// release gives the lock back, if it was taken, and forgets it when no caller is left.
func (l *locks) release(key string, h *heldLock, taken bool) {
	if taken {
		h.token <- struct{}{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.users--; h.users == 0 {
		delete(l.held, key)
	}
}
