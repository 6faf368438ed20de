package chaos

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
)

// Points arms the fault points of processes that were started with Environment, and sets their clocks. Only a binary that
// was built with the tag faultpoints heeds it.
type Points struct {
	// Dir is a directory of the test's own, outside of every state directory.
	Dir string
}

// anyProcess as a PID means whichever process passes the point first, or the clocks of all.
const anyProcess = 0

// Environment is the variable that the processes need.
func (p Points) Environment() string { return "BULLPEN_FAULTPOINT_DIR=" + p.Dir }

// Arm has the process die at its nth passing of the point from now on, 1 for the first. With PID 0 it is whichever process
// comes first. It is armed for one death only: see Armed.
func (p Points) Arm(point faultpoint.Point, nth, pid int) error {
	return p.write(string(point), pid, strconv.Itoa(nth))
}

// Armed reports whether the process has not died at the point yet.
func (p Points) Armed(point faultpoint.Point, pid int) bool {
	_, err := os.Stat(p.file(string(point), pid))
	return err == nil
}

// Disarm takes the point back. It reports whether that was in time: false means that a process has died there.
func (p Points) Disarm(point faultpoint.Point, pid int) (inTime bool, err error) {
	err = os.Remove(p.file(string(point), pid))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Skew sets a server's clock wrong by so much, from a tenth of a second from now on; 0 corrects it. With PID 0 it is every
// server's that has no skew of its own.
func (p Points) Skew(pid int, by time.Duration) error {
	if by != 0 {
		return p.write("clock", pid, by.String())
	}
	if err := os.Remove(p.file("clock", pid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("setting a clock right: %w", err)
	}
	return nil
}

func (p Points) file(name string, pid int) string {
	if pid != anyProcess {
		name += "." + strconv.Itoa(pid)
	}
	return filepath.Join(p.Dir, name)
}

// write makes the file appear whole: half of it would be another order.
func (p Points) write(name string, pid int, content string) error {
	temporary, err := os.CreateTemp(p.Dir, ".arming-*")
	if err != nil {
		return fmt.Errorf("arming %s: %w", name, err)
	}
	_, err = temporary.WriteString(content)
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), p.file(name, pid))
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
		return fmt.Errorf("arming %s: %w", name, err)
	}
	return nil
}
