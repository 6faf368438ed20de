//go:build linux

package mac_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/mactest"
)

const plistPath = "/Library/LaunchDaemons/test.job.plist"

var pidLine = regexp.MustCompile(`(?m)^\tpid = (\d+)$`)

// pidOf is the job's process; 0 if it has none.
func pidOf(t *testing.T, mac *mactest.Mac) int {
	t.Helper()
	stdout, _, _ := mac.Try("root", "", "/bin/launchctl", "print", "system/test.job")
	found := pidLine.FindStringSubmatch(stdout)
	if found == nil {
		return 0
	}
	pid, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return pid
}

func awaitPID(t *testing.T, mac *mactest.Mac, wanted func(pid int) bool) int {
	t.Helper()
	var pid int
	require.Eventually(t, func() bool { pid = pidOf(t, mac); return wanted(pid) }, 20*time.Second, 10*time.Millisecond)
	return pid
}

func running(pid int) bool { return pid != 0 }

const forEver = `<key>RunAtLoad</key><true/><key>KeepAlive</key><true/>`

func TestLaunchd_RunsJobs(t *testing.T) {
	mac := mactest.Boot(t)
	mac.WriteFile("/Users/ci/job.sh", "#!/bin/sh\necho \"$(id -un) $HOME $HERE $1 $*\" >&2\nexec sleep 600\n", 0o755)
	mac.WriteFile(plistPath, plistWith("test.job", forEver+`<key>UserName</key><string>ci</string><key>StandardErrorPath</key><string>/var/log/job.log</string>
		<key>EnvironmentVariables</key><dict><key>HERE</key><string>/Users/Shared</string></dict>`, "/Users/ci/job.sh", "/etc/hosts", "--state-dir=/Users/ci/x", "word"), 0o644)
	mac.Run("root", "/bin/launchctl", "bootstrap", "system", plistPath)
	first := awaitPID(t, mac, running)
	require.Eventually(t, func() bool {
		log, err := os.ReadFile(mac.Root.Path("/var/log/job.log"))
		return err == nil && strings.Contains(string(log), "\n")
	}, 10*time.Second, 5*time.Millisecond)
	at := mac.Root.Path
	require.Equal(t, "ci "+at("/Users/ci")+" "+at("/Users/Shared")+" "+at("/etc/hosts")+" "+at("/etc/hosts")+" --state-dir="+at("/Users/ci/x")+" word\n", mac.ReadFile("/var/log/job.log"),
		"paths of the Mac are those of where they lie")

	_, stderr, exit := mac.Try("root", "", "/bin/launchctl", "bootstrap", "system", plistPath)
	require.Equal(t, 5, exit, "it is loaded already")
	require.Equal(t, "Bootstrap failed: 5: Input/output error\n", stderr)

	mac.Run("root", "/bin/launchctl", "kickstart", "-k", "system/test.job")
	second := awaitPID(t, mac, running)
	require.NotEqual(t, first, second)
	require.ErrorIs(t, syscall.Kill(first, 0), syscall.ESRCH)
	_, _, exit = mac.Try("root", "", "/bin/launchctl", "kickstart", "system/test.job")
	require.Equal(t, 37, exit, "without -k it runs already")

	mac.Reboot()
	third := awaitPID(t, mac, running)
	require.NotEqual(t, second, third)
	mac.Run("root", "/bin/launchctl", "bootout", "system/test.job")
	_, _, exit = mac.Try("root", "", "/bin/launchctl", "print", "system/test.job")
	require.Equal(t, 113, exit)
	require.ErrorIs(t, syscall.Kill(third, 0), syscall.ESRCH)
}

// A job that ends is started again, but not before ThrottleInterval is over.
func TestLaunchd_ThrottlesWhatEndsAtOnce(t *testing.T) {
	mac := mactest.Boot(t)
	mac.WriteFile("/Users/ci/job.sh", "#!/bin/sh\ndate +%s%3N >>"+mac.Root.Path("/var/log/starts")+"\nexit 3\n", 0o755)
	mac.WriteFile(plistPath, plistWith("test.job", forEver+`<key>ThrottleInterval</key><integer>1</integer>`, "/Users/ci/job.sh"), 0o644)
	began := time.Now() // the first start may be slow, which does not delay the next one
	mac.Run("root", "/bin/launchctl", "bootstrap", "system", plistPath)
	var starts []string
	require.Eventually(t, func() bool {
		content, _ := os.ReadFile(mac.Root.Path("/var/log/starts"))
		starts = strings.Fields(string(content))
		return len(starts) >= 3
	}, 30*time.Second, 10*time.Millisecond)
	third, err := strconv.ParseInt(starts[2], 10, 64)
	require.NoError(t, err)
	require.GreaterOrEqual(t, third-began.UnixMilli(), int64(2000))
	require.Eventually(t, func() bool {
		stdout := mac.Run("root", "/bin/launchctl", "print", "system/test.job")
		return strings.Contains(stdout, "last exit code = 3") && strings.Contains(stdout, "state = spawn scheduled")
	}, 10*time.Second, 10*time.Millisecond)
}

