//go:build unix

package mac

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/mac/pf"
)

const (
	loginwindowLabel = "com.apple.loginwindow"
	sessionFile      = "session.json"
)

// sessionState is who sits at the console, and whether the login window lives.
type sessionState struct {
	Alive bool `json:"alive"` // the login window
	PID   int  `json:"pid"`   // its, made up
	// Starts counts how often it was started since the Mac was made.
	Starts int `json:"starts"`
	// LoggingIn is from the login window's start until it has tried the password.
	LoggingIn bool   `json:"loggingIn,omitempty"`
	User      string `json:"user,omitempty"` // the user with an Aqua session
	UID       int    `json:"uid,omitempty"`
}

func (r Root) session() (sessionState, error) {
	var s sessionState
	return s, r.read(sessionFile, &s)
}

// consoleUser is the owner of /dev/console.
func (s sessionState) consoleUser() string {
	if s.User == "" {
		return "root"
	}
	return s.User
}

// kcKey is what the password in /etc/kcpassword is combined with.
var kcKey = []byte{0x7D, 0x89, 0x52, 0x23, 0xD2, 0xBC, 0xDD, 0xEA, 0xA3, 0xB9, 0x1F}

// sealedMark is what takes a wrong password's place.
const sealedMark = "<sealed>"

func combine(data []byte) []byte {
	out := bytes.Clone(data)
	for i := range out {
		out[i] ^= kcKey[i%len(kcKey)]
	}
	return out
}

// EncodePassword is the content of /etc/kcpassword for a password: at least one NUL fills it to a multiple of the key's length.
func EncodePassword(password string) []byte {
	padded := make([]byte, (len(password)/len(kcKey)+1)*len(kcKey))
	copy(padded, password)
	return combine(padded)
}

// SealedPassword is the content of /etc/kcpassword once the login window has found the password wrong.
func SealedPassword() []byte { return EncodePassword(sealedMark) }

// startLoginwindow starts it, and with it a session if a user is configured to be logged in automatically. At boot there is
// none on a Mac without a display whose description says so.
func (d *launchd) startLoginwindow(boot bool) error {
	d.mu.Lock()
	d.logins++
	mine := d.logins
	d.mu.Unlock()
	start := 0
	if err := update(d.root, sessionFile, func(s *sessionState) error {
		start = s.Starts + 1
		*s = sessionState{Alive: true, PID: 400 + s.Starts, Starts: start, LoggingIn: !boot || !d.config.NoLoginAtBoot}
		return nil
	}); err != nil {
		return err
	}
	if boot && d.config.NoLoginAtBoot {
		return nil
	}
	// The session takes its time: a client that asks at once sees none, and the password as it was written.
	time.AfterFunc(time.Duration(d.config.LoginMillis)*time.Millisecond, func() {
		d.mu.Lock()
		current := d.logins == mine && !d.stopping
		d.mu.Unlock()
		if current {
			_ = d.autoLogin() // there is no caller to report to
			_ = update(d.root, sessionFile, func(s *sessionState) error {
				s.LoggingIn = s.LoggingIn && s.Starts != start // it may have been started again
				return nil
			})
		}
	})
	return nil
}

// autoLogin logs in who the preferences name, with the password in /etc/kcpassword. A wrong password is sealed.
func (d *launchd) autoLogin() error {
	preferences, err := readPlist(d.root.Path("/Library/Preferences/com.apple.loginwindow.plist"))
	if err != nil {
		return err
	}
	name, _ := preferences["autoLoginUser"].(string)
	user, known := d.config.user(name)
	if name == "" || !known || d.config.FileVault {
		return nil
	}
	path := d.root.Path("/etc/kcpassword")
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	password, _, ended := bytes.Cut(combine(content), []byte{0})
	if string(password) == sealedMark {
		return nil
	}
	ok := false
	if ended {
		if ok, err = d.root.authenticate(d.config, name, string(password)); err != nil {
			return err
		}
	}
	if !ok {
		return d.root.replace(path, SealedPassword(), 0o600)
	}
	if d.config.NoSession {
		return nil
	}
	return update(d.root, sessionFile, func(s *sessionState) error {
		if s.Alive {
			s.User, s.UID = user.Name, user.UID
		}
		return nil
	})
}

// endSession ends what runs in the session: virtual machines, above all.
func (d *launchd) endSession(alive bool) error {
	d.mu.Lock()
	d.logins++
	d.mu.Unlock()
	err := update(d.root, sessionFile, func(s *sessionState) error {
		s.User, s.UID, s.Alive, s.LoggingIn = "", 0, alive, false
		return nil
	})
	d.root.killMachines()
	return err
}

