//go:build linux

package mac_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	devmac "github.com/bullpen-ci/bullpen/internal/dev/mac"
	"github.com/bullpen-ci/bullpen/test/kit/mactest"
)

const password = "pa'ss \"wörd$"

func TestSudo_ReadsThePasswordFromStandardInput(t *testing.T) {
	mac := mactest.Boot(t, mactest.Password(password))
	sudo := func(stdin string, words ...string) (string, string, int) {
		return mac.Try("ci", stdin, "/usr/bin/sudo", append([]string{"-k", "-S", "-p", ""}, words...)...)
	}
	// What follows the line is the command's.
	stdout, _, exit := sudo(password+"\nthe rest", "/bin/sh", "-c", "whoami; cat")
	require.Zero(t, exit)
	require.Equal(t, "root\nthe rest", stdout)

	_, stderr, exit := sudo("wrong\n", "/usr/bin/true")
	require.Equal(t, 1, exit)
	require.Equal(t, "Sorry, try again.\nsudo: 1 incorrect password attempt\n", stderr)
	_, stderr, exit = sudo("", "/usr/bin/true")
	require.Equal(t, 1, exit)
	require.Contains(t, stderr, "sudo: no password was provided")
	bad, err := mac.Root.BadPasswords("ci")
	require.NoError(t, err)
	require.Equal(t, 1, bad)

	// A password is forgotten with the parent process, or by -k.
	_, _, exit = mac.Try("ci", password+"\n", "/bin/sh", "-c", "sudo -S -p '' true && sudo -n true")
	require.Zero(t, exit)
	_, _, exit = mac.Try("ci", password+"\n", "/bin/sh", "-c", "sudo -S -p '' true && sudo -k && sudo -n true")
	require.Equal(t, 1, exit)
	_, _, exit = mac.Try("ci", "", "/bin/sh", "-c", "sudo -n true")
	require.Equal(t, 1, exit)
}

// Wrong passwords lock the account: attempts are limited.
func TestSudo_LocksTheAccount(t *testing.T) {
	mac := mactest.Boot(t, mactest.Password(password))
	try := func(stdin string) (string, int) {
		_, stderr, exit := mac.Try("ci", stdin, "/usr/bin/sudo", "-k", "-S", "-p", "", "/usr/bin/true")
		return stderr, exit
	}
	stderr, exit := try("a\nb\nc\nd\n")
	require.Equal(t, 1, exit)
	require.Contains(t, stderr, "sudo: 3 incorrect password attempts", "the fourth is not asked for")
	_, exit = try(password + "\n")
	require.Zero(t, exit, "a right one resets the count")
	try("a\nb\nc\n")
	try("a\nb\n")
	_, exit = try(password + "\n")
	require.Equal(t, 1, exit)
}

func TestSudoers_SayWhoNeedsNoPassword(t *testing.T) {
	mac := mactest.Boot(t)
	allowed := func(words ...string) bool {
		_, _, exit := mac.Try("ci", "", "/usr/bin/sudo", append([]string{"-n"}, words...)...)
		return exit == 0
	}
	for _, test := range []struct {
		file  string
		all   bool // everything
		login bool // launchctl kickstart of the login window
	}{
		{"ci ALL=(ALL) NOPASSWD: ALL\n", true, true},
		{"ci ALL=(ALL:ALL) NOPASSWD:ALL", true, true},
		{"%admin ALL=(root) NOPASSWD: ALL\n", true, true},
		{"other ALL=(ALL) NOPASSWD: ALL\n", false, false},
		{"ci ALL=(ALL) ALL\n", false, false},
		{"# ci ALL=(ALL) NOPASSWD: ALL\n", false, false},
		{"ci ALL=(root) NOPASSWD: /bin/launchctl kickstart -k system/com.apple.loginwindow\n", false, true},
		{"ci ALL=(root) \\\n  NOPASSWD: /bin/launchctl\n", false, true},
		{"ci ALL=(root) NOPASSWD: /usr/bin/false, /bin/launchctl kickstart *\n", false, true},
		{"ci ALL=(root) NOPASSWD: /bin/launchctl \"\"\n", false, false},
		{"ci ALL=(ALL) NOPASSWD: ALL\nci ALL=(ALL) PASSWD: ALL\n", false, false},
	} {
		mac.WriteFile("/etc/sudoers.d/bullpen-ci", test.file, 0o440)
		require.Equal(t, test.all, allowed("/usr/bin/true"), test.file)
		require.Equal(t, test.login, allowed("/bin/launchctl", "kickstart", "-k", "system/com.apple.loginwindow"), test.file)
		mac.Run("root", "/usr/sbin/visudo", "-cf", "/etc/sudoers.d/bullpen-ci")
	}
	// A name with a dot does not count.
	require.True(t, func() bool {
		mac.WriteFile("/etc/sudoers.d/bullpen-ci", "", 0o440)
		mac.WriteFile("/etc/sudoers.d/bullpen.ci", "ci ALL=(ALL) NOPASSWD: ALL\n", 0o440)
		return !allowed("/usr/bin/true")
	}())
}

// One file with a mistake, or that is world-writable, disables sudo for every user.
func TestSudoers_AMistakeEndsEverything(t *testing.T) {
	for name, file := range map[string]devmac.File{
		"half a line":    {Content: []byte("ci ALL=(ALL) NOPA"), Mode: 0o440},
		"no such path":   {Content: []byte("ci ALL=(ALL) NOPASSWD: true\n"), Mode: 0o440},
		"world writable": {Content: []byte("ci ALL=(ALL) NOPASSWD: ALL\n"), Mode: 0o442},
	} {
		t.Run(name, func(t *testing.T) {
			mac := mactest.Boot(t)
			_, _, exit := mac.Try("ci", devmac.DefaultPassword+"\n", "/usr/bin/sudo", "-S", "/usr/bin/true")
			require.Zero(t, exit)
			require.NoError(t, mac.Root.WriteFile("/etc/sudoers.d/broken", file))
			_, stderr, exit := mac.Try("ci", devmac.DefaultPassword+"\n", "/usr/bin/sudo", "-S", "/usr/bin/true")
			require.Equal(t, 1, exit)
			require.Contains(t, stderr, "/private/etc/sudoers.d/broken")
		})
	}
}

// The variables of SSH do not get through, so that who runs below sudo does not know where the session comes from.
func TestSudo_LeavesLittleOfTheEnvironment(t *testing.T) {
	mac := mactest.Boot(t)
	mac.WriteFile("/etc/sudoers.d/ci", "ci ALL=(ALL) NOPASSWD: ALL\n", 0o440)
	stdout, _, exit := mac.Try("ci", "", "/bin/sh", "-c", "SSH_CONNECTION='10.0.0.9 1 10.0.0.21 22' SECRET=x sudo -n /usr/bin/env")
	require.Zero(t, exit)
	require.NotContains(t, stdout, "SSH_CONNECTION")
	require.NotContains(t, stdout, "SECRET")
	require.Contains(t, stdout, "SUDO_USER=ci\n")
	require.Contains(t, stdout, "HOME="+mac.Root.Path("/Users/ci")+"\n", "macOS keeps it")
	stdout, _, exit = mac.Try("root", "", "/usr/bin/sudo", "-n", "-H", "-u", "ci", "/usr/bin/id", "-un")
	require.Zero(t, exit)
	require.Equal(t, "ci\n", stdout)
}
