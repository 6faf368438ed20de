package mactest

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// stamp is the time and the process that defaults puts before a message.
var stamp = regexp.MustCompile(`\d{4}-\d\d-\d\d [\d:.]+ defaults\[\d+:1\]`)

// Two Macs get the same commands in the same order, one in this process and one as processes. Both give the same answers, also to the commands that
// read what the earlier ones have changed.
func TestHost_AnswersInsideAsAProcessDoes(t *testing.T) {
	const rules, anchor = "block return on bridge100\npass quick on lo0\n", "/etc/pf.anchors/bullpen"
	file := []Option{File(anchor, rules, 0o644), File("/etc/broken", "pass the salt\n", 0o644)}
	inside, outside := Boot(t, file...), Boot(t, file...)
	host := inside.Host()
	for _, c := range []struct {
		stdin string
		line  string
	}{
		{"", "/usr/bin/sw_vers -productVersion"},
		{"", "/usr/bin/uname -m"},
		{"", "/usr/bin/id -u ci"},
		{"", "/usr/bin/id -u stranger"},
		{"", "/sbin/pfctl -nf " + anchor},
		{"", "/sbin/pfctl -nf /etc/broken"},
		{"", "/sbin/pfctl -nf /etc/missing"},
		{"", "/sbin/pfctl -a bullpen -f " + anchor},
		{rules, "/sbin/pfctl -a typed -f -"},
		{"", "/sbin/pfctl -a bullpen -sr"},
		{"", "/sbin/pfctl -a typed -sr"},
		{"", "/sbin/pfctl -e"},
		{"", "/sbin/pfctl -e"},
		{"", "/sbin/pfctl -si"},
		{"", "/usr/bin/pmset -a sleep 0"},
		{"", "/usr/bin/pmset -g"},
		{"", "/usr/bin/pmset -a nonsense 0"},
		{"", "/usr/sbin/systemsetup -getremotelogin"},
		{"", "/usr/sbin/sysctl net.inet.ip.forwarding=1"},
		{"", "/usr/sbin/sysctl -n net.inet.ip.forwarding"},
		{"", "/usr/bin/defaults read com.apple.screensaver idleTime"},
		{"", "/usr/bin/defaults write com.apple.screensaver idleTime -int 0"},
		{"", "/usr/bin/defaults read com.apple.screensaver idleTime"},
		{"", "/bin/launchctl print system/missing"},
		{"", "/usr/sbin/visudo -c"},
		{"", "/usr/bin/fdesetup status"},
	} {
		at, rest, _ := strings.Cut(c.line, " ")
		stdout, stderr, exit := outside.Try("root", c.stdin, at, strings.Fields(rest)...)
		result, err := host.Run(t.Context(), machost.Command{Path: at, Args: strings.Fields(rest), Stdin: []byte(c.stdin)})
		require.NoError(t, err, c.line)
		answer := func(exit int, stdout, stderr string) string {
			return fmt.Sprintf("%d\n%s\n%s", exit, stdout, stamp.ReplaceAllString(stderr, "STAMP"))
		}
		require.Equal(t, answer(exit, stdout, stderr), answer(result.ExitCode, string(result.Stdout), string(result.Stderr)), c.line)
	}
	calls := func(m *Mac) (lines []string) {
		for _, call := range m.Calls() {
			lines = append(lines, fmt.Sprint(call.Args))
		}
		return lines
	}
	require.Equal(t, calls(outside), calls(inside), "both are recorded")
}
