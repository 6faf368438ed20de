package steps

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// moves are the changes of a node agent's identity. An agent of another one knows nothing of the machines that run: it would report their pods
// failed, and end the session that they run in.
var moves = map[string]func(*machost.Config){
	"user":            func(c *machost.Config) { c.User = "runner" },
	"node":            func(c *machost.Config) { c.Node.Name = "mac-2" },
	"state directory": func(c *machost.Config) { c.Node.StateDir = "/Users/ci/elsewhere" },
}

// eachMove runs a test for each of them, on a host with a node agent.
func eachMove(t *testing.T, test func(t *testing.T, l *fakeLaunchd, moved machost.Config)) {
	for name, change := range moves {
		t.Run(name, func(t *testing.T) {
			l := newAgentHost(t)
			_, err := l.h.converge(l.step(agentConfig(), "token"))
			require.NoError(t, err)
			l.calls()
			moved := agentConfig()
			change(&moved)
			l.h.says("/usr/bin/defaults", moved.User+"\n") // the step auto-login is before this one
			test(t, l, moved)
		})
	}
}

// apply applies the step as an engine that counts that many machines beforehand.
func (l *fakeLaunchd) apply(ctx context.Context, c machost.Config, running int) (machost.Report, error) {
	return machost.Apply(ctx, machost.Options{
		Host: l.h, Steps: []machost.Step{l.step(c, "token")}, Busy: func(context.Context) (int, error) { return running, nil },
	})
}

const (
	aMachine = "/usr/local/bin/tart run bullpen-a --no-graphics\n"
	aPoller  = "/usr/local/bin/bullpen node shim /Users/ci/bullpen/pods/9f2/containers/poller\n"
)

func TestNodeAgent_NODE3_AnotherIdentityWaitsUntilNoMachineRuns(t *testing.T) {
	eachMove(t, func(t *testing.T, l *fakeLaunchd, moved machost.Config) {
		report, err := l.apply(t.Context(), moved, 2)
		require.ErrorIs(t, err, machost.ErrBusy)
		require.Equal(t, []string{"node-agent"}, report.Deferred)
		require.Empty(t, l.calls())
		require.Contains(t, l.h.content(NodePlist), "<string>mac-1</string>")

		changed, err := l.h.converge(l.step(moved, "token"))
		require.NoError(t, err)
		require.True(t, changed)
		require.Equal(t, "bootout enable bootstrap", l.calls())
		moved.Node.Memory = "20Gi"
		report, err = l.apply(t.Context(), moved, 2)
		require.NoError(t, err, "the same identity, other arguments")
		require.Equal(t, []string{"node-agent"}, report.Changed)
	})
}

// The agent of before starts a pod after the engine has counted, and until launchd has unloaded it.
func TestNodeAgent_NODE3_WhatStartsBeforeTheAgentIsUnloadedKeepsIt(t *testing.T) {
	for name, processes := range map[string]string{"a machine": aMachine, "a pod whose machine is being cloned": aPoller} {
		t.Run(name, func(t *testing.T) {
			eachMove(t, func(t *testing.T, l *fakeLaunchd, moved machost.Config) {
				job, bootstrap := l.h.content(NodePlist), l.h.content(bootstrapFile)
				l.onBootout = func() { l.h.says("/bin/ps", processes) }
				report, err := l.apply(t.Context(), moved, 0)
				require.ErrorIs(t, err, machost.ErrBusy)
				require.Equal(t, []string{"node-agent"}, report.Deferred)
				require.Equal(t, "bootout enable bootstrap", l.calls())
				require.Equal(t, job, l.h.content(NodePlist))
				require.Equal(t, bootstrap, l.h.content(bootstrapFile))
				require.True(t, l.loaded)

				report, err = l.apply(t.Context(), agentConfig(), 1)
				require.NoError(t, err, "the way back is open while its machines run")
				require.Equal(t, []string{"node-agent"}, report.Changed)
			})
		})
	}
}

// Nothing else would load the agent of before: it is what the pods need, whatever else fails.
func TestNodeAgent_NODE3_AnAgentWhosePodsCannotBeCountedIsLoadedAgain(t *testing.T) {
	eachMove(t, func(t *testing.T, l *fakeLaunchd, moved machost.Config) {
		ctx, cancel := context.WithCancel(t.Context())
		l.onBootout = cancel
		_, err := l.apply(ctx, moved, 0)
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, l.loaded)
		require.Contains(t, l.h.content(NodePlist), "<string>mac-1</string>")

		l.onBootout = nil
		l.h.fails("/bin/ps", 1, "no")
		_, err = l.apply(t.Context(), moved, 0)
		require.ErrorContains(t, err, "/bin/ps")
		require.NotErrorIs(t, err, machost.ErrBusy)
		require.True(t, l.loaded)
	})
}

