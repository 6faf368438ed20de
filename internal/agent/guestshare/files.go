package guestshare

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Names of the shares, as Tart's --dir option takes them and a macOS guest shows them below SharesDir.
const (
	ShareBullpen = "bullpen"
	ShareStatus  = "status"
)

// SharesDir is where a macOS guest shows named shares (tart run --dir, Tart's manual). EnvShares names another place.
const (
	SharesDir = "/Volumes/My Shared Files"
	EnvShares = "BULLPEN_GUEST_SHARES"
)

// Files of the read-only share.
const (
	FileAgent     = "bullpen"
	FileSpec      = "guest.json"
	FileTerminate = "terminate"
)

// Files of the status share.
const (
	FileHeartbeat = "heartbeat"
	FileLog       = "runner.log"
	FileLogTimes  = "runner.log.times"
	FileExit      = "exit.json"
	FileGuestLog  = "guest.log"
	execPrefix    = "exec-"
)

// FileExec is where the end of one command of Exec is reported, in the status share.
func FileExec(id string) string { return execPrefix + id + ".json" }

// FileExecEnd is the order to end that command, in the read-only share.
func FileExecEnd(id string) string { return execPrefix + id + ".end" }

// StagedSuffix ends the name of a configuration that the poller has staged and not released yet: the supervisor takes it only when the
// poller has died.
const StagedSuffix = ".staged"

// MaxRecord bounds a JSON file of either share, in bytes. The specification holds a container's environment, which
// Kubernetes bounds to about a megabyte.
const MaxRecord = 4 << 20

// Spec is guest.json: what the guest runs, once.
type Spec struct {
	PodUID string `json:"podUID"`
	// Placeholder stands for the guest's own directory in Command, Env and WorkingDir: its path is known in the guest
	// only.
	Placeholder string   `json:"placeholder"`
	Command     []string `json:"command"`
	Env         []string `json:"env,omitempty"` // NAME=value, added to what the guest's user has
	WorkingDir  string   `json:"workingDir,omitempty"`
	// Each becomes a directory of the guest's own: a volume that no other container sees.
	Folders []string `json:"folders,omitempty"`
}

// Subdirectories of the guest's own directory: the two shares under paths without a space, and where the
// command starts.
const (
	GuestShared = "shared"
	GuestStatus = "status"
	GuestWork   = "work"
)

// Report is exit.json: how a command ended. It comes from the customer's machine.
type Report struct {
	Code   int32 `json:"code"`
	Signal int32 `json:"signal,omitempty"`
	// Reason is a CamelCase word where there is more to say than the code does; Message a sentence.
	Reason     string    `json:"reason,omitempty"`
	Message    string    `json:"message,omitempty"`
	StartedAt  time.Time `json:"startedAt"`
	FinishedAt time.Time `json:"finishedAt"`
}

// ReasonStartError reports that the command could not be started.
const ReasonStartError = "StartError"

// check says what is wrong with a report.
func (r Report) check() error {
	switch {
	case r.Code < 0 || r.Code > 255:
		return fmt.Errorf("the exit code %d is out of range", r.Code)
	case r.Signal < 0 || r.Signal > 64:
		return fmt.Errorf("the signal %d is out of range", r.Signal)
	}
	return nil
}

// WriteJSON puts v at path by rename: a reader sees all of it or nothing.
func WriteJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", filepath.Base(path), err)
	}
	return Write(path, data)
}

// Write puts data at path by rename, readable by the owner alone.
func Write(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // after the rename there is nothing left to remove
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// Open opens a plain file of a share for reading. Anything but a plain file, or a link that leads out of the
// directory, is refused; a pipe in its place does not block.
func Open(dir, name string) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no plain file", name)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// Read reads a small plain file of a share; the error is fs.ErrNotExist when there is none.
func Read(dir, name string) ([]byte, error) {
	file, err := Open(dir, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, MaxRecord+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxRecord {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, MaxRecord)
	}
	return data, nil
}

// Absent reports whether nothing of that name is in a directory. false also when that cannot be determined.
func Absent(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return errors.Is(err, fs.ErrNotExist)
}

// HostFailed reports whether an error of ReadReport was caused by this machine, which lacks some resource, and not by the report.
func HostFailed(err error) bool {
	for _, short := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EIO, syscall.EINTR} {
		if errors.Is(err, short) {
			return true
		}
	}
	return false
}

// ReadReport reads a report; false when there is none. One that is malformed is an error, as is a failure of this machine
// (HostFailed).
func ReadReport(dir, name string) (Report, bool, error) {
	data, err := Read(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return Report{}, false, nil
	}
	if err != nil {
		return Report{}, false, fmt.Errorf("reading the guest's report: %w", err)
	}
	var r Report
	if err := json.Unmarshal(data, &r); err != nil {
		return Report{}, false, fmt.Errorf("the guest's report is not the JSON it should be: %w", err)
	}
	if err := r.check(); err != nil {
		return Report{}, false, fmt.Errorf("the guest's report: %w", err)
	}
	r.Reason, r.Message = clip(r.Reason, 64), clip(r.Message, 1024)
	return r, true, nil
}

func clip(text string, most int) string {
	if len(text) > most {
		return text[:most]
	}
	return text
}

// Heartbeat is when the guest's agent was last seen, by the host's clock of the file; false when it never was. A time in the
// future counts as now: the guest may set any.
func Heartbeat(dir string, now time.Time) (time.Time, bool) {
	file, err := Open(dir, FileHeartbeat)
	if err != nil {
		return time.Time{}, false
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return time.Time{}, false
	}
	if info.ModTime().After(now) {
		return now, true
	}
	return info.ModTime(), true
}