// kickstartLoginwindow starts it whether it lives (with -k) or not.
func (d *launchd) kickstartLoginwindow(again bool) response {
	s, err := d.root.session()
	if err == nil && s.Alive && !again {
		return refuse(fmt.Sprintf("Could not kickstart service %q", loginwindowLabel), errnoInProgress)
	}
	if err == nil {
		err = errors.Join(d.endSession(false), d.startLoginwindow(false))
	}
	if err != nil {
		return response{Stderr: err.Error() + "\n", Exit: 1}
	}
	return response{}
}

// killLoginwindow is `killall -HUP loginwindow`: it exits, and launchd does not bring it back. A second one finds no process.
func (d *launchd) killLoginwindow(user string) response {
	s, err := d.root.session()
	switch {
	case err != nil:
		return response{Stderr: err.Error() + "\n", Exit: 1}
	case !s.Alive:
		return response{Stderr: "No matching processes were found\n", Exit: 1}
	case user != "root":
		return response{Stderr: "No matching processes belonging to you were found\n", Exit: 1}
	}
	if err := d.endSession(false); err != nil {
		return response{Stderr: err.Error() + "\n", Exit: 1}
	}
	return response{}
}

func (d *launchd) printSession(uid string) response {
	s, err := d.root.session()
	if err != nil {
		return response{Stderr: err.Error() + "\n", Exit: 1}
	}
	uid, service, _ := strings.Cut(uid, "/")
	if s.User == "" || uid != strconv.Itoa(s.UID) {
		return response{Stderr: fmt.Sprintf("Bad request.\nCould not find domain for user gui: %s\n", uid), Exit: errnoNoService}
	}
	if service != "" {
		return response{Stderr: fmt.Sprintf("Bad request.\nCould not find service %q in domain for user gui: %s\n", service, uid), Exit: errnoNoService}
	}
	return response{Stdout: fmt.Sprintf("gui/%s = {\n\ttype = login\n\thandle = 100007\n\tactive count = 300\n\tservice count = 400\n\tactive service count = 150\n\tmaximum allowed shutdown time = 600 s\n\tcreator = loginwindow[%d]\n\tcreator euid = 0\n\tsession = Aqua\n\n\tservices = {\n\t}\n}\n", uid, s.PID)}
}

func (d *launchd) printLoginwindow() response {
	s, err := d.root.session()
	if err != nil {
		return response{Stderr: err.Error() + "\n", Exit: 1}
	}
	text := "system/" + loginwindowLabel + " = {\n\tpath = /System/Library/LaunchDaemons/" + loginwindowLabel + ".plist\n\ttype = LaunchDaemon\n"
	if s.Alive {
		text += fmt.Sprintf("\tstate = running\n\truns = %d\n\tpid = %d\n", s.Starts, s.PID)
	} else {
		text += fmt.Sprintf("\tstate = not running\n\truns = %d\n\tlast terminating signal = Hangup: 1\n", s.Starts)
	}
	return response{Stdout: text + "}\n"}
}

// runKillall knows the login window, and processes of the model by their names.
func runKillall(ctx context.Context, c *call) error {
	signal, names := "TERM", []string{}
	for i := 0; i < len(c.Args); i++ {
		switch a := c.Args[i]; {
		case a == "-s" && i+1 < len(c.Args):
			i++
			signal = c.Args[i]
		case strings.HasPrefix(a, "-"):
			signal = strings.TrimPrefix(a, "-")
		default:
			names = append(names, a)
		}
	}
	for _, name := range names {
		if name == "loginwindow" {
			p, err := c.root.ask(ctx, request{Args: []string{"killall"}, User: c.user})
			if err != nil {
				return err
			}
			if p.Exit != 0 {
				return failed(p.Exit, "%s", p.Stderr)
			}
			continue
		}
		if slices.Contains([]string{"cfprefsd", "Dock", "Finder", "SystemUIServer", "mDNSResponder"}, name) {
			continue // they live, and come back
		}
		if !c.root.signalByName(name, parseSignal(signal)) {
			return failed(1, "No matching processes were found")
		}
	}
	return nil
}

// bootFilter is com.apple.pfctl: it loads /etc/pf.conf, and does not enable the filter. A file with a mistake leaves no rules at all.
func (d *launchd) bootFilter() error {
	return update(d.root, filterFile, func(f *pf.Filter) error {
		changes := f.Changes
		*f = pf.Filter{Enabled: d.config.PFEnabledAtBoot, Changes: changes + 1}
		text, err := os.ReadFile(d.root.Path("/etc/pf.conf"))
		if err != nil {
			return nil //nolint:nilerr // then there are none
		}
		_ = f.Load("", "/etc/pf.conf", string(text), pf.LoadOptions{
			Interfaces: d.config.interfaces(), ReadFile: func(path string) ([]byte, error) { return os.ReadFile(d.root.Path(path)) },
		})
		return nil
	})
}