// Virtual machines run while the node agent is reloaded. An apply that is interrupted finishes the reload first.
func TestNodeAgent_NODE3_AnInterruptedReloadLeavesAnAgent(t *testing.T) {
	l := newAgentHost(t)
	_, err := l.h.converge(l.step(agentConfig(), "token"))
	require.NoError(t, err)
	l.h.says("/bin/ps", aMachine)
	l.calls()
	c := agentConfig()
	c.Node.Memory = "20Gi"
	ctx, cancel := context.WithCancel(t.Context())
	l.onBootout = cancel
	_, err = l.apply(ctx, c, 1)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "bootout enable bootstrap", l.calls())
	require.True(t, l.loaded)
}

// An apply was killed that had unloaded the agent, and pods run.
func TestNodeAgent_NODE3_AnUnloadedAgentIsLoadedAgainWhileItsPodsRun(t *testing.T) {
	eachMove(t, func(t *testing.T, l *fakeLaunchd, moved machost.Config) {
		l.loaded = false
		l.h.says("/bin/ps", aMachine)
		_, err := l.apply(t.Context(), moved, 1)
		require.ErrorIs(t, err, machost.ErrBusy)
		require.Equal(t, "enable bootstrap", l.calls())
		require.Contains(t, l.h.content(NodePlist), "<string>mac-1</string>")
	})
}

// The disk is full, and only the agent could make room: by its runners, which it deletes.
func TestNodeAgent_NODE3_AnUnloadedAgentIsLoadedAgainThoughAnEarlierStepFails(t *testing.T) {
	eachMove(t, func(t *testing.T, l *fakeLaunchd, moved machost.Config) {
		l.loaded = false
		apply := func(c machost.Config, act func(context.Context, machost.Options) (machost.Report, error)) {
			t.Helper()
			_, err := act(t.Context(), machost.Options{Host: l.h, Steps: []machost.Step{fullPreflight{}, l.step(c, "token")}})
			require.ErrorContains(t, err, "no room")
		}
		apply(moved, machost.Plan)
		require.Empty(t, l.calls())
		off := moved
		off.Node.Off = true
		apply(off, machost.Apply)
		require.Empty(t, l.calls())

		apply(moved, machost.Apply)
		require.Equal(t, "enable bootstrap", l.calls())
		require.True(t, l.loaded)
		require.Contains(t, l.h.content(NodePlist), "<string>mac-1</string>")
		apply(moved, machost.Apply)
		require.Empty(t, l.calls())

		report, err := l.apply(t.Context(), agentConfig(), 1)
		require.NoError(t, err)
		require.Equal(t, []string{"node-agent"}, report.Changed, "HOST-5: the process was not seen to stay")

		l.loaded = false
		l.calls()
		require.NoError(t, l.h.Remove(NodePlist))
		apply(moved, machost.Apply)
		require.Empty(t, l.calls())
	})
}

type fullPreflight struct{ preflight }

func (fullPreflight) Check(context.Context, machost.Host) (machost.Diff, error) {
	return machost.Diff{}, errors.New("no room")
}

// The files of the new identity cannot be written: the agent of before serves with its own.
func TestNodeAgent_NODE3_AnAgentWhoseFilesCannotBeWrittenIsLoadedAgain(t *testing.T) {
	eachMove(t, func(t *testing.T, l *fakeLaunchd, moved machost.Config) {
		l.h.users(map[string]int{"ci": os.Geteuid(), "runner": 502})
		job := l.h.content(NodePlist)
		before, err := l.h.Stat(bootstrapFile)
		require.NoError(t, err)
		steps := []machost.Step{l.step(moved, "token")}
		_, err = machost.Apply(t.Context(), machost.Options{Host: fullDisk{l.h, NodePlist}, Steps: steps})
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.True(t, l.loaded)
		require.Equal(t, "bootout enable bootstrap", l.calls())
		require.Equal(t, job, l.h.content(NodePlist))
		after, err := l.h.Stat(bootstrapFile)
		require.NoError(t, err)
		require.Equal(t, before.UID, after.UID, "the agent of before reads it")

		changed, err := l.h.converge(steps[0])
		require.NoError(t, err)
		require.True(t, changed)
		require.True(t, l.loaded)
	})
}

func TestNodeAgent_HOST5_LaunchdMayRefuseAJobThatItHasJustUnloaded(t *testing.T) {
	l := newAgentHost(t)
	_, err := l.h.converge(l.step(agentConfig(), "token"))
	require.NoError(t, err)
	l.calls()
	c := agentConfig()
	c.Node.Memory = "20Gi"
	l.refuses = 1
	changed, err := l.h.converge(l.step(c, ""))
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, "bootout enable bootstrap enable bootstrap", l.calls())
}

