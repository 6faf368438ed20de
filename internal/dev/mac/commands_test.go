//go:build linux

package mac_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	devmac "github.com/bullpen-ci/bullpen/internal/dev/mac"
	"github.com/bullpen-ci/bullpen/test/kit/mactest"
)

// Each of these is refused, in macOS's words and with its exit code.
func TestCommands_Refuse(t *testing.T) {
	mac := mactest.Boot(t)
	mac.WriteFile("/etc/bad", "ci ALL=(ALL NOPASSWD: ALL\n", 0o440)
	mac.WriteFile("/Library/LaunchDaemons/open.plist", plistOf("open", "/bin/sleep", "60"), 0o666)
	for _, test := range []struct {
		user, command string
		exit          int
		stderr        string
	}{
		{"ci", "/sbin/pfctl -sr", 1, "pfctl: /dev/pf: Permission denied"},
		{"root", "/sbin/pfctl -y", 1, "pfctl: illegal option -- y"},
		{"root", "/sbin/pfctl -d", 1, "pfctl: pf not enabled"},
		{"root", "/sbin/pfctl -f /missing", 1, "No such file or directory"},
		{"root", "/sbin/pfctl -a x -t y -T show", 255, "pfctl: Table does not exist."},
		{"root", "/sbin/pfctl -s nonsense", 1, "pfctl: Unknown show modifier 'nonsense'"},
		{"root", "/sbin/pfctl -F nonsense", 1, "pfctl: Unknown flush modifier 'nonsense'"},
		{"ci", "/usr/bin/pmset -a sleep 0", 77, "'pmset' must be run as root..."},
		{"root", "/usr/bin/pmset -a nonsense 0", 64, "Usage: pmset"},
		{"ci", "/usr/sbin/scutil --set HostName x", 1, "root"},
		{"root", "/usr/sbin/scutil --get HostName", 1, "HostName: not set"},
		{"root", "/usr/sbin/scutil --set LocalHostName a.b", 1, "Invalid argument"},
		{"root", "/usr/sbin/sysctl nonsense", 1, "sysctl: unknown oid 'nonsense'"},
		{"ci", "/usr/sbin/sysctl net.inet.ip.forwarding=1", 1, "Operation not permitted"},
		{"root", "/usr/bin/id nobody-here", 1, "id: nobody-here: no such user"},
		{"root", "/usr/bin/dscl . -read /Users/nobody-here", 56, "eDSRecordNotFound"},
		{"root", "/usr/bin/dscl . -authonly ci wrong", 1, "eDSAuthFailed"},
		{"root", "/usr/bin/stat -f %Su /missing", 1, "stat: /missing: stat: No such file or directory"},
		{"root", "/usr/bin/stat -c %U /etc", 1, "illegal option"},
		{"root", "/usr/sbin/visudo -cf /etc/bad", 1, "/etc/bad:1:"},
		{"root", "/usr/sbin/visudo -cf /missing", 1, "No such file"},
		{"root", "/usr/bin/defaults read nowhere", 1, "Domain nowhere does not exist"},
		{"root", "/usr/bin/defaults read nowhere key", 1, "The domain/default pair of (nowhere, key) does not exist"},
		{"ci", "/usr/bin/defaults write /Library/Preferences/x key value", 1, "Could not write domain"},
		{"root", "/usr/bin/defaults write x key -bool perhaps", 255, "leaving defaults unchanged"},
		{"root", "/usr/bin/codesign --verify /etc/hosts", 1, "not signed at all"},
		{"root", "/usr/bin/codesign --verify /missing", 1, "No such file"},
		{"ci", "/bin/launchctl bootstrap system /x", 5, "Try re-running the command as root"},
		{"root", "/bin/launchctl bootstrap system /missing", 5, "Bootstrap failed: 5: Input/output error"},
		{"root", "/bin/launchctl bootstrap system /Library/LaunchDaemons/open.plist", 122, "Path had bad ownership/permissions"},
		{"root", "/bin/launchctl print system/nothing", 113, "Could not find service \"nothing\" in domain for system"},
		{"root", "/bin/launchctl print gui/777", 113, "Could not find domain"},
		{"root", "/bin/launchctl bootout system/nothing", 3, "Boot-out failed: 3: No such process"},
		{"root", "/bin/launchctl kickstart -k system/nothing", 113, "Could not find service"},
		{"ci", "/bin/launchctl kickstart -k system/com.apple.loginwindow", 1, "Operation not permitted"},
		{"root", "/bin/launchctl nonsense", 64, "Unrecognized subcommand"},
		{"root", "/usr/bin/killall -HUP nothing", 1, "No matching processes were found"},
		{"ci", "/usr/bin/killall -HUP loginwindow", 1, "No matching processes belonging to you were found"},
		{"ci", "/usr/sbin/newsyslog -n", 1, "must have root"},
		{"ci", "/usr/bin/sudo -n /usr/bin/true", 1, "sudo: a password is required"},
		{"ci", "/usr/bin/sudo /usr/bin/true", 1, "sudo: a terminal is required to read the password"},
		{"root", "/usr/bin/sudo -n /missing", 1, "command not found"},
		{"root", "/bin/df -Pk /missing", 1, "No such file or directory"},
		{"root", "/sbin/ifconfig en9", 1, "interface en9 does not exist"},
		{"ci", "/bin/hostname x", 1, "Operation not permitted"},
	} {
		words := strings.Fields(test.command)
		_, stderr, exit := mac.Try(test.user, "", words[0], words[1:]...)
		require.Equal(t, test.exit, exit, "%s: %s", test.command, stderr)
		require.Contains(t, stderr, test.stderr, test.command)
	}
}

