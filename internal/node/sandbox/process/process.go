//go:build unix

package process

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// envMark carries the ownership mark "<owner>/<pod uid>/<container>" in every process of a container (NODE-7).
const envMark = "BULLPEN_SANDBOX"

// plainPath is the pattern of a state directory's path: host paths end up inside shell commands, where a space or a quote would be read as
// syntax.
var plainPath = regexp.MustCompile(`^/[A-Za-z0-9/._+@~-]*$`)

// Options configure the sandbox.
type Options struct {
	// StateDir is where everything is kept. Required, absolute, without spaces or characters that a shell would interpret.
	StateDir string
	// ShimCommand is the argument vector that ends up in RunShim; the container's directory is appended. Default: this binary with `node
	// shim`.
	ShimCommand []string
	// Binary is what `bullpen` means inside containers. Default: this binary.
	Binary string
	// Enclosure, if set, gives each pod a network and each container a root file system of its own (Linux, as root). Without
	// it containers are processes like any other.
	Enclosure *Enclosure
	// Log receives what is returned to no caller. Default: discarded.
	Log *slog.Logger
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Sandbox implements sandbox.Sandbox.
type Sandbox struct {
	opts  Options
	owner string

	mu    sync.Mutex
	shims map[string]*shimChild // by container directory; only those started by this process
	execs map[string]*commands  // by container directory; those that run
}

var _ sandbox.Sandbox = (*Sandbox)(nil)

// shimChild is a shim that this process started and so must reap.
type shimChild struct {
	started chan struct{} // closed when Start has returned
	cmd     *exec.Cmd     // nil when the start failed
	reap    sync.Once
}

// New opens the state directory, creating it if it does not exist.
func New(opts Options) (*Sandbox, error) {
	if !filepath.IsAbs(opts.StateDir) || !plainPath.MatchString(opts.StateDir) {
		return nil, fmt.Errorf("state directory %q: give an absolute path of letters, digits and / . _ + @ ~ - only, since "+
			"it becomes part of the containers' commands", opts.StateDir)
	}
	opts.StateDir = filepath.Clean(opts.StateDir)
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this binary: %w", err)
	}
	if opts.ShimCommand == nil {
		opts.ShimCommand = []string{self, "node", "shim"}
	}
	if opts.Binary == "" {
		opts.Binary = self
	}
	if opts.Enclosure != nil {
		if opts.Enclosure, err = opts.Enclosure.withDefaults(self); err != nil {
			return nil, err
		}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s := &Sandbox{opts: opts, shims: map[string]*shimChild{}, execs: map[string]*commands{}}
	for _, dir := range []string{opts.StateDir, s.podsDir(), s.removingDir(), s.binDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("making the state directory: %w", err)
		}
	}
	if s.owner, err = loadOwner(opts.StateDir); err != nil {
		return nil, err
	}
	if err := linkBinary(opts.Binary, filepath.Join(s.binDir(), "bullpen")); err != nil {
		return nil, err
	}
	return s, nil
}

// loadOwner reads the directory's identity, drawing it first when the directory is new. Of two that draw at once one wins.
func loadOwner(stateDir string) (string, error) {
	file := filepath.Join(stateDir, "owner")
	raw := make([]byte, 16)
	_, _ = rand.Read(raw) // never fails
	tmp := file + "-" + hex.EncodeToString(raw)
	if err := os.WriteFile(tmp, []byte(hex.EncodeToString(raw)), 0o600); err != nil {
		return "", fmt.Errorf("writing the state directory's owner: %w", err)
	}
	defer func() { _ = os.Remove(tmp) }()
	if err := os.Link(tmp, file); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("writing the state directory's owner: %w", err)
	}
	owner, err := os.ReadFile(file)
	if err != nil || len(owner) == 0 {
		return "", fmt.Errorf("reading the state directory's owner in %s: remove the file when nothing of the directory runs any more: %w", file, err)
	}
	return strings.TrimSpace(string(owner)), nil
}

// linkBinary points link at the binary, atomically: containers of an older agent may be using it.
func linkBinary(binary, link string) error {
	tmp := fmt.Sprintf("%s-%d", link, os.Getpid())
	_ = os.Remove(tmp)
	if err := os.Symlink(binary, tmp); err != nil {
		return fmt.Errorf("linking the binary into the containers' path: %w", err)
	}
	if err := os.Rename(tmp, link); err != nil {
		return fmt.Errorf("linking the binary into the containers' path: %w", err)
	}
	return nil
}

func (s *Sandbox) podsDir() string     { return filepath.Join(s.opts.StateDir, "pods") }
func (s *Sandbox) removingDir() string { return filepath.Join(s.opts.StateDir, "removing") }
func (s *Sandbox) binDir() string      { return filepath.Join(s.opts.StateDir, "bin") }

// podDir is the directory of a pod.
func (s *Sandbox) podDir(uid string) string { return filepath.Join(s.podsDir(), filepath.Base(uid)) }

func (s *Sandbox) container(uid, name string) container {
	return container{uid: uid, name: name, dir: filepath.Join(s.podDir(uid), "containers", filepath.Base(name))}
}

