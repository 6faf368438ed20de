package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// Names of a container's files; see doc.go.
const (
	fileSpec    = "spec.json"
	fileStarted = "started.json"
	fileExit    = "exit.json"
	fileAlive   = "alive"
	fileControl = "control"
	fileShimLog = "shim.log"
	fileTimes   = "times"
	fileExecs   = "execs" // there once a command was run beside the container: it may have left something behind
)

// podRecord is pod.json.
type podRecord struct {
	sandbox.PodRef
	sandbox.Terms
	Owner string `json:"owner"`
}

// spec is spec.json: the shim's input. It holds the container's environment and so, perhaps, secrets: mode 0600 in a directory of mode
// 0700, deleted with the pod.
type spec struct {
	Args   []string        `json:"args"` // Args[0] is an absolute path
	Env    []string        `json:"env"`
	Dir    string          `json:"dir"`
	Log    string          `json:"log"`
	Mounts []sandbox.Mount `json:"mounts,omitempty"`
	// Inside is what a container with an enclosure runs; Args then bring it there.
	Inside *inside `json:"inside,omitempty"`
}

// started is started.json, written by the shim. PID serves people and container ids only: nothing is ever signalled by it.
type started struct {
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"startedAt"`
}

// writeJSON writes v to path atomically: a reader sees all of it or nothing, even if the writer is killed or the power fails.
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

// readJSON reads a record; false when there is none. One that is no JSON was cut short by a power failure and counts as none.
func readJSON(path string, v any) (bool, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return json.Unmarshal(data, v) == nil, nil
}

// container is the directory of one container on record.
type container struct {
	uid, name, dir string
}

func (c container) path(file string) string { return filepath.Join(c.dir, file) }

// state reads what is on record, without waiting. A container without an exit record counts as running: whether its shim still runs and
// will write one is checked by Wait.
func (c container) state() (sandbox.ContainerState, error) {
	st := sandbox.ContainerState{Name: c.name, ID: "process://" + c.uid + "/" + c.name}
	var exit sandbox.Exit
	exited, err := readJSON(c.path(fileExit), &exit)
	if err != nil {
		return st, err
	}
	if exited {
		st.Exit = &exit
	}
	begun, err := c.begun()
	st.StartedAt = begun.StartedAt
	if begun.PID != 0 {
		st.ID = fmt.Sprintf("%s/%d", st.ID, begun.PID)
	}
	return st, err
}

// begun reads the start record; without one, it uses the directory's own age.
func (c container) begun() (started, error) {
	var s started
	found, err := readJSON(c.path(fileStarted), &s)
	if err != nil || found {
		return s, err
	}
	info, err := os.Stat(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return s, sandbox.ErrNotFound
	}
	if err != nil {
		return s, err
	}
	return started{StartedAt: info.ModTime()}, nil
}