// A program that is not there ends with 78.
func TestLaunchd_SaysThatAProgramIsMissing(t *testing.T) {
	mac := mactest.Boot(t)
	mac.WriteFile(plistPath, plistWith("test.job", forEver, "/missing"), 0o644)
	mac.Run("root", "/bin/launchctl", "bootstrap", "system", plistPath)
	require.Eventually(t, func() bool {
		return strings.Contains(mac.Run("root", "/bin/launchctl", "print", "system/test.job"), "last exit code = 78: EX_CONFIG")
	}, 10*time.Second, 10*time.Millisecond)
}

// A job's remaining processes end with it, unless AbandonProcessGroup is set (NODE-3).
func TestLaunchd_EndsTheProcessGroupUnlessItIsAbandoned(t *testing.T) {
	for name, abandoned := range map[string]bool{"<false/>": false, "<true/>": true} {
		t.Run(name, func(t *testing.T) {
			mac := mactest.Boot(t)
			mac.WriteFile("/Users/ci/job.sh", "#!/bin/sh\nsleep 600 &\necho $! >"+mac.Root.Path("/var/log/child")+"\nexec sleep 600\n", 0o755)
			mac.WriteFile(plistPath, plistWith("test.job", forEver+"<key>AbandonProcessGroup</key>"+name, "/Users/ci/job.sh"), 0o644)
			mac.Run("root", "/bin/launchctl", "bootstrap", "system", plistPath)
			var child int
			require.Eventually(t, func() bool {
				content, err := os.ReadFile(mac.Root.Path("/var/log/child"))
				child, _ = strconv.Atoi(strings.TrimSpace(string(content)))
				return err == nil && child != 0
			}, 10*time.Second, 5*time.Millisecond)
			mac.Run("root", "/bin/launchctl", "bootout", "system/test.job")
			if abandoned {
				// One that was killed is there until its new parent has looked.
				require.Never(t, func() bool { return syscall.Kill(child, 0) != nil }, 300*time.Millisecond, 20*time.Millisecond)
				return
			}
			require.Eventually(t, func() bool { return syscall.Kill(child, 0) != nil }, 10*time.Second, 5*time.Millisecond)
		})
	}
}

// A shutdown ends everything, however many generations lie between a process and launchd.
func TestShutdown_LeavesNothing(t *testing.T) {
	mac := mactest.Boot(t)
	mac.WriteFile("/Users/ci/job.sh", "#!/bin/sh\ntrap '' TERM\n[ \"$1\" = 0 ] && { echo >"+mac.Root.Path("/var/log/deepest")+`
exec `+mac.Root.Path("/Users/ci/sleep")+" 600; }\n\"$0\" $(($1-1))\n:\n", 0o755)
	sleep, err := os.ReadFile("/bin/sleep") // one under the root is the Mac's, whatever its parent is
	require.NoError(t, err)
	mac.WriteFile("/Users/ci/sleep", string(sleep), 0o755)
	mac.WriteFile(plistPath, plistWith("test.job", forEver+"<key>AbandonProcessGroup</key><true/>", "/Users/ci/job.sh", "150"), 0o644)
	mac.Run("root", "/bin/launchctl", "bootstrap", "system", plistPath)
	require.Eventually(t, func() bool {
		_, err := os.Stat(mac.Root.Path("/var/log/deepest"))
		return err == nil
	}, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, mac.Shutdown())
	require.Empty(t, mac.Leftovers())
}

// Registering the same job again and again gets it disabled: it still starts, but is not kept alive, and not started at boot.
func TestLaunchd_DisablesWhatIsRegisteredAgainAndAgain(t *testing.T) {
	mac := mactest.Boot(t)
	again := func(more string) {
		mac.WriteFile(plistPath, plistWith("test.job", forEver+`<key>ThrottleInterval</key><integer>1</integer>`+more, "/bin/sleep", "600"), 0o644)
		mac.Run("root", "/bin/launchctl", "bootstrap", "system", plistPath)
		awaitPID(t, mac, running)
	}
	killed := func() int {
		pid := awaitPID(t, mac, running)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		return pid
	}
	for range 3 {
		again("")
		mac.Run("root", "/bin/launchctl", "bootout", "system/test.job")
	}
	again("<key>Nice</key><integer>1</integer>") // a change restarts the count
	before := killed()
	awaitPID(t, mac, func(pid int) bool { return pid != 0 && pid != before })
	for range 3 {
		mac.Run("root", "/bin/launchctl", "bootout", "system/test.job")
		again("<key>Nice</key><integer>1</integer>")
	}
	require.Contains(t, mac.Run("root", "/bin/launchctl", "print-disabled", "system"), `"test.job" => disabled`)
	killed()
	require.Eventually(t, func() bool {
		return strings.Contains(mac.Run("root", "/bin/launchctl", "print", "system/test.job"), "state = not running")
	}, 10*time.Second, 5*time.Millisecond)
	mac.Reboot()
	_, _, exit := mac.Try("root", "", "/bin/launchctl", "print", "system/test.job")
	require.Equal(t, 113, exit)
	_, _, exit = mac.Try("root", "", "/bin/launchctl", "bootstrap", "system", plistPath)
	require.Equal(t, 5, exit)
	mac.Run("root", "/bin/launchctl", "enable", "system/test.job")
	mac.Run("root", "/bin/launchctl", "bootstrap", "system", plistPath)
	awaitPID(t, mac, running)
}
