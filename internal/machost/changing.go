package machost

import (
	"context"
	"io"
	"time"

	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
)

// changing is the host that a step's Apply receives. Between two changes it can be asked to stop, and tests can kill it; a change that has
// begun is finished.
type changing struct{ Host }

// changePatience is how long a program that is in the middle of a change may go on after its context has ended.
const changePatience = time.Minute

func around(change func() error) error {
	faultpoint.Reached(faultpoint.HostBeforeChange)
	err := change()
	faultpoint.Reached(faultpoint.HostAfterChange)
	return err
}

// WriteFile is Host's.
func (c changing) WriteFile(path string, content io.Reader, attributes Attributes) error {
	return around(func() error { return c.Host.WriteFile(path, content, attributes) })
}

// MakeDir is Host's.
func (c changing) MakeDir(path string, attributes Attributes) error {
	return around(func() error { return c.Host.MakeDir(path, attributes) })
}

// Symlink is Host's.
func (c changing) Symlink(target, path string) error {
	return around(func() error { return c.Host.Symlink(target, path) })
}

// Rename is Host's.
func (c changing) Rename(from, to string) error {
	return around(func() error { return c.Host.Rename(from, to) })
}

// Remove is Host's.
func (c changing) Remove(path string) error {
	return around(func() error { return c.Host.Remove(path) })
}

// Run is Host's, but that a context which ends stops no program at once.
func (c changing) Run(ctx context.Context, command Command) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	patient, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		over := time.AfterFunc(changePatience, cancel)
		context.AfterFunc(patient, func() { over.Stop() })
	})()
	var result Result
	err := around(func() (err error) {
		result, err = c.Host.Run(patient, command)
		return err
	})
	return result, err
}
