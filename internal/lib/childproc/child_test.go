package childproc_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const (
	patience = 20 * time.Second
	interval = 10 * time.Millisecond
)

// envDeathSignal makes this test binary the owner of a child, which gets that signal by its death.
const envDeathSignal = "CHILDPROC_TEST_DEATH_SIGNAL"

func TestMain(m *testing.M) {
	signal, err := strconv.Atoi(os.Getenv(envDeathSignal))
	if err != nil {
		os.Exit(m.Run())
	}
	child, err := childproc.Start(exec.Command("/bin/sh", "-c", echoSignals), syscall.Signal(signal))
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(child.PID())
	select {} // bounded: the test kills this process
}

// echoSignals writes the file "interrupted" into its working directory on SIGINT.
const echoSignals = `trap 'touch interrupted; exit' INT; touch ready; while :; do sleep 0.01; done`

// shell starts a child that runs a script, and waits until the script has printed something.
func shell(t *testing.T, script string) (*childproc.Child, string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	child, err := childproc.StartLogged(exec.Command("/bin/sh", "-c", script), log, syscall.SIGKILL)
	require.NoError(t, err)
	t.Cleanup(func() { child.Stop(context.Background(), syscall.SIGKILL, 0) })
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(log)
		return err == nil && strings.HasSuffix(string(data), "\n")
	}, patience, interval)
	return child, log
}

func TestChild_StopIsPoliteFirst(t *testing.T) {
	child, log := shell(t, `trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done`)
	require.False(t, child.Stopping())
	require.False(t, child.Stop(t.Context(), syscall.SIGTERM, patience))
	require.True(t, child.Stopping())
	data, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Contains(t, string(data), "bye\n")
	require.True(t, child.Exited())
	require.NoError(t, await.Call(t, child.Wait, "the child exits"))
	require.Equal(t, "exit status 0", child.Outcome())
	require.False(t, child.Stop(t.Context(), syscall.SIGTERM, patience), "a second stop does nothing")
}

func TestChild_StopKillsTheWholeGroupAfterTheGrace(t *testing.T) {
	child, log := shell(t, `trap '' TERM; sleep 1000 & echo $!; wait; while :; do sleep 0.01; done`)
	data, err := os.ReadFile(log)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	require.NoError(t, err)
	grandchild, err := childproc.Identify("sleep", pid)
	require.NoError(t, err)

	require.True(t, child.Stop(t.Context(), syscall.SIGTERM, 10*time.Millisecond))
	require.Equal(t, "signal: killed", child.Outcome())
	require.Eventually(t, func() bool { return !grandchild.Alive() }, patience, interval, "the child's own child lives on")
}

func TestChild_StopKillsWhenTheContextEnds(t *testing.T) {
	child, _ := shell(t, `trap '' TERM; echo ready; while :; do sleep 0.01; done`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.True(t, child.Stop(ctx, syscall.SIGTERM, time.Hour))
}

func TestChild_SignalReachesTheProcessAlone(t *testing.T) {
	child, log := shell(t, `trap 'exit 3' TERM; sleep 1000 & echo $!; wait`)
	data, err := os.ReadFile(log)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	require.NoError(t, err)
	other, err := childproc.Identify("sleep", pid)
	require.NoError(t, err)
	child.Signal(syscall.SIGTERM)
	require.Equal(t, "exit status 3", child.Outcome())
	require.Error(t, await.Call(t, child.Wait, "the child exits"))
	require.True(t, other.Alive())
	other.Signal(syscall.SIGKILL) // it leads no group
	require.Eventually(t, func() bool { return !other.Alive() }, patience, interval)
}

func TestStart_SaysWhatIsMissing(t *testing.T) {
	_, err := childproc.StartLogged(exec.Command("/nowhere/etcd"), filepath.Join(t.TempDir(), "log"), syscall.SIGKILL)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = childproc.StartLogged(exec.Command("/bin/true"), filepath.Join(t.TempDir(), "none", "log"), syscall.SIGKILL)
	require.ErrorContains(t, err, "opening the log")
}

func TestStart_ChildGetsItsSignalWhenTheOwnerIsKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ties a child's life to its parent's")
	}
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			dir := t.TempDir()
			owner := exec.Command(os.Args[0])
			owner.Env = append(os.Environ(), envDeathSignal+"="+strconv.Itoa(int(signal)))
			owner.Dir = dir
			out, err := owner.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, owner.Start())
			line, readErr := bufio.NewReader(out).ReadString('\n')
			exists := func(name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
			ready := readErr == nil && eventually(func() bool { return exists("ready") })
			pid, parseErr := strconv.Atoi(strings.TrimSpace(line))
			child, identifyErr := childproc.Identify("child", pid)
			require.NoError(t, owner.Process.Kill())
			require.Error(t, owner.Wait())
			require.NoError(t, parseErr, line)
			require.NoError(t, identifyErr)
			t.Cleanup(func() { child.Signal(syscall.SIGKILL) })
			require.True(t, ready)
			require.Eventually(t, func() bool { return !child.Alive() }, patience, interval, "the child outlived its killed owner")
			require.Equal(t, signal == syscall.SIGINT, exists("interrupted"))
		})
	}
}

// eventually is require.Eventually for where a failure must not end the test yet.
func eventually(condition func() bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}