// LogFile is where a container's standard output and error go.
func (s *Sandbox) LogFile(podUID, name string) string {
	return filepath.Join(s.podDir(podUID), "logs", filepath.Base(name)+".log")
}

// Admit refuses a pod that needs its images: there is no image here to take a command from.
func (s *Sandbox) Admit(pod *corev1.Pod) error {
	for i := range pod.Spec.InitContainers {
		if err := admit(fmt.Sprintf("spec.initContainers[%d]", i), &pod.Spec.InitContainers[i]); err != nil {
			return err
		}
	}
	for i := range pod.Spec.Containers {
		if err := admit(fmt.Sprintf("spec.containers[%d]", i), &pod.Spec.Containers[i]); err != nil {
			return err
		}
	}
	return nil
}

func admit(field string, c *corev1.Container) error {
	if len(c.Command) == 0 {
		return invalid("%s.command: container %q has no command: the process sandbox runs programs of this machine and ignores images, so set "+
			"`command`", field, c.Name)
	}
	for i, m := range c.VolumeMounts {
		if filepath.Clean(m.MountPath) == "/" {
			return invalid("%s.volumeMounts[%d].mountPath: container %q mounts volume %q at /: the process sandbox has no root of its own to put it at",
				field, i, c.Name, m.Name)
		}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return &sandbox.InvalidError{Reason: sandbox.ReasonConfigError, Message: fmt.Sprintf(format, args...)}
}

// Prepare creates the pod's directory, and its network.
func (s *Sandbox) Prepare(ctx context.Context, pod *corev1.Pod) error {
	uid := string(pod.UID)
	for _, dir := range []string{"containers", "logs"} {
		if err := os.MkdirAll(filepath.Join(s.podDir(uid), dir), 0o700); err != nil {
			return fmt.Errorf("making the pod's directory: %w", err)
		}
	}
	record := podRecord{PodRef: sandbox.PodRef{UID: uid, Namespace: pod.Namespace, Name: pod.Name}, Terms: sandbox.TermsOf(pod), Owner: s.owner}
	if err := writeJSON(filepath.Join(s.podDir(uid), "pod.json"), record); err != nil {
		return fmt.Errorf("recording the pod: %w", err)
	}
	if s.opts.Enclosure == nil {
		return nil
	}
	_, err := s.opts.Enclosure.Network.Attach(ctx, uid)
	return err
}

// pod reads a pod's record. NODE-7: a directory without this sandbox's mark is not on record, regardless of its creator.
func (s *Sandbox) pod(uid string) (podRecord, error) {
	var record podRecord
	found, err := readJSON(filepath.Join(s.podDir(uid), "pod.json"), &record)
	if err != nil {
		return podRecord{}, fmt.Errorf("reading the pod's record: %w", err)
	}
	if !found || record.Owner != s.owner || record.UID != uid {
		return podRecord{}, sandbox.ErrNotFound
	}
	return record, nil
}

// List implements sandbox.Sandbox.
func (s *Sandbox) List(context.Context) ([]sandbox.PodRef, error) {
	entries, err := os.ReadDir(s.podsDir())
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	var refs []sandbox.PodRef
	for _, e := range entries {
		record, err := s.pod(e.Name())
		if errors.Is(err, sandbox.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		refs = append(refs, record.PodRef)
	}
	return refs, nil
}

// Inspect implements sandbox.Sandbox.
func (s *Sandbox) Inspect(_ context.Context, podUID string) (sandbox.PodState, error) {
	record, err := s.pod(podUID)
	if err != nil {
		return sandbox.PodState{}, err
	}
	state := sandbox.PodState{PodRef: record.PodRef, Terms: record.Terms}
	if s.opts.Enclosure != nil {
		if address, attached := s.opts.Enclosure.Network.Address(podUID); attached {
			state.Address = address.String()
		}
	}
	containers, err := s.containers(podUID)
	if err != nil {
		return sandbox.PodState{}, err
	}
	for _, c := range containers {
		st, err := c.state()
		if err != nil {
			return sandbox.PodState{}, fmt.Errorf("reading container %s: %w", c.name, err)
		}
		state.Containers = append(state.Containers, st)
	}
	return state, nil
}

func (s *Sandbox) containers(podUID string) ([]container, error) {
	entries, err := os.ReadDir(filepath.Join(s.podDir(podUID), "containers"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing containers: %w", err)
	}
	var all []container
	for _, e := range entries {
		all = append(all, s.container(podUID, e.Name()))
	}
	return all, nil
}

// onRecord finds a container, or says ErrNotFound.
func (s *Sandbox) onRecord(podUID, name string) (container, error) {
	if _, err := s.pod(podUID); err != nil {
		return container{}, err
	}
	c := s.container(podUID, name)
	if _, err := os.Stat(c.dir); errors.Is(err, fs.ErrNotExist) {
		return container{}, sandbox.ErrNotFound
	} else if err != nil {
		return container{}, err
	}
	return c, nil
}
