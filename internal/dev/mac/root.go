//go:build unix

package mac

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Root is the directory that a model Mac lives in: its "/".
type Root string

// stateDirectory is the model's own, which no Mac has. A directory that has it is a root.
const stateDirectory = ".devmac"

// Path is where something of the Mac lies on this machine. What lies under the root already, or is relative, stays as it is.
func (r Root) Path(logical string) string {
	if !filepath.IsAbs(logical) || r.has(logical) {
		return logical
	}
	return filepath.Join(string(r), logical)
}

func (r Root) has(path string) bool {
	return path == string(r) || strings.HasPrefix(path, string(r)+"/")
}

// Logical is the path on the Mac of something under the root.
func (r Root) Logical(path string) string {
	if r.has(path) {
		return "/" + strings.TrimPrefix(strings.TrimPrefix(path, string(r)), "/")
	}
	return path
}

func (r Root) state(name string) string { return filepath.Join(string(r), stateDirectory, name) }

// FindRoot is the root that a file lies under.
func FindRoot(path string) (Root, error) {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(filepath.Join(dir, stateDirectory)); err == nil && info.IsDir() {
			return Root(dir), nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s does not lie in a model Mac: make one with `bullpen dev mac`", path)
		}
	}
}

// lock holds one of the model's files against other processes until it is closed.
func (r Root) lock(name string) (*os.File, error) {
	f, err := os.OpenFile(r.state(name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// read reads a part of the model's state, which stays as it is if there is none yet.
func (r Root) read(name string, into any) error {
	data, err := os.ReadFile(r.state(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("reading the model's %s: %w", name, err)
	}
	return nil
}

// write replaces a part of the model's state as a whole.
func (r Root) write(name string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return r.replace(r.state(name), data, 0o600)
}

// replace writes a file beside and renames it, so that no reader sees half of it.
func (r Root) replace(path string, data []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// update changes a part of the state under its lock.
func update[T any](r Root, name string, change func(*T) error) error {
	lock, err := r.lock(name)
	if err != nil {
		return err
	}
	defer lock.Close()
	var value T
	if err := r.read(name, &value); err != nil {
		return err
	}
	if err := change(&value); err != nil {
		return err
	}
	return r.write(name, value)
}
