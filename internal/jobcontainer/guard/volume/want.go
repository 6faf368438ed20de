package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Want makes the directory of a container's socket and the file that says that the container is wanted. Call it as soon as the
// container's name is known: a guard waits for the directory for WantPatience, and ends without it. dir is jobcontainer.Dir.
func Want(dir, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	own := filepath.Join(dir, name)
	if err := os.Mkdir(own, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the directory of container %s: %w", name, err)
	}
	if err := os.WriteFile(filepath.Join(own, wantedFile), nil, 0o600); err != nil {
		return fmt.Errorf("wanting container %s: %w", name, err)
	}
	// Last, and whatever the umask: a guard that is not root makes its socket there.
	if err := os.Chmod(own, 0o777); err != nil { //nolint:gosec // only containers of the same job can enter the volume
		return fmt.Errorf("making the directory of container %s: %w", name, err)
	}
	return nil
}

// Withdraw says that a container is not wanted any more: its guard ends at once if it starts later. A running one goes on: End it.
func Withdraw(dir, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, name), 0o777); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as in Want
		return fmt.Errorf("withdrawing container %s: %w", name, err)
	}
	if err := os.Remove(filepath.Join(dir, name, wantedFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("withdrawing container %s: %w", name, err)
	}
	return nil
}

// wantedFile is the last element of jobcontainer.Wish.
const wantedFile = "wanted"

func checkName(name string) error {
	if name == "" || name == "." || name == ".." || filepath.Base(name) != name {
		return fmt.Errorf("container name %q: expected the name of an ephemeral container", name)
	}
	return nil
}
