package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// talkative is a pod with an init container. Its container ends when the file is there.
const talkative = `
apiVersion: v1
kind: Pod
metadata: {name: talkative, namespace: default}
spec:
  restartPolicy: Never
  nodeName: this-machine
  initContainers:
  - {name: prepare, image: none, command: [sh, -c, "echo prepared"]}
  containers:
  - {name: main, image: none, command: [sh, -c, "echo one; echo two >&2; echo three; while [ ! -e FILE ]; do sleep 0.1; done; echo bye; exit 3"]}
`

// The features of kubectl, through the real API server: logs of every container, followed to their end by many at once, and commands with
// their input, output, exit code and terminal. A job that runs beside it all is not disturbed.
func logsAndCommands(t *testing.T, dir string, w *where) {
	admin := w.Kubeconfig
	end := filepath.Join(t.TempDir(), "end")
	_, err := kubectl(t, w, admin, "apply", "-f", writeFile(t, "pod.yaml", strings.ReplaceAll(talkative, "FILE", end)))
	require.NoError(t, err)
	out, err := kubectl(t, w, admin, "wait", "--for=condition=Ready", "--timeout=60s", "pod/talkative")
	require.NoError(t, err, out)
	for args, want := range map[string]string{
		"-c prepare":          "prepared",
		"-c main":             "one\ntwo\nthree",
		"-c main --tail=1":    "three",
		"-c main --since=1h":  "one\ntwo\nthree",
		"-c main --tail=0":    "",
		"--limit-bytes=5":     "one\nt",
		"-c main --since=1ns": "", // kubectl rounds up to a second
	} {
		if strings.Contains(args, "1ns") {
			require.Eventually(t, func() bool {
				out, err := kubectl(t, w, admin, "logs", "talkative", "-c", "main", "--since=1s")
				return err == nil && out == ""
			}, patience, time.Second, "what was written long ago is not what was written a second ago")
			continue
		}
		out, err := kubectl(t, w, admin, append([]string{"logs", "talkative"}, strings.Fields(args)...)...)
		require.NoError(t, err, out)
		require.Equal(t, want, strings.TrimPrefix(out, "Defaulted container \"main\" out of: main, prepare (init)\n"), args)
	}
	out, err = kubectl(t, w, admin, "logs", "talkative", "-c", "main", "--timestamps", "--tail=1")
	require.NoError(t, err, out)
	require.Regexp(t, regexp.MustCompile(`^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z three$`), out)
	out, err = kubectl(t, w, admin, "logs", "talkative", "-c", "main", "--previous")
	require.Error(t, err)
	require.Contains(t, out, "no previous container")

	followAll(t, w, end)
	out, err = kubectl(t, w, admin, "logs", "talkative", "-c", "main", "--tail=1")
	require.NoError(t, err, out)
	require.Equal(t, "bye", out, "a log outlives its container")
	_, err = kubectl(t, w, admin, "delete", "pod", "talkative", "--wait=false")
	require.NoError(t, err)
	commandsInARunner(t, dir, w)
}

// followAll has several clients follow a log to its end, and one disconnect before.
func followAll(t *testing.T, w *where, end string) {
	t.Helper()
	const many = 4
	var followers sync.WaitGroup
	results := make(chan string, many)
	for range many {
		followers.Go(func() {
			out, err := kubectl(t, w, w.Kubeconfig, "logs", "-f", "talkative", "-c", "main")
			results <- fmt.Sprint(out, " ", err)
		})
	}
	impatient := exec.CommandContext(await.Context(t), w.Kubectl, "--kubeconfig", w.Kubeconfig, "logs", "-f", "talkative", "-c", "main")
	lines, err := impatient.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, impatient.Start())
	_, err = lines.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, impatient.Process.Kill())
	require.Error(t, impatient.Wait())
	require.NoError(t, os.WriteFile(end, nil, 0o600))
	await.Return(t, followers.Wait, "the followers have read the log")
	for range many {
		require.Equal(t, "one\ntwo\nthree\nbye <nil>", await.Receive(t, results, "a follower has read the log"))
	}
}

func commandsInARunner(t *testing.T, dir string, w *where) {
	t.Helper()
	const runners = "bullpen-runners"
	busy, err := kubectl(t, w, w.Kubeconfig, "get", "pods", "-n", runners, "-o",
		`jsonpath={range .items[?(@.status.phase=="Running")]}{.metadata.name}{"\n"}{end}`)
	require.NoError(t, err, busy)
	pods := strings.Fields(busy)
	require.NotEmpty(t, pods)
	for _, container := range []string{"agent", "poller", "runner"} {
		out, err := kubectl(t, w, w.Kubeconfig, "logs", "-n", runners, pods[0], "-c", container)
		require.NoError(t, err, out)
	}
	execute := func(ctx context.Context, input string, args ...string) (stdout, stderr string, code int) {
		var out, errs bytes.Buffer
		command := exec.CommandContext(ctx, w.Kubectl, append([]string{"--kubeconfig", w.Kubeconfig, "exec", "-n", runners, pods[0], "-c", "runner"}, args...)...)
		command.Stdin, command.Stdout, command.Stderr = strings.NewReader(input), &out, &errs
		var exit *exec.ExitError
		if err := command.Run(); err != nil && !errors.As(err, &exit) {
			require.NoError(t, err)
		}
		return out.String(), errs.String(), command.ProcessState.ExitCode()
	}
	stdout, stderr, code := execute(t.Context(), "", "--", "sh", "-c", "echo out; echo err >&2; exit 42")
	require.Equal(t, "out\n", stdout)
	require.Contains(t, stderr, "err\n")
	require.Equal(t, 42, code)
	stdout, _, code = execute(t.Context(), "a line of input\n", "-i", "--", "cat")
	require.Equal(t, "a line of input\n", stdout)
	require.Zero(t, code)
	// kubectl sends the size beside the input, and a kubelet applies it when it arrives: the command may see none at first.
	terminal := exec.CommandContext(await.Context(t), w.Kubectl, "--kubeconfig", w.Kubeconfig, "exec", "-it", "-n", runners, pods[0], "-c", "runner", "--",
		"sh", "-c", `read -r line; n=0; while test "$(stty size)" = "0 0" && test $n -lt 1200; do n=$((n+1)); sleep 0.05; done; stty size; exit 5`)
	screen, err := pty.StartWithSize(terminal, &pty.Winsize{Rows: 31, Cols: 101})
	require.NoError(t, err)
	_, err = screen.Write([]byte("typed\n"))
	require.NoError(t, err)
	shown, _ := io.ReadAll(screen) // a terminal without a holder answers with an error
	require.NoError(t, screen.Close())
	require.Error(t, await.Call(t, terminal.Wait, "the terminal's command exits"))
	require.Equal(t, 5, terminal.ProcessState.ExitCode())
	require.Contains(t, string(shown), "31 101", "%s", shown)

	// A client that disconnects leaves no process behind, although it neither reads nor writes.
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		execute(ctx, "", "--", "sleep", "4321")
	}()
	sleeps := func() bool { return strings.Contains(strings.Join(processesOf(t, dir), "\n"), "sleep 4321") }
	require.Eventually(t, sleeps, patience, interval)
	leave()
	await.Receive(t, gone, "the command that was cancelled returns")
	require.Eventually(t, func() bool { return !sleeps() }, patience, interval)
	require.True(t, longJobRuns(t, dir), "a job is not disturbed")
}
