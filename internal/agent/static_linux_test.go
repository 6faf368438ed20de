package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// POOL-9: a job that runs when the stop comes is finished and reported, and no other is taken.
func TestStatic_POOL9_TheJobAtAStopIsTheLast(t *testing.T) {
	t.Parallel()
	s := newStaticContainer(t)
	s.start()
	s.await("online")
	s.touch("assign.%d", 1)
	s.await("working.1")
	s.stop()
	require.Contains(t, awaitLine(t, s.said, "asked to stop"), "is the last")
	s.touch("assign.%d", 2) // the next one is there before this one is over
	s.touch("finish.%d", 1)
	s.touch("report.%d", 1)
	require.Zero(t, s.code())
	require.FileExists(t, filepath.Join(s.dir, "reported.1"))
	require.NoFileExists(t, filepath.Join(s.dir, "cancelled.1"))
	require.NoFileExists(t, filepath.Join(s.dir, "took.2"))
	require.Error(t, Ready("", s.status), "it takes no job any more")
}

// The worker reports its job while its listener is held, however the stop and the job's end fall together.
func TestStatic_POOL9_StopAtAJobsEnd(t *testing.T) {
	t.Parallel()
	s := newStaticContainer(t)
	s.start()
	s.await("online")
	s.touch("assign.%d", 1)
	s.await("working.1")
	s.touch("finish.%d", 1)
	require.Eventually(t, func() bool { return exists(filepath.Join(s.status, "job-completed")) }, 20*time.Second, time.Millisecond)
	s.touch("assign.%d", 2)
	s.stop()
	require.Contains(t, awaitLine(t, s.said, "asked to stop"), "is the last")
	require.Eventually(t, func() bool { return s.listenerState() == "T" }, 20*time.Second, time.Millisecond)
	s.touch("report.%d", 1)
	require.Zero(t, s.code())
	require.FileExists(t, filepath.Join(s.dir, "reported.1"))
	require.NoFileExists(t, filepath.Join(s.dir, "took.2"))
}

// POOL-9: GitHub's responses that arrived while the listener was frozen are never read, however late an order to stop would be seen: a job
// that was acquired then would be cancelled.
func TestStatic_POOL9_AJobThatReachedTheSocketIsLeftToOthers(t *testing.T) {
	t.Parallel()
	s := newStaticContainer(t)
	touch(filepath.Join(s.dir, "answered"))
	s.start()
	s.await("online")
	s.touch("assign.%d", 1)
	s.await("working.1")
	s.stop()
	require.Contains(t, awaitLine(t, s.said, "asked to stop"), "is the last")
	s.touch("finish.%d", 1)
	require.Eventually(t, func() bool { return s.listenerState() == "T" }, 20*time.Second, time.Millisecond)
	s.touch("assign.%d", 2)
	s.touch("report.%d", 1)
	require.Zero(t, s.code())
	require.FileExists(t, filepath.Join(s.dir, "reported.1"))
	require.NoFileExists(t, filepath.Join(s.dir, "took.2"))
}

// A workflow that pretends that its last step is over holds its own listener, but not forever.
func TestStatic_POOL9_AHeldListenerIsLetGoInTime(t *testing.T) {
	t.Parallel()
	s := newStaticContainer(t)
	late := make(chan struct{})
	begun := time.Now()
	s.options.Now = func() time.Time {
		select {
		case <-late:
			return time.Now().Add(frozenAtMost + time.Second)
		default:
			return begun
		}
	}
	s.start()
	s.await("online")
	s.touch("assign.%d", 1)
	s.await("working.1")
	touch(filepath.Join(s.status, "job-completed"))
	s.stop()
	require.Eventually(t, func() bool { return s.listenerState() == "T" }, 20*time.Second, time.Millisecond)
	close(late)
	awaitLine(t, s.said, "the runner continues")
	require.Eventually(t, func() bool { return s.listenerState() != "T" }, 20*time.Second, time.Millisecond)
	s.touch("finish.%d", 1)
	s.touch("report.%d", 1)
	s.await("reported.1")
	s.end()
	require.FileExists(t, filepath.Join(s.dir, "reported.1"))
	require.NoFileExists(t, filepath.Join(s.dir, "cancelled.1"))
}

// listenerState is the state of the process that started this container's worker.
func (s *staticContainer) listenerState() string {
	for _, worker := range processes() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", worker.pid))
		if worker.name != "Runner.Worker" || !strings.Contains(string(line), "=static-worker "+s.dir) {
			continue
		}
		for _, p := range processes() {
			if p.pid == worker.parent {
				return p.state
			}
		}
	}
	return ""
}

// RECV-5: a disk that was full when a job ended, or a workflow that cleared the directory, leaves no runner that looks busy
// forever.
func TestStatic_RECV5_WhatSaysThatItIsIdleComesBack(t *testing.T) {
	t.Parallel()
	s := newStaticContainer(t)
	s.start()
	s.await("online")
	require.NoError(t, os.Remove(filepath.Join(s.status, "runner.jobless")))
	s.touch("assign.%d", 1)
	s.await("working.1")
	s.ready(false)
	s.touch("finish.%d", 1)
	s.touch("report.%d", 1)
	s.ready(true)
	require.NoError(t, os.Remove(filepath.Join(s.status, "runner.jobless")))
	s.ready(true)
	s.end()
}