func TestCommands_KeepTheirSettings(t *testing.T) {
	mac := mactest.Boot(t)
	run := func(line string) string {
		words := strings.Fields(line)
		return mac.Run("root", words[0], words[1:]...)
	}
	require.Equal(t, "Mac-mini\n", run("/usr/sbin/scutil --get LocalHostName"))
	run("/usr/sbin/scutil --set HostName mac-7.example.test")
	run("/usr/bin/pmset -a sleep 0 womp 1")
	run("/usr/sbin/sysctl net.inet.ip.forwarding=1")
	require.Equal(t, "1\n", run("/usr/sbin/sysctl -n net.inet.ip.forwarding"))
	run("/usr/bin/defaults write /Library/Preferences/com.apple.loginwindow autoLoginUser ci")
	run("/usr/bin/defaults write /Library/Preferences/SystemConfiguration/com.apple.InternetSharing.default.plist bootpd -dict DHCPLeaseTimeSecs -int 600")
	run("/usr/bin/defaults write /Library/Preferences/SystemConfiguration/com.apple.InternetSharing.default.plist bootpd -dict-add Other -bool true")
	mac.Run("ci", "/usr/bin/defaults", "-currentHost", "write", "com.apple.screensaver", "idleTime", "-int", "0")
	mac.Reboot()
	require.Equal(t, "mac-7.example.test\n", run("/usr/sbin/scutil --get HostName"))
	require.Equal(t, "mac-7.example.test\n", run("/bin/hostname"))
	require.Contains(t, run("/usr/bin/pmset -g custom"), " sleep                0\n")
	require.Equal(t, "0\n", run("/usr/sbin/sysctl -n net.inet.ip.forwarding"), "the kernel's variables are not kept")
	require.Equal(t, "ci\n", run("/usr/bin/defaults read /Library/Preferences/com.apple.loginwindow.plist autoLoginUser"))
	require.Equal(t, "{\n    DHCPLeaseTimeSecs = 600;\n    Other = 1;\n}\n", run("/usr/bin/defaults read /Library/Preferences/SystemConfiguration/com.apple.InternetSharing.default bootpd"))
	require.Equal(t, "0\n", mac.Run("ci", "/usr/bin/defaults", "-currentHost", "read", "com.apple.screensaver", "idleTime"))
	_, _, exit := mac.Try("root", "", "/usr/bin/defaults", "-currentHost", "read", "com.apple.screensaver", "idleTime")
	require.Equal(t, 1, exit, "another user's preferences")
}

func TestStat_IsBSDs(t *testing.T) {
	mac := mactest.Boot(t)
	mac.WriteFile("/etc/kcpassword", "x", 0o600)
	require.Equal(t, "root wheel 600 1 Regular File\n", mac.Run("root", "/usr/bin/stat", "-f", "%Su %Sg %Lp %z %HT", "/etc/kcpassword"))
	require.Equal(t, "Symbolic Link\n", mac.Run("root", "/usr/bin/stat", "-f", "%HT", "/etc"))
	require.Equal(t, "Directory\n", mac.Run("root", "/usr/bin/stat", "-L", "-f", "%HT", "/etc"))
	require.Equal(t, "root\n", mac.Run("ci", "/usr/bin/stat", "-f", "%Su", "/dev/console"))
}

// The kernel kills a program that was changed after it had been signed.
func TestCodesign_NoticesAChange(t *testing.T) {
	mac := mactest.Boot(t)
	mac.WriteFile("/usr/local/bin/x", "one", 0o755)
	mac.Run("root", "/usr/bin/codesign", "-f", "-s", "-", "/usr/local/bin/x")
	mac.Run("root", "/usr/bin/codesign", "--verify", "/usr/local/bin/x")
	require.NoError(t, os.WriteFile(mac.Root.Path("/usr/local/bin/x"), []byte("other"), 0o755))
	_, stderr, exit := mac.Try("root", "", "/usr/bin/codesign", "--verify", "/usr/local/bin/x")
	require.Equal(t, 1, exit)
	require.Contains(t, stderr, "invalid signature")
}

