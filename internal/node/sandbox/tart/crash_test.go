//go:build unix

package tart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// agentKilledAt is a node agent that takes one pod through its life, as long as it lives: it dies at a step.
func agentKilledAt(step, binary, dir, uid, script string) {
	programs = binary
	opts := fastOptions(dir, binary)
	opts.reached = func(at string) {
		if at == step {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // not one instruction more; // bounded: the signal ends this process
		}
	}
	pod := podOf(uid)
	c, err := fill(dir, pod, script)
	var s *Sandbox
	if err == nil {
		s, err = New(opts)
	}
	ctx := context.Background()
	if err == nil {
		err = s.Prepare(ctx, pod)
	}
	if err == nil {
		err = s.Start(ctx, pod, c)
	}
	if err == nil && script != runsOnce {
		_, err = s.Wait(ctx, uid, runnerpod.ContainerRunner)
	}
	if err == nil {
		err = s.Remove(ctx, uid)
	}
	fmt.Fprintln(os.Stderr, "the step was never reached:", step, err)
	os.Exit(3)
}

func podOf(uid string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: types.UID(uid)}}
}

const (
	counts   = `echo ran >> "$BULLPEN_STATUS_DIR/ran"; `
	runsOnce = counts + runs
	endsOnce = counts + "exit 7"
)

// killPoints is every step of creating and deleting that a crash may follow, and what the pod's command does.
var killPoints = []struct {
	step, script string
	// begun: the guest may run, so it must be found again and go on.
	begun bool
	// removing: the pod was being removed.
	removing bool
}{
	{step: "prepared", script: runsOnce},
	{step: "vm-recorded", script: runsOnce},
	{step: "pulled", script: runsOnce},
	{step: "golden-recorded", script: runsOnce},
	{step: "golden-cloned", script: runsOnce},
	{step: "golden-whole", script: runsOnce},
	{step: "cloned", script: runsOnce},
	{step: "set", script: runsOnce},
	{step: "run-recorded", script: runsOnce},
	{step: "run-started", script: runsOnce, begun: true},
	{step: "guest-start", script: runsOnce, begun: true},
	{step: "up", script: runsOnce, begun: true},
	{step: "reported", script: endsOnce, begun: true},
	{step: "stopped", script: endsOnce, begun: true},
	{step: "settling", script: endsOnce, begun: true},
	{step: "stopped", script: runsOnce, begun: true, removing: true},
	{step: "halted", script: runsOnce, begun: true, removing: true},
	{step: "deleted", script: runsOnce, begun: true, removing: true},
	{step: "processes-removed", script: runsOnce, begun: true, removing: true},
	{step: "record-removed", script: runsOnce, removing: true},
}

// NODE-2, NODE-3, NODE-5: an agent that is killed at any step, and started again, finds what there is: the pod's command runs at most once, in one machine,
// which no restart stops; its slot is counted; and when the pod goes nothing is left.
func TestKilledAgent_NODE3_ConvergesFromEveryStep(t *testing.T) {
	for _, k := range killPoints {
		t.Run(k.step+"/"+map[bool]string{true: "removing", false: "creating"}[k.removing], func(t *testing.T) {
			t.Parallel()
			m := newMac(t)
			uid := uuid.NewString()
			cmd := exec.CommandContext(await.Context(t), os.Args[0], "agent-killed-at", k.step, programs, m.dir, uid, k.script)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal(), string(out))

			s := m.open()
			require.LessOrEqual(t, len(m.runners()), 1)
			if k.removing {
				require.NoError(t, s.Remove(t.Context(), uid))
				m.requireNothingOf(s, uid)
				return
			}
			pid := m.pid(uid)
			if k.begun {
				_, err := s.Inspect(t.Context(), uid)
				require.NoError(t, err)
			}
			m.converge(s, uid, k.script)
			if pid != 0 {
				require.Equal(t, pid, m.pid(uid), "what ran runs on")
			}
			ran, err := os.ReadFile(filepath.Join(m.status(uid), "ran"))
			require.NoError(t, err)
			require.Equal(t, "ran\n", string(ran), "the command ran once")
			m.finish(s, uid, k.script)
			m.requireNothingOf(s, uid)
		})
	}
}

// converge does what the node agent's worker does after a restart: it starts what is not on record.
func (m mac) converge(s *Sandbox, uid, script string) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	pod := podOf(uid)
	c := m.fill(pod, script)
	require.NoError(m.t, s.Prepare(ctx, pod))
	require.NoError(m.t, s.Start(ctx, pod, c))
	require.Eventually(m.t, func() bool {
		_, err := os.Stat(filepath.Join(m.status(uid), "ran"))
		return err == nil
	}, patience, 5*time.Millisecond)
	if script == endsOnce {
		return
	}
	require.Eventually(m.t, func() bool { return m.Settled(uid, "") }, patience, 5*time.Millisecond)
	require.Equal(m.t, []string{m.vm(uid)}, m.runners())
	s.slots.read(func(l *ledger) { require.Equal(m.t, map[string]bool{uid: true}, l.held) })
}

// finish ends the runner, hears how it ended, and removes the pod.
func (m mac) finish(s *Sandbox, uid, script string) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	want := int32(7)
	if script == runsOnce {
		want = 143
		require.NoError(m.t, s.Signal(ctx, uid, runnerpod.ContainerRunner, sandbox.Terminate))
	}
	exit, err := s.Wait(ctx, uid, runnerpod.ContainerRunner)
	require.NoError(m.t, err)
	require.Equal(m.t, want, exit.Code, "%+v", exit)
	require.False(m.t, exit.Unknown)
	require.NoError(m.t, s.Remove(ctx, uid))
}

// requireNothingOf requires that nothing of a pod is left: no machine, no process, no file, no slot.
func (m mac) requireNothingOf(s *Sandbox, uid string) {
	m.t.Helper()
	require.Empty(m.t, m.runners())
	_, err := s.Inspect(m.t.Context(), uid)
	require.ErrorIs(m.t, err, sandbox.ErrNotFound)
	s.slots.read(func(l *ledger) { require.Empty(m.t, l.held) })
	out, err := exec.CommandContext(await.Context(m.t), "ps", "-A", "-o", "args=").Output()
	require.NoError(m.t, err)
	for line := range strings.Lines(string(out)) {
		require.NotContains(m.t, line, uid)
	}
	volumes := filepath.Join(m.dir, "volumes")
	err = filepath.WalkDir(m.dir, func(path string, _ os.DirEntry, err error) error {
		if strings.Contains(filepath.Base(path), uid) && !strings.HasPrefix(path, volumes) {
			err = errors.Join(err, fmt.Errorf("%s is left", path))
		}
		return err
	})
	require.NoError(m.t, err)
}
