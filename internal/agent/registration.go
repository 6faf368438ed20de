package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// What a static runner's directory holds, one value in each file. Token and URL are required; the token may come later than
// the pod.
const (
	RegistrationToken      = "token"
	RegistrationURL        = "url"
	RegistrationName       = "name"
	RegistrationLabels     = "labels" // separated by commas
	RegistrationGroup      = "group"
	RegistrationWorkFolder = "work-folder"
	// RegistrationNoDefaultLabels holds true where the runner is to have no label but those.
	RegistrationNoDefaultLabels = "no-default-labels"
)

// inputPrefix is how GitHub's runner finds its arguments in its environment; it takes them out of that when it has read them.
const inputPrefix = "ACTIONS_RUNNER_INPUT_"

// longestRetry bounds the time between two tries to register.
const longestRetry = 2 * time.Minute

// configureCommand registers the runner that command runs: `… run` becomes `… configure --unattended`, and GitHub's run.sh its
// config.sh.
func configureCommand(command []string) []string {
	argv := slices.Clone(command)
	if strings.HasSuffix(argv[0], "run.sh") {
		return []string{strings.TrimSuffix(argv[0], "run.sh") + "config.sh", "--unattended"}
	}
	if last := len(argv) - 1; last > 0 && argv[last] == "run" {
		argv = argv[:last]
	}
	return append(argv, "configure", "--unattended")
}

// noDefaultLabels is an argument of GitHub's registration. It has a hyphen, so it cannot come by the environment of a shell script.
const noDefaultLabels = "--no-default-labels"

// input reads what the runner is to be registered with; ready is false while there is no token. The token is in the returned
// environment and nowhere else (NET-3).
func (s *supervisor) input() (env []string, ready bool, err error) {
	value := func(name string) (string, error) {
		text, err := readBounded(filepath.Join(s.RegistrationDir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("reading %s of the registration: %w; the runner's user must be able to read the Secret (fsGroup)", name, withoutPath(err))
		}
		return string(bytes.TrimSpace(text)), nil
	}
	env = []string{inputPrefix + "REPLACE=true", inputPrefix + "UNATTENDED=true", inputPrefix + "DISABLEUPDATE=true"}
	for _, one := range []struct {
		file, variable string
		needed         bool
	}{
		{RegistrationToken, "TOKEN", true},
		{RegistrationURL, "URL", true},
		{RegistrationName, "NAME", true},
		{RegistrationLabels, "LABELS", false},
		{RegistrationGroup, "RUNNERGROUP", false},
		{RegistrationWorkFolder, "WORK", false},
	} {
		text, err := value(one.file)
		switch {
		case err != nil:
			return nil, false, err
		case text != "":
			env = append(env, inputPrefix+one.variable+"="+text)
		case one.needed:
			return nil, false, nil
		}
	}
	return env, true, nil
}

// register registers the runner, as often as it takes: a token may have ended by the time it is read, and is renewed. It returns
// false when ctx has ended before.
func (s *supervisor) register(ctx context.Context) (registered bool, err error) {
	wait, said := s.Retry, false
	for ctx.Err() == nil {
		env, ready, err := s.input()
		if err != nil {
			return false, fail("registering the runner: %v", err)
		}
		if !ready && !said {
			said = true
			s.Log.Info("waiting for a registration token", "directory", s.RegistrationDir)
		}
		pause := s.LookEvery
		if ready {
			// From here on GitHub may know the runner: a second start in this pod must not register another.
			if err := placeSign(s.files.taken); err != nil {
				return false, fail("registering the runner: %v", err)
			}
			code, err := s.configure(ctx, env)
			if err != nil || code == 0 && ctx.Err() == nil {
				return err == nil, err
			}
			s.Log.Error("the runner could not register itself, retrying", "code", code, "after", wait)
			pause, wait = wait, min(2*wait, longestRetry)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
	return false, nil
}

// configure runs the runner's own registration once, and returns its exit code. A stop ends it: it has no job.
func (s *supervisor) configure(ctx context.Context, input []string) (code int, err error) {
	env := slices.DeleteFunc(without(s.Environ, s.Hidden...), func(entry string) bool { return strings.HasPrefix(entry, inputPrefix) })
	argv := configureCommand(s.Command)
	bare, err := readBounded(filepath.Join(s.RegistrationDir, RegistrationNoDefaultLabels))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("reading %s of the registration: %w", RegistrationNoDefaultLabels, withoutPath(err))
	}
	if string(bytes.TrimSpace(bare)) == "true" {
		argv = append(argv, noDefaultLabels)
	}
	cmd, done, err := s.start(ctx, argv, append(env, input...))
	if err != nil {
		return 0, err
	}
	s.Log.Info("registering the runner", "pid", cmd.Process.Pid)
	select {
	case <-done:
	case <-ctx.Done():
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		timer := time.NewTimer(s.IdleStop)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-done
		}
	}
	return cmd.ProcessState.ExitCode(), nil
}
