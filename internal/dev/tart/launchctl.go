//go:build unix

package tart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

func launchctlFlags(f *pflag.FlagSet) { f.BoolP("kill", "k", false, "") }

// sessionNow is what session the user has: the script's, unless launchctl has brought it back.
func (c *command) sessionNow() string {
	if _, err := os.Stat(c.restored()); err == nil {
		return SessionAqua
	}
	return c.script.Session
}

// runLaunchctl is the fake of launchctl: an Aqua session of the user exists when `print gui/UID` succeeds and says so, and
// `kickstart -k system/com.apple.loginwindow` may bring it back.
func runLaunchctl(_ context.Context, c *command) error {
	verb, target := c.args[0], c.args[len(c.args)-1]
	switch {
	case verb == "print" && strings.HasPrefix(target, "gui/"):
		session := c.sessionNow()
		if session == SessionNone {
			return failed(113, "Bad request.\nCould not find domain for %s", target)
		}
		kind := "Aqua"
		if session == SessionBackground {
			kind = "Background"
		}
		fmt.Fprintf(c.Stdout, "%s = {\n\ttype = login\n\thandle = 100007\n\tactive count = 300\n\tsession = %s\n\tservices = {\n\t}\n}\n", target, kind)
		return nil
	case verb == "kickstart":
		if c.script.LoginwindowRestores && target == "system/com.apple.loginwindow" {
			return os.WriteFile(c.restored(), nil, 0o600)
		}
		return nil
	default:
		return errors.New("the fake of launchctl knows print gui/UID and kickstart [-k] TARGET")
	}
}
