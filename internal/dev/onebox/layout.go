package onebox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// formatVersion is the version of the state directory's layout. It changes when an older directory cannot be reused.
const formatVersion = 1

// Layout names everything in a state directory. docs/guides/one-machine.md lists it for users.
type Layout struct {
	// Dir is the directory, absolute.
	Dir string
}

// NewLayout makes dir absolute; nothing is created.
func NewLayout(dir string) (Layout, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return Layout{}, fmt.Errorf("resolving the state directory: %w", err)
	}
	return Layout{Dir: absolute}, nil
}

// DefaultStateDir is the default state directory of `bullpen up`. PostgreSQL does not run as root, and its user cannot access root's home, so
// root has another default.
func DefaultStateDir(getenv func(string) string, root bool) (string, error) {
	base := getenv("XDG_STATE_HOME")
	switch {
	case base != "":
	case root:
		base = "/var/lib"
	default:
		home := getenv("HOME")
		if home == "" {
			return "", errors.New("HOME is not set. Use --state-dir")
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "bullpen", "onebox"), nil
}

func (l Layout) path(elements ...string) string {
	return filepath.Join(append([]string{l.Dir}, elements...)...)
}

func (l Layout) marker() string       { return l.path("bullpen-onebox.json") }
func (l Layout) lockFile() string     { return l.path("lock") }
func (l Layout) statusFile() string   { return l.path("status.json") }
func (l Layout) recordFile() string   { return l.path("processes.json") }
func (l Layout) portsFile() string    { return l.path("ports.json") }
func (l Layout) controlPlane() string { return l.path("control-plane") }
func (l Layout) auditPolicy() string  { return l.path("control-plane", "audit-policy.yaml") }
func (l Layout) postgres() string     { return l.path("postgres") }

// Node is the process sandbox's directory: its pods, their files and their logs.
func (l Layout) Node() string { return l.path("node") }

// images keeps what the node's container runtime has, with --containers. Package realnode has more directories beside it.
func (l Layout) images() string { return l.path("images") }

// MacNode is the macOS node agent's directory.
func (l Layout) MacNode() string { return l.path("node-mac") }

// TartHome is where the fake of Tart has its virtual machines.
func (l Layout) TartHome() string { return l.path("tart") }

func (l Layout) githubState() string { return l.path("github", "state.json") }

// Log is where a process writes its log.
func (l Layout) Log(name string) string { return l.path("logs", name+".log") }

func (l Layout) secret(name string) string   { return l.path("secrets", name) }
func (l Layout) identity(name string) string { return l.path("identities", name) }

// marker is what says that a directory is ours.
type marker struct {
	Format int `json:"format"`
	// Containers says that runners are containers here.
	Containers bool `json:"containers,omitempty"`
}

// StaleFolderError says why a state directory cannot be reused, and what to do.
type StaleFolderError struct{ Problem string }

// Error is one sentence.
func (e *StaleFolderError) Error() string { return e.Problem }

// check reports whether the directory is one of ours (found), or can become one.
func (l Layout) check() (found bool, err error) {
	data, err := os.ReadFile(l.marker())
	if errors.Is(err, fs.ErrNotExist) {
		return false, l.checkEmpty()
	}
	if err != nil {
		return false, fmt.Errorf("reading the state directory: %w", err)
	}
	var m marker
	if err := json.Unmarshal(data, &m); err != nil || m.Format == 0 {
		return true, &StaleFolderError{fmt.Sprintf("%s is damaged, so the state directory cannot be reused. "+
			"Run `bullpen down --delete --state-dir %s`, or choose another directory", l.marker(), l.Dir)}
	}
	if m.Format != formatVersion {
		return true, &StaleFolderError{fmt.Sprintf("the state directory %s is of another version of bullpen (format %d, this one "+
			"has %d). Run `bullpen down --delete --state-dir %s`, or choose another directory", l.Dir, m.Format, formatVersion, l.Dir)}
	}
	return true, nil
}

// checkKind refuses a directory whose runners are of the other kind: its cluster has a node that is something else.
func (l Layout) checkKind(containers bool) error {
	data, err := os.ReadFile(l.marker())
	var m marker
	if err != nil || json.Unmarshal(data, &m) != nil || m.Containers == containers {
		return nil //nolint:nilerr // check reports a marker that cannot be read
	}
	was, do := "without --containers", "Leave --containers out"
	if m.Containers {
		was, do = "with --containers", "Add --containers"
	}
	return &StaleFolderError{fmt.Sprintf("the state directory %s was made %s. %s, choose another --state-dir, or run `bullpen down --delete --state-dir %s`",
		l.Dir, was, do, l.Dir)}
}

func (l Layout) checkEmpty() error {
	entries, err := os.ReadDir(l.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the state directory: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() != filepath.Base(l.lockFile()) {
			return &StaleFolderError{fmt.Sprintf("%s has files that are not Bullpen's state (%s). Choose an empty directory with --state-dir",
				l.Dir, entry.Name())}
		}
	}
	return nil
}

// prepare creates the directories. They are private to the user; only root's state directory itself can be traversed (not listed) by others,
// because PostgreSQL runs as an unprivileged user.
func (l Layout) prepare(root, containers bool) error {
	mode := os.FileMode(0o700)
	if root {
		mode = 0o711
	}
	for _, dir := range []string{l.Dir, l.path("logs"), l.path("secrets"), l.path("identities"), l.path("github"), l.Node()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("creating the state directory: %w", err)
		}
	}
	if err := os.Chmod(l.Dir, mode); err != nil {
		return fmt.Errorf("restricting the state directory: %w", err)
	}
	return writeJSON(l.marker(), marker{Format: formatVersion, Containers: containers})
}

// delete removes the directory and everything in it. The caller holds the lock and has checked that the directory is ours.
func (l Layout) delete() error {
	if err := os.RemoveAll(l.Dir); err == nil {
		return nil
	}
	// Build tools make directories read-only inside a runner's work directory.
	_ = filepath.WalkDir(l.Dir, func(path string, entry fs.DirEntry, _ error) error {
		if entry != nil && entry.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	if err := os.RemoveAll(l.Dir); err != nil {
		return fmt.Errorf("deleting the state directory: %w", err)
	}
	return nil
}

func writeJSON(path string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	return writePrivate(path, append(data, '\n'))
}

// writePrivate replaces a file at once, so that a reader never sees half of it; only its owner may read it.
func writePrivate(path string, data []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // 0600
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
