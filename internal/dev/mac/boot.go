//go:build unix

package mac

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// Mac is one that is booted. It ends with the process that booted it.
type Mac struct {
	Root    Root
	command *exec.Cmd
	life    io.Closer
	output  *strings.Builder
}

// Boot starts the Mac's launchd, and returns when everything that precedes a login has happened.
func Boot(root Root) (*Mac, error) {
	m := &Mac{Root: root, output: &strings.Builder{}}
	//nolint:noctx // it ends with its standard input: when Shutdown closes it, or with this process, however that ends
	m.command = exec.Command(root.Path("/usr/libexec/"+internalName), "launchd")
	m.command.Env = []string{"DEVMAC_USER=root", "PATH=/usr/bin:/bin"}
	m.command.Stderr = m.output
	m.command.SysProcAttr = detached()
	life, err := m.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	m.life = life
	stdout, err := m.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := m.command.Start(); err != nil {
		return nil, fmt.Errorf("booting the model Mac: %w", err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "booted\n" {
		_ = life.Close()
		ended := m.command.Wait()
		return nil, fmt.Errorf("booting the model Mac: %w\n%s", errors.Join(err, ended), m.output)
	}
	return m, nil
}

// Shutdown ends all that runs on the Mac.
func (m *Mac) Shutdown() error {
	_ = m.life.Close() // twice does no harm
	if m.command.ProcessState != nil {
		return nil
	}
	if err := m.command.Wait(); err != nil {
		return fmt.Errorf("shutting the model Mac down: %w\n%s", err, m.output)
	}
	return nil
}

// Leftovers are processes of the Mac that are there although it is shut down.
func (m *Mac) Leftovers() []string {
	var left []string
	for _, p := range m.Root.processes() {
		left = append(left, fmt.Sprintf("%d %s", p.pid, strings.Join(p.args, " ")))
	}
	return left
}

// Session is the user with an Aqua session; empty if there is none.
func (m *Mac) Session() (string, error) {
	s, err := m.Root.session()
	return s.User, err
}

// LoggingIn reports whether the login window has been started and has not tried the password yet.
func (r Root) LoggingIn() (bool, error) {
	s, err := r.session()
	return s.LoggingIn, err
}

// Run runs one of the Mac's commands as a user, and returns what it printed and its exit code.
func (r Root) Run(ctx context.Context, user, stdin, path string, args ...string) (stdout, stderr string, exit int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.Path(path), args...)
	var out, problems strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &problems
	cmd.Env = r.environment(user, nil)
	err = cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		err = nil
	}
	return out.String(), problems.String(), cmd.ProcessState.ExitCode(), err
}
