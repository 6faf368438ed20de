package steps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/machost/autologin"
)

// autoLogin has the user logged in at the console automatically: virtual machines run only there. macOS does not report a wrong password:
// loginwindow tries it once and, if it is wrong, writes `<sealed>` in its place, so that the file is read again afterwards, in every apply
// (HOST-3). The password is not checked before: macOS has no program that reads one from standard input and checks it (dscl and pwpolicy
// take it as an argument or from a terminal), and a failed check counts towards locking the account as much as a failed login does.
type autoLogin struct {
	user     string
	password machost.Secret
	clock    Clock
	agent    nodeAgent // of the step that follows, if the configuration wants a node
}

func newAutoLogin(p machost.Payload, f Facts) (machost.Step, error) {
	return autoLogin{p.Config.User, p.Secrets.Password, f.Clock, agentOf(p, f)}, nil
}

const (
	kcpassword  = "/etc/kcpassword"
	loginDomain = "/Library/Preferences/com.apple.loginwindow"
	autoUser    = "autoLoginUser"
	// untriedFile is there from before a password is written until the user has logged in with it: what a crash in between leaves looks
	// right, and is sealed at the next start.
	untriedFile  = stateDir + "/auto-login.untried"
	loginWithin  = 30 * time.Second
	loginLook    = 250 * time.Millisecond
	rightRemedy  = "Verify the user's password (log in with it at the console), and apply again with it."
	absentRemedy = "Give the user's password: `bullpen host prepare` on the Mac asks for it."
)

// passwordMode: root only, for the content is merely obfuscated.
var passwordMode = machost.Attributes{Mode: 0o600}

// Name is "auto-login".
func (autoLogin) Name() string { return "auto-login" }

// state is how things stand.
type loginState struct {
	account account
	content []byte // of the file, as it is
	stored  string // the password in it
	file    error  // why there is none
	mode    string // what is wrong with the file's mode
	user    string // who is to log in
	untried bool
	session session
	console string
}

func (s autoLogin) look(ctx context.Context, h machost.Host) (loginState, error) {
	var now loginState
	var err error
	if now.account, err = findAccount(ctx, h, s.user); err != nil {
		return now, err
	}
	now.content, err = h.ReadFile(kcpassword)
	switch {
	case isMissing(err):
		now.file = errors.New("there is none")
	case err != nil:
		return now, err
	default:
		now.stored, now.file = autologin.Decode(now.content)
		if now.mode, err = fileDiff(h, kcpassword, now.content, passwordMode); err != nil {
			return now, err
		}
	}
	if now.user, err = autoLoginUser(ctx, h); err != nil {
		return now, err
	}
	if now.untried, err = exists(h, untriedFile); err != nil {
		return now, err
	}
	if now.session, err = findSession(ctx, h, now.account.UID); err != nil {
		return now, err
	}
	now.console, err = consoleUser(ctx, h)
	return now, err
}

// autoLoginUser is the user whom macOS logs in automatically; empty without one.
func autoLoginUser(ctx context.Context, h machost.Host) (string, error) {
	said, err := run(ctx, h, "/usr/bin/defaults", "read", loginDomain, autoUser)
	var failed *commandError
	if errors.As(err, &failed) {
		return "", nil // it is not set
	}
	return strings.TrimSpace(said), err
}

// loggedIn reports whether the user has the console.
func (s autoLogin) loggedIn(now loginState) bool { return now.session.there && now.console == s.user }

// Check compares the file, without saying what is in it, the setting, and who is logged in.
func (s autoLogin) Check(ctx context.Context, h machost.Host) (machost.Diff, error) {
	if _, err := s.encoded(); err != nil {
		return machost.Diff{}, err
	}
	now, err := s.look(ctx, h)
	if err != nil {
		return machost.Diff{}, err
	}
	if err := s.usable(h, now); err != nil {
		return machost.Diff{}, err
	}
	return s.diff(now), nil
}