func TestNewsyslog_RotatesWhatIsLargerThanItMayBe(t *testing.T) {
	mac := mactest.Boot(t)
	mac.WriteFile("/etc/newsyslog.d/x.conf", "/var/log/x.log root:wheel 644 2 1 * J\n", 0o644)
	for _, content := range []string{"first" + strings.Repeat(".", 1024), "second" + strings.Repeat(".", 1024), "small"} {
		mac.WriteFile("/var/log/x.log", content, 0o644)
		mac.Run("root", "/usr/sbin/newsyslog", "-n")
		require.Equal(t, content, mac.ReadFile("/var/log/x.log"), "-n changes nothing")
		mac.Run("root", "/usr/sbin/newsyslog")
	}
	require.Equal(t, "small", mac.ReadFile("/var/log/x.log"))
	require.Contains(t, mac.ReadFile("/var/log/x.log.0"), "second")
	require.Contains(t, mac.ReadFile("/var/log/x.log.1"), "first")

	mac.WriteFile("/etc/newsyslog.d/x.conf", "/var/log/x.log\n", 0o644)
	_, stderr, exit := mac.Try("root", "", "/usr/sbin/newsyslog", "-n")
	require.Equal(t, 1, exit)
	require.Contains(t, stderr, "malformed line")
}

func TestScript_ChangesWhatCommandsDo(t *testing.T) {
	mac := mactest.Boot(t)
	mac.Script(
		devmac.Rule{Command: "pmset", Args: []string{"-a", "womp"}, Skip: 1, Times: 1, Effect: devmac.EffectAnswer, Exit: 9, Stderr: "no\n"},
		devmac.Rule{Command: "scutil", Effect: devmac.EffectKill, Times: 1},
		devmac.Rule{Command: "scutil", Effect: devmac.EffectKillAfterwards, Times: 1},
		devmac.Rule{Command: "sysctl", Effect: devmac.EffectFailAfterwards, Exit: 3, Times: 1},
	)
	pmset := func(words ...string) int { _, _, exit := mac.Try("root", "", "/usr/bin/pmset", words...); return exit }
	require.Equal(t, 0, pmset("-a", "sleep", "0", "womp", "1"))
	require.Equal(t, 0, pmset("-a", "sleep", "0"), "not what the rule is about")
	require.Equal(t, 9, pmset("-a", "womp", "0"))
	require.Equal(t, 0, pmset("-a", "womp", "1"))

	scutil := func() int {
		_, _, exit := mac.Try("root", "", "/usr/sbin/scutil", "--set", "HostName", "x")
		return exit
	}
	name := func() string { stdout, _, _ := mac.Try("root", "", "/bin/hostname"); return stdout }
	require.Equal(t, -1, scutil(), "killed")
	require.Equal(t, "Mac-mini.local\n", name())
	require.Equal(t, -1, scutil(), "killed")
	require.Equal(t, "x\n", name(), "but it had done its work")

	_, _, exit := mac.Try("root", "", "/usr/sbin/sysctl", "net.inet.ip.forwarding=1")
	require.Equal(t, 3, exit)
	require.Equal(t, "1\n", mac.Run("root", "/usr/sbin/sysctl", "-n", "net.inet.ip.forwarding"))
}

func TestCalls_TellWhatWasGiven(t *testing.T) {
	mac := mactest.Boot(t)
	mac.Run("root", "/usr/bin/pmset", "-a", "sleep", "0")
	mac.Try("ci", "wrong\nrest", "/usr/bin/sudo", "-S", "-p", "", "/usr/bin/true")
	calls := mac.Calls()
	require.Len(t, calls, 2)
	require.Equal(t, "pmset -a sleep 0", calls[0].Line())
	require.Equal(t, "root", calls[0].User)
	require.True(t, calls[0].Ended)
	require.Equal(t, "ci", calls[1].User)
	require.Equal(t, 1, calls[1].Exit)
	require.Equal(t, len("wrong\nrest"), calls[1].Stdin)
}

func plistOf(label string, words ...string) string {
	return plistWith(label, "", words...)
}

func plistWith(label, more string, words ...string) string {
	text := `<?xml version="1.0" encoding="UTF-8"?><plist version="1.0"><dict><key>Label</key><string>` + label + `</string><key>ProgramArguments</key><array>`
	for _, w := range words {
		text += "<string>" + w + "</string>"
	}
	return text + "</array>" + more + "</dict></plist>\n"
}
