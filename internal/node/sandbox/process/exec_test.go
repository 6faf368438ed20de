//go:build unix

package process_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/process"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/sandboxtest"
)

// runs is a sandbox with one running container.
func runs(t *testing.T, m machine, env ...sandbox.EnvVar) (*process.Sandbox, *corev1.Pod) {
	t.Helper()
	sb := open(t, m.dir)
	pod := newPod()
	require.NoError(t, sb.Prepare(t.Context(), pod))
	c := m.Make(t, pod, "main", sandboxtest.Behaviour{Runs: true})
	c.Env = env
	require.NoError(t, sb.Start(t.Context(), pod, c))
	require.Eventually(t, func() bool { return m.Settled(string(pod.UID), "main") }, patience, 5*time.Millisecond)
	return sb, pod
}

func TestExecHasTheContainersEnvironmentAndFolder(t *testing.T) {
	t.Setenv("AGENTS_OWN_SECRET", "s3cret")
	m := newMachine(t)
	sb, pod := runs(t, m, sandbox.EnvVar{Name: "CODE", Value: "7"})
	var out bytes.Buffer
	code, err := sb.Exec(t.Context(), string(pod.UID), "main", []string{"sh", "-c", `pwd; env; exit "$CODE"`}, sandbox.Streams{Out: &out})
	require.NoError(t, err)
	require.Equal(t, 7, code)
	require.True(t, strings.HasPrefix(out.String(), filepath.Join(m.containerDir(string(pod.UID), "main"), "home")+"\n"), out.String())
	require.NotContains(t, out.String(), "s3cret")
	require.NotContains(t, out.String(), "TERM=")
	require.Equal(t, 1, strings.Count(out.String(), "BULLPEN_SANDBOX="))

	code, err = sb.Exec(t.Context(), string(pod.UID), "main", []string{"sh", "-c", `kill -9 $$`}, sandbox.Streams{})
	require.NoError(t, err)
	require.Equal(t, 128+9, code)
	_, err = sb.Exec(t.Context(), string(pod.UID), "main", []string{"no-such-program"}, sandbox.Streams{})
	require.ErrorContains(t, err, `"no-such-program" is not in the container's PATH`)
}

// When its caller disconnects a command is killed with all its processes, including those that left its session.
func TestExec_NothingOfACommandThatIsGivenUpIsLeft(t *testing.T) {
	m := newMachine(t)
	sb, pod := runs(t, m)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	file := filepath.Join(m.dir, "left-over")
	go func() {
		_, err := sb.Exec(ctx, string(pod.UID), "main", []string{"sh", "-c", daemon, file}, sandbox.Streams{Out: writer})
		done <- err
	}()
	_, err := reader.Read(make([]byte, 1)) // it says so when the daemon runs
	require.NoError(t, err)
	cancel()
	require.NoError(t, reader.Close())
	require.ErrorIs(t, await.Receive(t, done, "the exec that was cancelled returns"), context.Canceled)
	require.NotZero(t, readPID(file))
	require.False(t, running(readPID(file)))
	require.True(t, m.Settled(string(pod.UID), "main"), "the container is another matter")
}

// daemon leaves a process behind, in a session of its own where there is a program for that, and says so.
var daemon = map[bool]string{
	true:  `setsid sh -c 'echo $$ > "$0"; exec sleep 1000' "$0" & while [ ! -s "$0" ]; do sleep 0.01; done; echo; wait`,
	false: `sh -c 'echo $$ > "$0"; exec sleep 1000' "$0" & while [ ! -s "$0" ]; do sleep 0.01; done; echo; wait`,
}[runtime.GOOS == "linux"]

// NODE-2: a command's daemon is killed with the container, also when the agent that ran the command is gone.
func TestExec_NODE2_WhatACommandLeftBehindGoesWithTheContainer(t *testing.T) {
	m := newMachine(t)
	sb, pod := runs(t, m)
	file := filepath.Join(m.dir, "left-over")
	leave := strings.Replace(daemon, "wait", "exit 0", 1)
	_, err := sb.Exec(t.Context(), string(pod.UID), "main", []string{"sh", "-c", leave, file}, sandbox.Streams{})
	require.NoError(t, err)
	require.True(t, running(readPID(file)))
	next := open(t, m.dir)
	require.NoError(t, next.Signal(t.Context(), string(pod.UID), "main", sandbox.Terminate))
	_, err = next.Wait(t.Context(), string(pod.UID), "main")
	require.NoError(t, err)
	require.False(t, running(readPID(file)))
}

// A container's output is found by its time, to the second.
func TestLog_KnowsWhenSomethingWasWritten(t *testing.T) {
	m := newMachine(t)
	sb := open(t, m.dir)
	pod := newPod()
	uid := string(pod.UID)
	require.NoError(t, sb.Prepare(t.Context(), pod))
	c := sh(`echo first; while [ ! -e "$HOME/go" ]; do sleep 0.01; done; echo second; sleep 1000`)
	c.Name = "main"
	require.NoError(t, sb.Start(t.Context(), pod, c))
	log, err := sb.OpenLog(uid, "main")
	require.NoError(t, err)
	defer func() { require.NoError(t, log.Close()) }()
	size := func(want int64) func() bool {
		return func() bool {
			n, err := log.Size()
			return err == nil && n == want
		}
	}
	require.Eventually(t, size(6), patience, 5*time.Millisecond)
	times := filepath.Join(m.containerDir(uid, "main"), "times")
	require.Eventually(t, func() bool { info, err := os.Stat(times); return err == nil && info.Size() == 16 }, patience, 5*time.Millisecond)
	between := time.Now()
	require.NoError(t, os.WriteFile(filepath.Join(m.containerDir(uid, "main"), "home", "go"), nil, 0o600))
	require.Eventually(t, size(13), patience, 5*time.Millisecond)
	require.Eventually(t, func() bool { info, err := os.Stat(times); return err == nil && info.Size() == 32 }, patience, 5*time.Millisecond)
	for at, want := range map[time.Time]int64{between.Add(-time.Hour): 0, between: 6, time.Now().Add(time.Hour): 13} {
		offset, err := log.OffsetAt(at)
		require.NoError(t, err)
		require.Equal(t, want, offset, "%s", at)
	}
}
