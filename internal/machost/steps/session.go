package steps

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// loginwindow and its sessions. It is a service of launchd, which starts it whether or not it runs (HOST-4): a signal needs a process, and
// launchd does not restart one that exited on a signal. An Aqua session of a user is what `launchctl print gui/UID` lists, and the
// console's user is the owner of /dev/console.
const (
	launchctl   = "/bin/launchctl"
	loginwindow = "system/com.apple.loginwindow"
)

// session is a user's GUI session. Its id differs from one login to the next.
type session struct {
	there bool
	id    string
}

// sessionID finds what differs between two sessions of a user: the audit session's number, and the process that opened it.
var sessionID = regexp.MustCompile(`\basid = \d+|\bcreator = \S+`)

// findSession looks for the user's GUI session.
func findSession(ctx context.Context, h machost.Host, uid int) (session, error) {
	said, err := run(ctx, h, launchctl, "print", "gui/"+strconv.Itoa(uid))
	var failed *commandError
	if errors.As(err, &failed) {
		return session{}, nil // "Could not find domain"
	}
	if err != nil {
		return session{}, err
	}
	for line := range strings.Lines(said) {
		name, kind, _ := strings.Cut(line, "=")
		switch strings.TrimSpace(name) {
		case "session", "session type":
			if strings.TrimSpace(kind) != "Aqua" {
				return session{}, nil
			}
		}
	}
	return session{there: true, id: strings.Join(sessionID.FindAllString(said, -1), ", ")}, nil
}

// consoleUser is the user at the console; root without a login.
func consoleUser(ctx context.Context, h machost.Host) (string, error) {
	said, err := run(ctx, h, "/usr/bin/stat", "-f", "%Su", "/dev/console")
	return strings.TrimSpace(said), err
}

// restartLoginWindow logs out the present user, and logs in the automatic one.
func restartLoginWindow(ctx context.Context, h machost.Host) error {
	_, err := run(ctx, h, launchctl, "kickstart", "-k", loginwindow) // HOST-4
	return err
}
