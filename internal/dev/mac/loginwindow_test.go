//go:build linux

package mac_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	devmac "github.com/bullpen-ci/bullpen/internal/dev/mac"
	"github.com/bullpen-ci/bullpen/test/kit/mactest"
)

// encoded is what /etc/kcpassword holds for a password.
func encoded(password string) string {
	key := []byte{0x7D, 0x89, 0x52, 0x23, 0xD2, 0xBC, 0xDD, 0xEA, 0xA3, 0xB9, 0x1F}
	content := append([]byte(password), make([]byte, len(key)-len(password)%len(key))...)
	for i := range content {
		content[i] ^= key[i%len(key)]
	}
	return string(content)
}

// prepare configures automatic login with a password, and restarts the login window.
func prepare(mac *mactest.Mac, password string) {
	mac.WriteFile("/etc/kcpassword", encoded(password), 0o600)
	mac.Run("root", "/usr/bin/defaults", "write", "/Library/Preferences/com.apple.loginwindow", "autoLoginUser", "ci")
	mac.Run("root", "/bin/launchctl", "kickstart", "-k", "system/com.apple.loginwindow")
}

func TestLoginwindow_LogsInWhoThePasswordIsRightFor(t *testing.T) {
	mac := mactest.Boot(t)
	_, _, exit := mac.Try("root", "", "/bin/launchctl", "print", "gui/501")
	require.Equal(t, 113, exit)
	prepare(mac, mac.Password)
	mac.AwaitSession("ci")
	require.Contains(t, mac.Run("root", "/bin/launchctl", "print", "gui/501"), "\tsession = Aqua\n")
	require.Equal(t, "ci\n", mac.Run("root", "/usr/bin/stat", "-f", "%Su", "/dev/console"))
	mac.Reboot()
	mac.AwaitSession("ci")
	require.Equal(t, encoded(mac.Password), mac.ReadFile("/etc/kcpassword"))
}

