package agent

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// recorded answers an acknowledgement in two parts, as the server does; between begins with the status on its way.
func recorded(between http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		between(w, r)
	}
}

// TEN-8: the supervisor gets the configuration when the answer to the acknowledgement has ended, and not before: then the pod has
// its label.
func TestPoll_TEN8_TheRunnerStartsAfterTheLabel(t *testing.T) {
	t.Parallel()
	d := newDispatcher(t, reply(200, jitReply))
	acknowledged, labelled := make(chan struct{}), make(chan struct{})
	d.ack = recorded(func(http.ResponseWriter, *http.Request) { close(acknowledged); await.OrEnd(t, labelled) })
	c := newContainer(t, "exit 7")
	var looks atomic.Int64
	c.options.Now = func() time.Time { looks.Add(1); return time.Unix(0, 0) }
	c.start()
	c.await("runner.idle")
	p := newPod(t, d)
	p.options.JITFile, p.options.AcknowledgeWait = c.options.JITFile, time.Minute
	ended := make(chan error, 1)
	go func() { ended <- Poll(await.Context(t), p.options) }()
	await.Receive(t, acknowledged, "the configuration is acknowledged")
	require.FileExists(t, c.options.JITFile+".staged", "what is acknowledged is there")
	seen := looks.Load()
	require.Eventually(t, func() bool {
		touch(filepath.Join(c.dir, "something"))
		return looks.Load() > seen+2
	}, 20*time.Second, time.Millisecond, "the supervisor looks at what is staged")
	require.NoFileExists(t, c.options.JITFile+".taken", "the runner was started before its label")
	close(labelled)
	require.NoError(t, await.Receive(t, ended, "the poller returns"))
	require.Equal(t, 7, c.code())
	require.NoFileExists(t, c.options.JITFile+".staged")
}

// TEN-8: a network layer that cuts the pod off at its label cuts the answer, whose status is known by then. Nothing is retried, and nothing
// waited for.
func TestPoll_TEN8_AnAnswerThatTheLabelCutIsAnEnd(t *testing.T) {
	t.Parallel()
	d := newDispatcher(t, reply(200, jitReply))
	d.ack = recorded(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	p := newPod(t, d)
	p.options.AcknowledgeWait = time.Hour
	require.NoError(t, Poll(await.Context(t), p.options))
	require.Equal(t, []int64{7}, d.acknowledged())
	require.Empty(t, p.waits)
	require.FileExists(t, p.options.JITFile)
}

// TEN-8: a server that does not answer, or does not end its answer, keeps no job waiting for longer than the bound.
func TestPoll_TEN8_NoJobWaitsForEver(t *testing.T) {
	t.Parallel()
	silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, ack := range map[string]http.HandlerFunc{"no answer": silent, "no end": recorded(silent)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDispatcher(t, reply(200, jitReply))
			d.ack = ack
			p := newPod(t, d)
			p.options.AcknowledgeWait = 20 * time.Millisecond
			require.NoError(t, Poll(await.Context(t), p.options))
			require.Len(t, d.acknowledged(), 1)
			require.FileExists(t, p.options.JITFile)
			require.NoFileExists(t, p.options.JITFile+".staged")
		})
	}
}

// A poller that is started again after it had stored a configuration releases it, and asks for no other.
func TestPoll_CLAIM7_AnotherStartReleasesWhatWasStaged(t *testing.T) {
	t.Parallel()
	d := newDispatcher(t)
	p := newPod(t, d)
	touch(p.options.JITFile+".staged", jitText)
	require.NoError(t, Poll(await.Context(t), p.options))
	require.Zero(t, d.pollCount())
	require.FileExists(t, p.options.JITFile)
}

// TEN-8: a poller that dies between staging and release costs no job: the supervisor takes what is staged, once, after a while.
func TestSupervise_TEN8_TakesWhatADeadPollerLeftStaged(t *testing.T) {
	t.Parallel()
	for name, apart := range map[string]bool{"one directory": false, "a directory that it only reads": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newContainer(t, "exit 7")
			if apart {
				c.options.StatusDir = t.TempDir()
			}
			var passed, looks atomic.Int64
			c.options.Now = func() time.Time { looks.Add(1); return time.Unix(0, passed.Load()) }
			staged := c.options.JITFile + ".staged"
			require.NoError(t, stage(staged, []byte(jitText), owner{-1, -1}))
			c.start()
			for _, at := range []time.Duration{0, releasePatience - 1} {
				passed.Store(int64(at))
				seen := looks.Load()
				require.Eventually(t, func() bool {
					touch(filepath.Join(c.dir, "something"))
					return looks.Load() > seen+2
				}, 20*time.Second, time.Millisecond, "it looks")
				require.FileExists(t, staged, "its poller may be waiting for the label")
				require.Empty(t, c.ended)
			}
			passed.Store(int64(releasePatience))
			touch(filepath.Join(c.dir, "something"))
			require.Equal(t, 7, c.code())
			f := filesIn(c.options.JITFile, c.options.StatusDir)
			require.FileExists(t, f.taken)
			require.NoError(t, f.release(), "a poller that was only slow")
			require.NoFileExists(t, c.options.JITFile)
			require.NoFileExists(t, staged)
			require.Error(t, Supervise(context.WithoutCancel(t.Context()), c.options), "it is started once")
		})
	}
}

// A configuration that is released while the supervisor takes it as it is staged is read where it is.
func TestSupervise_TEN8_ReadsWhatIsReleasedWhileItWaits(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "exit 0")
	s := &supervisor{SuperviseOptions: c.options, files: filesIn(c.options.JITFile, t.TempDir())}
	s.files.jit = s.files.staged
	require.NoError(t, os.WriteFile(c.options.JITFile, []byte(jitText), 0o600))
	got, err := s.read()
	require.NoError(t, err)
	require.Equal(t, jitText, string(got))
}
