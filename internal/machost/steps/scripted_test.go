package steps

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// scripted is a host of real files, whose programs are functions.
type scripted struct {
	machost.Local
	t        *testing.T
	programs map[string]func(args string, stdin string) machost.Result
	ran      []string
}

func newScripted(t *testing.T) *scripted {
	h := &scripted{Local: machost.Local{Root: t.TempDir()}, t: t, programs: map[string]func(string, string) machost.Result{}}
	h.says("/usr/bin/dscl", "NFSHomeDirectory: /Users/ci\nPrimaryGroupID: "+itoa(os.Getegid())+"\nUniqueID: "+itoa(os.Geteuid())+"\n")
	h.says("/bin/ps", "/sbin/launchd\n/usr/sbin/sshd -D\n")
	return h
}

func (h *scripted) says(path, text string) {
	h.programs[path] = func(string, string) machost.Result { return machost.Result{Stdout: []byte(text)} }
}

func (h *scripted) fails(path string, code int, text string) {
	h.programs[path] = func(string, string) machost.Result {
		return machost.Result{Stderr: []byte(text), ExitCode: code}
	}
}

// users has directory services know these.
func (h *scripted) users(uids map[string]int) {
	h.programs["/usr/bin/dscl"] = func(args, _ string) machost.Result {
		for name, uid := range uids {
			if strings.Contains(args, "/Users/"+name+" ") {
				return machost.Result{Stdout: fmt.Appendf(nil, "NFSHomeDirectory: /Users/%s\nPrimaryGroupID: 20\nUniqueID: %d\n", name, uid)}
			}
		}
		return machost.Result{ExitCode: 56, Stderr: []byte("<dscl_cmd> DS Error: -14136 (eDSRecordNotFound)")}
	}
}

// fullDisk is a host on which one file cannot be written.
type fullDisk struct {
	machost.Host
	path string
}

func (d fullDisk) WriteFile(path string, content io.Reader, attributes machost.Attributes) error {
	if path == d.path {
		return &fs.PathError{Op: "writing", Path: path, Err: syscall.ENOSPC}
	}
	return d.Host.WriteFile(path, content, attributes)
}

// Run runs the function.
func (h *scripted) Run(ctx context.Context, command machost.Command) (machost.Result, error) {
	if err := ctx.Err(); err != nil {
		return machost.Result{}, err
	}
	args := strings.Join(command.Args, " ")
	h.ran = append(h.ran, command.Path+" "+args)
	program, ok := h.programs[command.Path]
	require.True(h.t, ok, "no answer is scripted for %s", command.Path)
	return program(args, string(command.Stdin)), nil
}

func (h *scripted) put(path, content string, mode os.FileMode) {
	h.t.Helper()
	require.NoError(h.t, h.WriteFile(path, strings.NewReader(content), machost.Attributes{Mode: mode, UID: os.Geteuid(), GID: os.Getegid()}))
}

func (h *scripted) content(path string) string {
	h.t.Helper()
	content, err := h.ReadFile(path)
	require.NoError(h.t, err)
	return string(content)
}

// converge applies a step by the engine, twice: the second time nothing may be left to do.
func (h *scripted) converge(step machost.Step) (changed bool, err error) {
	h.t.Helper()
	report, err := machost.Apply(h.t.Context(), machost.Options{Host: h, Steps: []machost.Step{step}})
	if err != nil {
		return false, err
	}
	again, err := machost.Apply(h.t.Context(), machost.Options{Host: h, Steps: []machost.Step{step}})
	require.NoError(h.t, err)
	require.Empty(h.t, again.Changed, "HOST-1: the second apply changes nothing")
	return len(report.Changed) > 0, nil
}

// steppedClock goes on by what is waited for.
type steppedClock struct{ now time.Time }

func newSteppedClock() *steppedClock { return &steppedClock{time.Unix(1e9, 0)} }

// Now is the time.
func (c *steppedClock) Now() time.Time { return c.now }

// After lets the time pass at once.
func (c *steppedClock) After(d time.Duration) <-chan time.Time {
	c.now = c.now.Add(d)
	over := make(chan time.Time, 1)
	over <- c.now
	return over
}

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("takes root: what a host has belongs to root")
	}
}
