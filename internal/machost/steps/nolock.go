package steps

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/machost/autologin"
)

// noLock turns off what would lock the console session or end it: the screen lock, the screen saver and the log-out after idleness. The first
// two are the user's own settings. The screen lock takes the password, and a wrong one counts towards locking the account: the step comes after
// auto-login, which finds out whether it is right, and waits with it.
type noLock struct {
	user     string
	password machost.Secret
}

func newNoLock(p machost.Payload, _ Facts) (machost.Step, error) {
	return noLock{p.Config.User, p.Secrets.Password}, nil
}

const (
	sudoProgram   = "/usr/bin/sudo"
	sysadminctl   = "/usr/sbin/sysadminctl"
	defaults      = "/usr/bin/defaults"
	globalDefault = "/Library/Preferences/.GlobalPreferences"
	autoLogOut    = "com.apple.autologout.AutoLogOutDelay"
)

// Name is "no-lock".
func (noLock) Name() string { return "no-lock" }

// Check asks for each setting.
func (s noLock) Check(ctx context.Context, h machost.Host) (machost.Diff, error) {
	var diff machost.Diff
	lock, err := s.lockStatus(ctx, h)
	if err != nil {
		return diff, err
	}
	if !strings.Contains(lock, "screenLock is off") {
		diff.Changes = append(diff.Changes, "turn the screen lock of "+s.user+" off")
		if diff.Disruptive, err = s.untried(h); err != nil {
			return diff, err
		}
	}
	idle, err := s.read(ctx, h, s.asUser(defaults, "-currentHost", "read", "com.apple.screensaver", "idleTime"))
	if err != nil {
		return diff, err
	}
	if idle != "0" { // one that was never set is 20 minutes
		diff.Changes = append(diff.Changes, "turn the screen saver of "+s.user+" off")
	}
	delay, err := s.read(ctx, h, machost.Command{Path: defaults, Args: []string{"read", globalDefault, autoLogOut}})
	if err != nil {
		return diff, err
	}
	if delay != "0" && delay != "" {
		diff.Changes = append(diff.Changes, "turn the log-out after idleness off")
	}
	return diff, nil
}

// untried reports whether auto-login has yet to find out about the password that was given. It waits until no machine runs.
func (s noLock) untried(h machost.Host) (bool, error) {
	if s.password.Empty() {
		return false, nil
	}
	content, err := h.ReadFile(kcpassword)
	if isMissing(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	stored, err := autologin.Decode(content)
	if err != nil || stored != s.password.Reveal() {
		return true, nil //nolint:nilerr // whatever is in the file, it is not this password
	}
	return exists(h, untriedFile)
}

// asUser is a command that the user runs: in the home directory, without a password, without a terminal.
func (s noLock) asUser(program string, args ...string) machost.Command {
	return machost.Command{Path: sudoProgram, Args: append([]string{"-n", "-H", "-u", s.user, program}, args...)}
}

// read returns a setting; empty when there is none.
func (s noLock) read(ctx context.Context, h machost.Host, command machost.Command) (string, error) {
	said, err := h.Run(ctx, command)
	if err != nil || said.ExitCode != 0 {
		return "", err
	}
	return strings.TrimSpace(string(said.Stdout)), nil
}

// lockStatus is what sysadminctl says, which it does on standard error.
func (s noLock) lockStatus(ctx context.Context, h machost.Host) (string, error) {
	said, err := h.Run(ctx, s.asUser(sysadminctl, "-screenLock", "status"))
	return string(said.Stdout) + string(said.Stderr), err
}

// Apply sets what differs.
func (s noLock) Apply(ctx context.Context, h machost.Host) error {
	lock, err := s.lockStatus(ctx, h)
	if err != nil {
		return err
	}
	if !strings.Contains(lock, "screenLock is off") {
		if err := s.unlock(ctx, h); err != nil {
			return err
		}
	}
	if _, err := runWith(ctx, h, s.asUser(defaults, "-currentHost", "write", "com.apple.screensaver", "idleTime", "-int", "0")); err != nil {
		return err
	}
	delay, err := s.read(ctx, h, machost.Command{Path: defaults, Args: []string{"read", globalDefault, autoLogOut}})
	if err != nil || delay == "" || delay == "0" {
		return err
	}
	_, err = run(ctx, h, defaults, "write", globalDefault, autoLogOut, "-int", "0")
	return err
}

// unlock gives the password on standard input (HOST-6).
func (s noLock) unlock(ctx context.Context, h machost.Host) error {
	if s.password.Empty() {
		return &machost.StepError{Err: errors.New("the screen lock is on, and turning it off requires the user's password"),
			Remedy: fmt.Sprintf("Give the password, or run `sysadminctl -screenLock off -password -` as %s on the Mac, and apply again.", s.user)}
	}
	command := s.asUser(sysadminctl, "-screenLock", "off", "-password", "-")
	command.Stdin = []byte(s.password.Reveal() + "\n")
	said, err := h.Run(ctx, command)
	if err != nil {
		return err
	}
	// It prints what went wrong, and may still exit with code 0.
	lock, err := s.lockStatus(ctx, h)
	if err != nil || strings.Contains(lock, "screenLock is off") {
		return err
	}
	// Which of the two it is, is not reported. Like a wrong password it is not retried.
	return &machost.StepError{Err: fmt.Errorf("the screen lock is still on: %w, or a profile requires it: sysadminctl: %s", machost.ErrWrongPassword, firstLine(said)),
		Remedy: fmt.Sprintf("Check the password of %s, and for a configuration profile that requires the lock, and apply again.", s.user)}
}

// Verify has nothing to prove: the settings are in force where they are kept.
func (noLock) Verify(context.Context, machost.Host) error { return nil }
