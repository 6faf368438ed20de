package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
)

// box is what `bullpen up` writes into its state directory while it runs.
type box struct {
	Admin      string            `json:"admin"`
	Kubeconfig string            `json:"kubeconfig"`
	GitHub     string            `json:"github"`
	StandIn    bool              `json:"standIn"`
	Metrics    map[string]string `json:"metrics"`
	Owner      childproc.Process `json:"owner"`
}

// KilledError reports that the `bullpen up` of a state directory did not stop by itself: its status file is there, and its process is not.
type KilledError struct {
	Dir string
	PID int
}

// Error names the process, and the two ways on.
func (e *KilledError) Error() string {
	return fmt.Sprintf("`bullpen up` was killed (PID %d, state directory %s); run it again. It stops what is left of the last run and continues with "+
		"its state; `bullpen down` only stops it", e.PID, e.Dir)
}

// readBox reads what a `bullpen up` has written. The error is a *KilledError if that process no longer exists.
func readBox(dir string) (box, error) {
	var b box
	data, err := os.ReadFile(filepath.Join(dir, "status.json"))
	if err == nil {
		err = json.Unmarshal(data, &b)
	}
	switch {
	case err != nil:
		return b, fmt.Errorf("reading the status of bullpen up: %w", err)
	case b.Owner.Started != "" && !b.Owner.Alive():
		return b, &KilledError{Dir: dir, PID: b.Owner.PID}
	}
	return b, nil
}

// errNotRunning reports that no `bullpen up` runs in a directory that was named.
func errNotRunning(dir string, err error) error {
	var killed *KilledError
	if errors.As(err, &killed) {
		return err
	}
	return fmt.Errorf("`bullpen up` is not running in %s. Start it, or name a cluster with --kubeconfig", dir)
}

// boxOf is the state directory of the running `bullpen up` that wrote a kubeconfig; empty if none did.
func boxOf(kubeconfig string) string {
	if kubeconfig == "" {
		return ""
	}
	path, err := filepath.Abs(kubeconfig)
	if err != nil {
		return ""
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if status, err := readBox(dir); err == nil && status.Kubeconfig == path {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// upDir is the state directory of the `bullpen up` to use if nothing names a server: the one whose kubeconfig KUBECONFIG names, as its banner
// says, else the default. Empty if this program or machine has none.
func (c *Connection) upDir() string {
	if c.DefaultStateDir == nil {
		return ""
	}
	return cmp.Or(boxOf(c.getenv("KUBECONFIG")), c.defaultDir())
}