// An agent of the new identity that does not stay up is launchd's from then on: it may start machines as soon as its cause is gone.
func TestNodeAgent_NODE3_AChangeThatFailedIsNoWayBackWhileMachinesRun(t *testing.T) {
	l := newAgentHost(t)
	_, err := l.h.converge(l.step(agentConfig(), "token"))
	require.NoError(t, err)
	c := agentConfig()
	c.Node.Name = "mac-2"
	l.lives = []time.Duration{time.Second}
	_, err = l.h.converge(l.step(c, "token"))
	require.Error(t, err)
	for name, disruptive := range map[string]bool{"mac-1": true, "mac-2": false} {
		c.Node.Name = name
		diff, err := l.step(c, "token").Check(t.Context(), l.h)
		require.NoError(t, err)
		require.NotEmpty(t, diff.Changes)
		require.Equal(t, disruptive, diff.Disruptive, "%v", diff.Changes)
	}
}

// The agent that runs could not open the log of another user again.
func TestLogRotation_NODE3_TheLogChangesItsOwnerWithTheAgent(t *testing.T) {
	l := newAgentHost(t)
	l.h.says(newsyslog, "")
	l.h.says("/usr/bin/defaults", "runner\n")
	l.h.users(map[string]int{"ci": 501, "runner": 502})
	steps := func(c machost.Config) []machost.Step {
		rotation, err := newLogRotation(machost.Payload{Config: c}, Facts{})
		require.NoError(t, err)
		return []machost.Step{rotation, l.step(c, "token")}
	}
	requireLogOf := func(uid int) {
		t.Helper()
		info, err := l.h.Stat(NodeLog)
		require.NoError(t, err)
		require.Equal(t, machost.Attributes{Mode: 0o644, UID: uid, GID: 20}, info.Attributes)
		require.Equal(t, "said\n", l.h.content(NodeLog))
		require.Contains(t, l.h.content(newsyslogFile), "\t"+itoa(uid)+":20\t")
	}
	_, err := machost.Apply(t.Context(), machost.Options{Host: l.h, Steps: steps(agentConfig())})
	require.NoError(t, err)
	require.NoError(t, l.h.WriteFile(NodeLog, strings.NewReader("said\n"), machost.Attributes{Mode: 0o644, UID: 501, GID: 20}))

	moved := agentConfig()
	moved.User = "runner"
	l.onBootout = func() { l.h.says("/bin/ps", aMachine) }
	running := -1 // a machine starts once it has been asked
	_, err = machost.Apply(t.Context(), machost.Options{Host: l.h, Steps: steps(moved), Busy: func(context.Context) (int, error) {
		running = min(running+1, 1)
		return running, nil
	}})
	require.ErrorIs(t, err, machost.ErrBusy)
	requireLogOf(501)
	l.onBootout = nil
	l.h.says("/bin/ps", "")
	report, err := machost.Apply(t.Context(), machost.Options{Host: l.h, Steps: steps(moved)})
	require.NoError(t, err)
	require.Equal(t, []string{"node-agent"}, report.Changed)
	requireLogOf(502)
	report, err = machost.Apply(t.Context(), machost.Options{Host: l.h, Steps: steps(moved)})
	require.NoError(t, err)
	require.Empty(t, report.Changed, "HOST-1")
	require.NoError(t, l.h.WriteFile(NodeLog, strings.NewReader("said\n"), machost.Attributes{Mode: 0o644, UID: os.Geteuid()}))
	report, err = machost.Apply(t.Context(), machost.Options{Host: l.h, Steps: steps(moved)})
	require.NoError(t, err)
	require.Equal(t, []string{"log-rotation"}, report.Changed)
	requireLogOf(502)
}

func TestRunning_CountsPodsAndMachines(t *testing.T) {
	for processes, want := range map[string]int{
		"":                 0,
		aMachine:           1,
		aPoller:            1,
		aMachine + aPoller: 1,
		aPoller + strings.ReplaceAll(aPoller, "poller", "runner.1"):                           1,
		aPoller + strings.ReplaceAll(aPoller, "9f2", "a01"):                                   2,
		"vim node shim /Users/ci/containers/poller/x\n/usr/local/bin/bullpen node --name a\n": 0,
	} {
		require.Equal(t, want, Running(processes, ""), processes)
	}
	require.Equal(t, 1, Running(aPoller, "/Users/ci/bullpen"))
	require.Zero(t, Running(aPoller, "/Users/ci/bull"), "of another state directory")
}
