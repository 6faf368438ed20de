package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	devmac "github.com/bullpen-ci/bullpen/internal/dev/mac"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/mactest"
)

// The program starts its own executable, which in tests is the test binary: it then acts as the program.
func init() {
	if os.Getenv("BULLPEN_TEST_IS_BULLPEN") != "" {
		os.Exit(run(context.Background(), os.Args[1:]))
	}
}

// bullpenOn runs this program as root of a model Mac, with that on standard input.
func bullpenOn(t *testing.T, mac *mactest.Mac, stdin string, args ...string) (code int, said string) {
	t.Helper()
	t.Setenv("DEVMAC_USER", "root")
	root := newRootCommand()
	var out bytes.Buffer
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append(args, "--root", string(mac.Root)))
	if err := root.ExecuteContext(t.Context()); err != nil {
		var coded exitCoder
		if errors.As(err, &coded) {
			return coded.ExitCode(), out.String() + err.Error()
		}
		return 1, out.String() + err.Error()
	}
	return 0, out.String()
}

// The second review comment of the incident: the manual path skipped what was there already, and a mistyped password left it green.
func TestIncident_HOST3_PrepareWhereSudoersAreThereAndThePasswordIsMistyped(t *testing.T) {
	mac := mactest.Boot(t)
	code, said := bullpenOn(t, mac, "", "host", "grant-sudo", "--user", "ci")
	require.Zero(t, code, said)

	const mistyped = "correct hoarse"
	code, said = bullpenOn(t, mac, mistyped+"\n", "host", "prepare", "--user", "ci", "--password-stdin")
	require.Equal(t, 1, code, said)
	require.Contains(t, said, "sealed")
	require.Contains(t, said, "/etc/kcpassword")
	require.NotContains(t, said, mistyped)

	// And again, with nothing given, as one would try whether it is all right now.
	code, said = bullpenOn(t, mac, "", "host", "prepare", "--user", "ci", "--password-stdin")
	require.Equal(t, 1, code, said)
	require.Contains(t, said, "sealed")

	code, said = bullpenOn(t, mac, devmac.DefaultPassword+"\n", "host", "prepare", "--user", "ci", "--password-stdin")
	require.Zero(t, code, said)
	require.Equal(t, "ci\n", mac.Run("root", "/usr/bin/stat", "-f", "%Su", "/dev/console"))
}

func TestIncident_HOST3_PrepareWhereAllIsThereAndTheFileSealedSince(t *testing.T) {
	mac := mactest.Boot(t)
	prepare := []string{"host", "prepare", "--user", "ci", "--password-stdin"}
	code, said := bullpenOn(t, mac, devmac.DefaultPassword, prepare...)
	require.Zero(t, code, said)
	code, said = bullpenOn(t, mac, "", prepare...)
	require.Zero(t, code, said)
	require.NoError(t, os.WriteFile(mac.Root.Path("/etc/kcpassword"), devmac.SealedPassword(), 0o600))

	code, said = bullpenOn(t, mac, "", prepare...)
	require.Equal(t, 1, code, said)
	require.Contains(t, said, "sealed")
	code, said = bullpenOn(t, mac, devmac.DefaultPassword, prepare...)
	require.Zero(t, code, said, "given the right one, it is repaired")
}

// A password that macOS could not store is refused before anything is written.
func TestPrepare_TakesOneLine(t *testing.T) {
	for in, want := range map[string]string{"secret\n": "secret", "secret": "secret", "a \"b\" 'c'\nrest": "a \"b\" 'c'", "\n": "", "": "", "päß\n": "päß"} {
		password, err := passwordFrom(strings.NewReader(in))
		require.NoError(t, err)
		require.Equal(t, want, password.Reveal())
	}
}

func TestPrepare_AsksTwice(t *testing.T) {
	answers := func(texts ...string) func() ([]byte, error) {
		return func() ([]byte, error) {
			if len(texts) == 0 {
				return nil, io.EOF
			}
			first := texts[0]
			texts = texts[1:]
			return []byte(first), nil
		}
	}
	var prompt bytes.Buffer
	password, err := askTwice(&prompt, "ci", answers("one", "one"))
	require.NoError(t, err)
	require.Equal(t, "one", password.Reveal())
	require.Contains(t, prompt.String(), "Password of ci")
	require.NotContains(t, prompt.String(), "one on")

	_, err = askTwice(io.Discard, "ci", answers("one", "two"))
	require.ErrorIs(t, err, errPasswordsDiffer)
	require.NotContains(t, err.Error(), "one\n")
	_, err = askTwice(io.Discard, "ci", answers("one"))
	require.ErrorIs(t, err, io.EOF)
	password, err = askTwice(io.Discard, "ci", answers(""))
	require.NoError(t, err, "nothing entered: only look")
	require.True(t, password.Empty())
}

func TestConfirmOnTerminal_HOST7_WantsAYes(t *testing.T) {
	for answer, want := range map[string]bool{"yes\n": true, " Yes \n": true, "y\n": false, "no\n": false, "\n": false, "": false} {
		err := confirmOnTerminal(strings.NewReader(answer), io.Discard)(t.Context(), "token")
		require.Equal(t, want, err == nil, "%q", answer)
	}
}

// The watchdog is a process of its own: it outlives the process that started it.
func TestWatchdog_HOST7_OutlivesTheApply(t *testing.T) {
	mac := mactest.Boot(t)
	t.Setenv("DEVMAC_USER", "root")
	t.Setenv("BULLPEN_TEST_IS_BULLPEN", "1")
	state := mac.Root.Path("/usr/local/var/bullpen")
	require.NoError(t, os.MkdirAll(state, 0o755))
	armed := filepath.Join(state, "ssh-guard.armed")
	require.NoError(t, os.WriteFile(armed, []byte("token\n"), 0o644))

	require.NoError(t, startWatchdog(string(mac.Root))(t.Context(), "token"))
	watching := func() bool { return watchdogOf(t, mac) != 0 }
	require.Eventually(t, watching, 30*time.Second, 20*time.Millisecond)
	pid := watchdogOf(t, mac)
	session, err := unix.Getsid(pid)
	require.NoError(t, err)
	require.Equal(t, pid, session, "it leads a session, which no terminal and no sudo can end")
	require.NoError(t, os.Remove(armed))
	require.Eventually(t, func() bool { return !watching() }, 30*time.Second, 20*time.Millisecond, "what is confirmed needs no watchdog")
}

// A program that starts and is ended at once, as macOS does with one whose signature it refuses, has started without an error.
func TestWatchdog_HOST7_IsNotThereBeforeItSaysSo(t *testing.T) {
	require.ErrorContains(t, startProgram(t.Context(), exec.Command("/bin/sh", "-c", "kill -9 $$")), "does not report that it is running")
	waiting, stop := context.WithCancel(t.Context())
	stop()
	require.ErrorContains(t, startProgram(waiting, exec.Command("/bin/sh", "-c", "exec sleep 5")), "does not report that it is running")
	require.NoError(t, startProgram(t.Context(), exec.Command("/bin/sh", "-c", "echo ready >&3")))
}

// watchdogOf finds the process by its arguments; 0 is none.
func watchdogOf(t *testing.T, mac *mactest.Mac) int {
	t.Helper()
	said, err := exec.CommandContext(await.Context(t), "ps", "-axww", "-o", "pid=,command=").Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(said)) {
		if strings.Contains(line, "host revert-guard --token token --root "+string(mac.Root)) {
			pid, err := strconv.Atoi(strings.Fields(line)[0])
			require.NoError(t, err)
			return pid
		}
	}
	return 0
}
