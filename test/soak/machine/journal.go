package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/synthetic"
)

// journal is a sandbox that keeps on disk which pods and containers are on it, because a sandbox's record outlives
// everything (sandbox.Sandbox): one file a pod.
type journal struct {
	sandbox.Sandbox
	dir string
	mu  sync.Mutex // guards the files
}

// entry is a pod on record.
type entry struct {
	Pod        *corev1.Pod         `json:"pod"`
	Containers []sandbox.Container `json:"containers"`
}

// remember puts on the machine, before it has any programs, what the journal in the directory has: every container that was
// started has ended without a witness.
func remember(ctx context.Context, m *synthetic.Machine, dir string) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the machine's journal: %w", err)
	}
	j := &journal{Sandbox: synthetic.New(m), dir: dir}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("reading the machine's journal: %w", err)
	}
	for _, file := range files {
		known, err := readEntry(file)
		if err != nil {
			return nil, err
		}
		if err := j.Sandbox.Prepare(ctx, known.Pod); err != nil {
			return nil, fmt.Errorf("recalling pod %s: %w", known.Pod.Name, err)
		}
		for _, c := range known.Containers {
			if err := j.Sandbox.Start(ctx, known.Pod, c); err != nil {
				return nil, fmt.Errorf("recalling pod %s: %w", known.Pod.Name, err)
			}
			if err := m.Lose(string(known.Pod.UID), c.Name); err != nil {
				return nil, fmt.Errorf("recalling pod %s: %w", known.Pod.Name, err)
			}
		}
	}
	return j, nil
}

func readEntry(file string) (entry, error) {
	var known entry
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &known)
	}
	if err != nil {
		return known, fmt.Errorf("reading the machine's journal: %w", err)
	}
	return known, nil
}

func (j *journal) file(uid string) string { return filepath.Join(j.dir, uid+".json") }

func (j *journal) write(known entry) error {
	data, err := json.Marshal(known)
	if err != nil {
		return fmt.Errorf("encoding an entry of the journal: %w", err)
	}
	file := j.file(string(known.Pod.UID))
	if err := os.WriteFile(file+".new", data, 0o600); err != nil {
		return fmt.Errorf("writing the machine's journal: %w", err)
	}
	return os.Rename(file+".new", file)
}

// Prepare implements sandbox.Sandbox.
func (j *journal) Prepare(ctx context.Context, pod *corev1.Pod) error {
	if err := j.note(pod); err != nil {
		return err
	}
	return j.Sandbox.Prepare(ctx, pod)
}

// Start implements sandbox.Sandbox.
func (j *journal) Start(ctx context.Context, pod *corev1.Pod, c sandbox.Container) error {
	if err := j.note(pod, c); err != nil { // before it is started: a container is started at most once
		return err
	}
	return j.Sandbox.Start(ctx, pod, c)
}

// note adds containers to what is on record of a pod.
func (j *journal) note(pod *corev1.Pod, containers ...sandbox.Container) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	known, err := readEntry(j.file(string(pod.UID)))
	if errors.Is(err, fs.ErrNotExist) {
		known, err = entry{Pod: pod}, nil
	}
	if err != nil {
		return err
	}
	known.Containers = append(known.Containers, containers...)
	return j.write(known)
}

// Remove implements sandbox.Sandbox.
func (j *journal) Remove(ctx context.Context, uid string) error {
	if err := j.Sandbox.Remove(ctx, uid); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := os.Remove(j.file(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clearing the machine's journal: %w", err)
	}
	return nil
}