// encoded is the wanted content of the file, nil where no password was given.
func (s autoLogin) encoded() ([]byte, error) {
	if s.password.Empty() {
		return nil, nil
	}
	content, err := autologin.Encode(s.password.Reveal())
	if err != nil {
		return nil, &machost.StepError{Step: s.Name(), File: kcpassword, Err: err, Remedy: "Nothing was changed. " + rightRemedy}
	}
	return content, nil
}

// usable says why the file cannot be made right with what was given.
func (s autoLogin) usable(h machost.Host, now loginState) error {
	if s.password.Empty() {
		if now.file != nil {
			return s.failure(now.file, absentRemedy)
		}
		return nil
	}
	if now.file == nil && now.stored == s.password.Reveal() {
		return nil
	}
	refused, err := wasRefused(h, s.user, s.password)
	if err != nil || !refused {
		return err
	}
	return s.failure(autologin.ErrSealed, "macOS has rejected this password before, and it is not tried again. "+rightRemedy+
		" If the password is correct now, remove "+refusedFile+" first.")
}

// failure distinguishes a wrong password from all other reasons: a wrong password must not be tried again.
func (s autoLogin) failure(err error, remedy string) error {
	if errors.Is(err, autologin.ErrSealed) {
		err = fmt.Errorf("%w: %w", machost.ErrWrongPassword, err)
	}
	return &machost.StepError{Step: s.Name(), File: kcpassword, Err: err, Remedy: remedy}
}

func (s autoLogin) diff(now loginState) machost.Diff {
	var diff machost.Diff
	restart := func(change string) {
		diff.Changes = append(diff.Changes, change+", and restart the login window")
		diff.Disruptive = true
	}
	switch {
	case now.file != nil:
		restart("write " + kcpassword + ": " + now.file.Error())
	case !s.password.Empty() && now.stored != s.password.Reveal():
		restart("write " + kcpassword + ": it has another password")
	case now.mode != "":
		diff.Changes = append(diff.Changes, now.mode)
	}
	if now.user != s.user {
		restart(fmt.Sprintf("have %s logged in at the console, not %q", s.user, now.user))
	}
	if !diff.Disruptive && now.untried {
		restart("have the password in " + kcpassword + " tried, which an apply that was stopped had written")
	}
	if !diff.Disruptive && !s.loggedIn(now) {
		restart(fmt.Sprintf("log %s in: the console is %s's", s.user, now.console))
	}
	return diff
}

// Apply writes what differs, and has it tried. A password that worked is put back if the new one does not.
func (s autoLogin) Apply(ctx context.Context, h machost.Host) error {
	before, err := s.look(ctx, h)
	if err != nil {
		return err
	}
	content, err := s.encoded()
	if err != nil {
		return err
	}
	diff := s.diff(before)
	if content == nil {
		content = before.content
	}
	if diff.Disruptive {
		if err := s.releaseAgent(ctx, h); err != nil {
			return err
		}
		if err := writeText(h, untriedFile, "", passwordMode); err != nil {
			return err
		}
	}
	if before.mode != "" || !bytes.Equal(content, before.content) {
		if err := h.WriteFile(kcpassword, bytes.NewReader(content), passwordMode); err != nil {
			return err
		}
	}
	if before.user != s.user {
		if _, err := run(ctx, h, "/usr/bin/defaults", "write", loginDomain, autoUser, s.user); err != nil {
			return err
		}
	}
	if !diff.Disruptive {
		return nil
	}
	err = s.login(ctx, h, before)
	if errors.Is(err, machost.ErrWrongPassword) {
		return s.afterRefusal(ctx, h, before, err)
	}
	return err
}

// releaseAgent unloads the node agent of another user, unless it has pods: they need the session that ends. The step node-agent follows, or
// keeps that agent.
func (s autoLogin) releaseAgent(ctx context.Context, h machost.Host) error {
	if !s.agent.config.WantsNode() {
		return nil
	}
	former, found, err := formerIdentity(h)
	if err != nil || !found || former.User == s.user {
		return err
	}
	return s.agent.release(ctx, h, former)
}

