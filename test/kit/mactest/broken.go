//go:build unix

package mactest

import (
	"fmt"
	"os"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/dev/mac"
)

// States that break a host (HOST-2, HOST-3). Each was left behind by an earlier version or by the Mac itself.

// PFConf makes /etc/pf.conf that of macOS with a text behind it, and the file of an anchor what the text loads.
func PFConf(behind, anchorFile, anchorRules string) Option {
	return func(o *mac.Options) {
		File("/etc/pf.conf", mac.PFConf+behind, 0o644)(o)
		File(anchorFile, anchorRules, 0o644)(o)
	}
}

// Stanza is how an anchor was attached before there were marks.
func Stanza(anchor, file string) string {
	return fmt.Sprintf("\n# %s egress filter\nanchor %q\nload anchor %q from %q\n", anchor, anchor, anchor, file)
}

// Block is how an anchor is attached between marks.
func Block(anchor, file string) string {
	return fmt.Sprintf("# BEGIN %s\nanchor %q\nload anchor %q from %q\n# END %s\n", anchor, anchor, anchor, file, anchor)
}

// Sealed is a Mac whose login window has found the password for automatic login wrong.
func Sealed() Option {
	return func(o *mac.Options) {
		File("/etc/kcpassword", string(mac.SealedPassword()), 0o600)(o)
		autoLogin(o)
	}
}

// AutoLogin is a Mac that logs its user in automatically, with that password.
func AutoLogin(password string) Option {
	return func(o *mac.Options) {
		File("/etc/kcpassword", string(mac.EncodePassword(password)), 0o600)(o)
		autoLogin(o)
	}
}

func autoLogin(o *mac.Options) {
	user := o.User
	if user == "" {
		user = "ci"
	}
	File("/Library/Preferences/com.apple.loginwindow.plist",
		`<?xml version="1.0" encoding="UTF-8"?><plist version="1.0"><dict><key>autoLoginUser</key><string>`+user+"</string></dict></plist>\n", 0o644)(o)
}

// NoPassword lets the user become root without one, by a file of /etc/sudoers.d.
func NoPassword() Option {
	return func(o *mac.Options) {
		user := strings.TrimSpace(o.User)
		if user == "" {
			user = "ci"
		}
		File("/etc/sudoers.d/"+user, user+" ALL=(ALL) NOPASSWD: ALL\n", os.FileMode(0o440))(o)
	}
}

// HangUpLoginwindow leaves the login window dead, as a SIGHUP does.
func (m *Mac) HangUpLoginwindow() {
	m.t.Helper()
	m.Run("root", "/usr/bin/killall", "-HUP", "loginwindow")
}