// The incident's silent failure: a wrong password is sealed, and automatic login never works again, also once the right one
// is the user's.
func TestLoginwindow_SealsAWrongPassword(t *testing.T) {
	mac := mactest.Boot(t)
	prepare(mac, "wrong")
	require.Eventually(t, func() bool {
		content, err := os.ReadFile(mac.Root.Path("/etc/kcpassword"))
		return err == nil && string(content) == string(devmac.SealedPassword())
	}, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, encoded("<sealed>"), string(devmac.SealedPassword()))
	info, err := os.Stat(mac.Root.Path("/etc/kcpassword"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	mac.Reboot()
	// A later start proves that this one has come to nothing.
	prepare(mac, mac.Password)
	mac.AwaitSession("ci")
}

func TestLoginwindow_NoUserIsLoggedIn(t *testing.T) {
	for name, option := range map[string]mactest.Option{
		"FileVault is on":   mactest.With(func(o *devmac.Options) { o.Machine.FileVault = true }),
		"without a display": mactest.With(func(o *devmac.Options) { o.Machine.NoSession = true }),
	} {
		t.Run(name, func(t *testing.T) {
			mac := mactest.Boot(t, option)
			prepare(mac, mac.Password)
			require.Never(t, func() bool { s, err := mac.Session(); return err != nil || s != "" }, 200*time.Millisecond, 20*time.Millisecond)
			require.Equal(t, encoded(mac.Password), mac.ReadFile("/etc/kcpassword"))
		})
	}
	// Without a display, a Mac may apply it only when the login window is restarted.
	mac := mactest.Boot(t, mactest.With(func(o *devmac.Options) { o.Machine.NoLoginAtBoot = true }))
	prepare(mac, mac.Password)
	mac.AwaitSession("ci")
	mac.Reboot()
	require.Never(t, func() bool { s, err := mac.Session(); return err != nil || s != "" }, 200*time.Millisecond, 20*time.Millisecond)
	mac.Run("root", "/bin/launchctl", "kickstart", "-k", "system/com.apple.loginwindow")
	mac.AwaitSession("ci")
}

// The incident's third part: after a SIGHUP it stays dead, and a second one finds no process. kickstart works in both
// cases.
func TestLoginwindow_StaysDeadAfterAHangup(t *testing.T) {
	mac := mactest.Boot(t)
	prepare(mac, mac.Password)
	mac.AwaitSession("ci")
	mac.Run("root", "/usr/bin/killall", "-HUP", "loginwindow")
	mac.AwaitSession("")
	require.Contains(t, mac.Run("root", "/bin/launchctl", "print", "system/com.apple.loginwindow"), "state = not running")
	_, _, exit := mac.Try("root", "", "/usr/bin/pgrep", "-x", "loginwindow")
	require.Equal(t, 1, exit)
	_, stderr, exit := mac.Try("root", "", "/usr/bin/killall", "-HUP", "loginwindow")
	require.Equal(t, 1, exit)
	require.Equal(t, "No matching processes were found\n", stderr)
	mac.Run("root", "/bin/launchctl", "kickstart", "-k", "system/com.apple.loginwindow")
	mac.AwaitSession("ci")
	mac.Run("root", "/usr/bin/pgrep", "-x", "loginwindow")
}

// Virtual machines belong to the session: there is none without it, and they end with it. The first brings up NAT, and the filter.
func TestTart_NeedsTheSession(t *testing.T) {
	mac := mactest.Boot(t)
	require.NoError(t, mac.Root.InstallTart("/opt/homebrew/bin/tart"))
	const tart = "/opt/homebrew/bin/tart"
	mac.Run("ci", tart, "clone", "ghcr.io/cirruslabs/macos-runner:sequoia", "vm")
	_, stderr, exit := mac.Try("ci", "", tart, "run", "vm")
	require.Equal(t, 1, exit)
	require.Contains(t, stderr, "Failed to create new HostKey")

	prepare(mac, mac.Password)
	mac.AwaitSession("ci")
	_, _, exit = mac.Try("root", "", tart, "run", "vm")
	require.NotZero(t, exit, "another user's session")
	internet := devmac.Flow{From: addr("192.168.64.5"), To: addr("203.0.113.1"), Port: 443}
	require.False(t, mac.Evaluate(internet).Translated)

	vm := exec.Command(mac.Root.Path(tart), "run", "vm", "--no-graphics")
	vm.Env = []string{"DEVMAC_USER=ci", "PATH=/usr/bin:/bin"}
	require.NoError(t, vm.Start())
	ended := make(chan error, 1)
	go func() { ended <- vm.Wait() }()
	require.Eventually(t, func() bool { return mac.Evaluate(internet).Translated }, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, "10.0.0.21", mac.Evaluate(internet).Source.String())
	require.Len(t, mac.Root.Machines(), 1)
	require.Contains(t, mac.Run("root", "/bin/ps", "-axww", "-o", "command="), "/opt/homebrew/bin/tart run vm")

	// Loading the main rule set removes the system's own additions.
	mac.Run("root", "/sbin/pfctl", "-f", "/etc/pf.conf")
	require.False(t, mac.Evaluate(internet).Translated)

	mac.Run("root", "/bin/launchctl", "kickstart", "-k", "system/com.apple.loginwindow")
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		require.Fail(t, "the machine outlives its session")
	}
}

func TestBrokenStates_AreBroken(t *testing.T) {
	// Auto-login was given up.
	mac := mactest.Boot(t, mactest.Sealed())
	mac.Run("root", "/bin/launchctl", "kickstart", "-k", "system/com.apple.loginwindow")
	require.Never(t, func() bool { s, err := mac.Session(); return err != nil || s != "" }, 200*time.Millisecond, 20*time.Millisecond)

	bad, err := mac.Root.BadPasswords("ci")
	require.NoError(t, err)
	require.Zero(t, bad, "the mark is no password to try")

	// A login window that hung up is not restarted.
	mac = mactest.Boot(t, mactest.AutoLogin(devmac.DefaultPassword))
	mac.AwaitSession("ci")
	mac.HangUpLoginwindow()
	require.Never(t, func() bool { s, err := mac.Session(); return err != nil || s != "" }, 200*time.Millisecond, 20*time.Millisecond)

	// An anchor that is attached twice, with or without marks: at boot no rule is in force, Apple's hooks neither.
	const file = "/etc/pf.anchors/old.runners"
	for _, behind := range []string{
		mactest.Block("old.runners", file) + mactest.Block("old.runners", file),
		mactest.Stanza("old.runners", file) + mactest.Block("old.runners", file),
	} {
		mac = mactest.Boot(t, mactest.PFConf(behind, file, "table <vm_sources> { 192.168.64.0/22 }\nblock in from <vm_sources> to 10/8\n"))
		require.Empty(t, mac.Run("root", "/sbin/pfctl", "-sn"))
		_, stderr, exit := mac.Try("root", "", "/sbin/pfctl", "-f", "/etc/pf.conf")
		require.Equal(t, 1, exit)
		require.Contains(t, stderr, "cannot define table vm_sources: Resource busy")
		mac.Run("root", "/sbin/pfctl", "-nf", "/etc/pf.conf")
	}
	mac = mactest.Boot(t, mactest.NoPassword())
	mac.Run("ci", "/usr/bin/sudo", "-n", "/usr/bin/true")
}