// login restarts the login window, and waits until the user is logged in, or the file sealed.
func (s autoLogin) login(ctx context.Context, h machost.Host, before loginState) error {
	if err := restartLoginWindow(ctx, h); err != nil {
		return &machost.StepError{Step: s.Name(), Err: fmt.Errorf("restarting the login window: %w", err), Remedy: "Restart the Mac, and apply again."}
	}
	deadline := s.clock.Now().Add(loginWithin)
	gone := !before.session.there
	for {
		now, err := s.look(ctx, h)
		if err != nil {
			return err
		}
		if errors.Is(now.file, autologin.ErrSealed) {
			return s.failure(now.file, rightRemedy)
		}
		// The session from before may still be there for a moment, and says nothing of the password.
		gone = gone || !now.session.there || now.session.id != before.session.id
		if gone && now.file == nil && s.loggedIn(now) {
			return h.Remove(untriedFile)
		}
		if !s.clock.Now().Before(deadline) {
			return s.noSession(now)
		}
		if err := wait(ctx, s.clock, loginLook); err != nil {
			return err
		}
	}
}

func (s autoLogin) noSession(now loginState) error {
	return &machost.StepError{Step: s.Name(), Err: fmt.Errorf("%s is not logged in at the console (%s is): no virtual machine can start", s.user, now.console),
		Remedy: "Check the screen, at the console or by screen sharing: macOS may show a prompt. FileVault must be off, and the account must be able to log in. Then apply again."}
}

// afterRefusal remembers the password, so that it is not tried again and again, each time ending a session and counting towards a
// locked account; and puts the one from before back, if there was one by which the user of before had logged in.
func (s autoLogin) afterRefusal(ctx context.Context, h machost.Host, before loginState, refusal error) error {
	if s.password.Empty() {
		return refusal
	}
	if err := recordRefused(h, s.user, s.password); err != nil {
		return errors.Join(refusal, err)
	}
	former, newUser := s, before.user != s.user
	former.user = before.user
	switch {
	case before.file != nil,
		newUser && (before.user == "" || before.console != before.user),
		!newUser && (!s.loggedIn(before) || before.stored == s.password.Reveal()):
		return refusal
	}
	if err := former.restore(ctx, h, before, newUser); err != nil {
		return errors.Join(refusal, fmt.Errorf("logging %s in again with the password from before: %w", former.user, err))
	}
	return s.failure(fmt.Errorf("%w: the previous one was restored and works, for %s", autologin.ErrSealed, former.user), rightRemedy)
}

// restore logs the user in with the password from before.
func (s autoLogin) restore(ctx context.Context, h machost.Host, before loginState, newUser bool) error {
	if err := h.WriteFile(kcpassword, bytes.NewReader(before.content), passwordMode); err != nil {
		return err
	}
	if newUser {
		if _, err := run(ctx, h, "/usr/bin/defaults", "write", loginDomain, autoUser, s.user); err != nil {
			return err
		}
	}
	return s.login(ctx, h, loginState{})
}

// Verify reads the file again, and looks who is logged in, whether or not anything differed: the file may have been sealed since (HOST-3).
func (s autoLogin) Verify(ctx context.Context, h machost.Host) error {
	now, err := s.look(ctx, h)
	switch {
	case err != nil:
		return err
	case now.file != nil:
		return s.failure(now.file, rightRemedy)
	case now.mode != "":
		return s.failure(errors.New(now.mode), "")
	case now.user != s.user:
		return &machost.StepError{Step: s.Name(), File: loginDomain + ".plist", Err: fmt.Errorf("%q is logged in at the start, not %s", now.user, s.user),
			Remedy: "Another tool or a profile (MDM) sets it: check System Settings, Users & Groups, and apply again."}
	case !s.loggedIn(now):
		return s.noSession(now)
	}
	return nil
}
