//go:build unix

package tart

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// manyPods is how many pods TestManyPods takes through their lives; make scale-macos takes 2,000.
var manyPods = flag.Int("many-pods", 20, "how many pods TestManyPods takes through their lives")

// holdings is all that could leak.
type holdings struct {
	machines, goroutines, descriptors, files, processes int
}

func (m mac) holdings() holdings {
	m.t.Helper()
	var h holdings
	h.machines = len(m.vms())
	h.goroutines = runtime.NumGoroutine()
	fds, err := os.ReadDir("/dev/fd")
	require.NoError(m.t, err)
	h.descriptors = len(fds)
	h.files = len(m.files())
	out, err := exec.CommandContext(await.Context(m.t), "ps", "-A", "-o", "args=").Output()
	require.NoError(m.t, err)
	h.processes = strings.Count(string(out), m.dir)
	return h
}

func (h holdings) exceeds(before holdings) bool {
	return h.machines > before.machines || h.goroutines > before.goroutines || h.descriptors > before.descriptors ||
		h.files > before.files || h.processes > before.processes
}

func (m mac) files() map[string]bool {
	m.t.Helper()
	found := map[string]bool{}
	require.NoError(m.t, filepath.WalkDir(m.dir, func(path string, _ os.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it has just been removed
		}
		found[path] = true
		return err
	}))
	return found
}

func (m mac) newFiles(before map[string]bool) []string {
	var fresh []string
	for path := range m.files() {
		if !before[path] {
			fresh = append(fresh, path)
		}
	}
	return fresh
}

// Thousands of pods run on one agent, three at a time, which is one more than there are slots. Afterwards nothing is left of them.
func TestManyPods_LeakNothing(t *testing.T) {
	m := newMac(t)
	s := m.open()
	live := func(i int) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := m.live(ctx, s, i); err != nil {
			t.Errorf("pod %d: %v", i, err)
		}
	}
	for _, pod := range []*corev1.Pod{m.start(s, runs), m.start(s, runs)} { // both slots have been used before anything is counted
		require.NoError(t, s.Remove(t.Context(), string(pod.UID)))
	}
	live(0)
	before, files := m.holdings(), m.files()
	began := time.Now()
	next := make(chan int)
	var wg sync.WaitGroup
	for range MaxSlots + 1 {
		wg.Go(func() {
			for i := range next {
				live(i)
			}
		})
	}
	for i := range *manyPods {
		if t.Failed() {
			break
		}
		next <- i
		running := 0
		for _, vm := range m.runners() {
			if m.holder(vm) != 0 {
				running++
			}
		}
		if running > MaxSlots {
			t.Errorf("%d machines run", running)
		}
	}
	close(next)
	await.Return(t, wg.Wait, "all pods end")
	after := m.holdings()
	for deadline := time.Now().Add(10 * time.Second); after.exceeds(before) && time.Now().Before(deadline); after = m.holdings() {
		runtime.Gosched() // the last goroutines and processes are on their way out
	}
	require.False(t, after.exceeds(before), "before %+v, after %+v; new files: %v", before, after, m.newFiles(files))
	t.Logf("%d pods in %s; before %+v, after %+v", *manyPods, time.Since(began).Round(time.Second), before, after)
	require.Empty(t, s.minders)
	require.Empty(t, s.pods.held)
	require.Empty(t, s.writes.held)
	require.Empty(t, s.images.held)
	require.Empty(t, s.flights.aloft)
	s.slots.read(func(l *ledger) { require.Empty(t, l.held) })
}

// live takes one pod through its life.
func (m mac) live(ctx context.Context, s *Sandbox, i int) error {
	script, want := "exit 0", int32(0)
	switch i % 3 {
	case 1:
		script, want = "exit 7", 7
	case 2:
		script, want = "exec sleep 1000", 143
	}
	pod, c := m.newPod(script)
	uid := string(pod.UID)
	defer func() { _ = os.RemoveAll(filepath.Join(m.dir, "volumes", uid)) }()
	if err := s.Prepare(ctx, pod); err != nil {
		return err
	}
	var delayed *sandbox.DelayedError
	err := s.Start(ctx, pod, c)
	for errors.As(err, &delayed) && delayed.Reason == reasonNoSlot {
		err = s.Start(ctx, pod, c)
	}
	if err == nil && want == 143 {
		err = s.Signal(ctx, uid, runnerpod.ContainerRunner, sandbox.Terminate)
	}
	var exit sandbox.Exit
	if err == nil {
		exit, err = s.Wait(ctx, uid, runnerpod.ContainerRunner)
	}
	if err == nil && exit.Code != want {
		err = errors.New("it ended with another code: " + exit.Message)
	}
	return errors.Join(err, s.Remove(ctx, uid))
}
