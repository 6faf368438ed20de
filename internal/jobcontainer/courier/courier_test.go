package courier

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

type pod struct {
	t    *testing.T
	key  *letter.PrivateKey
	dir  string
	lock *os.File
}

func newPod(t *testing.T) *pod {
	key, err := letter.NewPrivateKey()
	require.NoError(t, err)
	return &pod{t: t, key: key, dir: t.TempDir()}
}

func (p *pod) client() Client {
	return Client{Dir: p.dir, PublicKey: p.key.Public(), Wait: await.Limit, Every: time.Millisecond}
}

// supervise takes the lock of the runner's supervisor.
func (p *pod) supervise() {
	file, err := os.Create(p.lockFile())
	require.NoError(p.t, err)
	require.NoError(p.t, syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	p.lock = file
	p.t.Cleanup(func() { _ = file.Close() })
}

func (p *pod) lockFile() string    { return filepath.Join(p.dir, "lock") }
func (p *pod) messageFile() string { return filepath.Join(p.dir, "message") }

// courier runs a container of the pod; its end comes through the channel.
func (p *pod) courier(ctx context.Context, change func(*RunOptions)) <-chan error {
	o := RunOptions{Dir: p.dir, Lock: p.lockFile(), MessageFile: p.messageFile(), Limit: 4096, LookEvery: time.Millisecond}
	if change != nil {
		change(&o)
	}
	done := make(chan error, 1)
	go func() { done <- Run(ctx, o) }()
	return done
}

// request reads the termination message.
func (p *pod) request() jobcontainer.Request {
	content, err := os.ReadFile(p.messageFile())
	require.NoError(p.t, err)
	part, err := letter.ParsePart(string(content))
	require.NoError(p.t, err)
	require.Equal(p.t, part.Total, len(part.Text))
	request, err := p.key.Open(part.Text)
	require.NoError(p.t, err)
	return request
}

type answer struct {
	response jobcontainer.Response
	err      error
}

func (p *pod) ask(id string) <-chan answer {
	done := make(chan answer, 1)
	go func() {
		request := jobcontainer.Request{ID: id, Containers: []jobcontainer.Wanted{{Role: jobcontainer.RoleJob, Image: "alpine"}}}
		response, err := p.client().Ask(p.t.Context(), request)
		done <- answer{response, err}
	}()
	return done
}

func TestAsk_GetsTheResponseThatTheNextCourierBrings(t *testing.T) {
	p := newPod(t)
	p.supervise()
	first := p.courier(t.Context(), nil)
	asked := p.ask("a-1")
	require.NoError(t, await.Result(first, "the courier exits with the request"))
	require.Equal(t, "alpine", p.request().Containers[0].Image)

	want := jobcontainer.Response{ID: "a-1", Containers: []jobcontainer.Granted{{Role: jobcontainer.RoleJob, Name: "job-1-0"}}}
	second := p.courier(t.Context(), func(o *RunOptions) {
		o.Delivery = letter.Delivery{Responses: []jobcontainer.Response{want}, Failures: []letter.Failure{{Container: "job-1-0", Text: "no", Final: true}}}
	})
	got := await.Receive(t, asked, "the response")
	require.NoError(t, got.err)
	require.Equal(t, want, got.response)
	again := await.Receive(t, p.ask("a-1"), "the same once more") // JOB-4: nothing is sent again
	require.Equal(t, want, again.response)

	require.Eventually(t, func() bool { _, known := p.client().FailureOf("job-1-0"); return known }, await.Limit, time.Millisecond)
	failure, _ := p.client().FailureOf("job-1-0")
	require.Equal(t, letter.Failure{Container: "job-1-0", Text: "no", Final: true}, failure)
	_, known := p.client().FailureOf("../responses/a-1")
	require.False(t, known)

	asked = p.ask("a-2")
	require.NoError(t, await.Result(second, "and carries the next request"))
	require.Equal(t, "a-2", p.request().ID)
	await.Return(t, func() {
		p.courier(t.Context(), func(o *RunOptions) {
			o.DeliverOnly, o.Delivery = true, letter.Delivery{Responses: []jobcontainer.Response{{ID: "a-2", Refusal: "no"}}}
		})
	}, "deliver")
	require.Equal(t, "no", await.Receive(t, asked, "the refusal").response.Refusal)
}

// TEN-5: a courier must not keep a pod from ending.
func TestRun_JOB2_EndsWithItsRunnerAndWhenItIsStopped(t *testing.T) {
	p := newPod(t)
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	p.supervise()
	courier := p.courier(t.Context(), func(o *RunOptions) { o.Now = func() time.Time { noon = noon.Add(time.Minute); return noon } })
	require.NoError(t, p.lock.Close())
	require.NoError(t, await.Result(courier, "it exits with the runner"))
	require.NoFileExists(t, p.messageFile())

	ctx, stop := context.WithCancel(t.Context())
	p.supervise()
	courier, asked := p.courier(ctx, func(o *RunOptions) { o.Request = "other" }), p.ask("a-1")
	stop()
	require.NoError(t, await.Result(courier, "it exits when it is stopped"))
	got := await.Receive(t, asked, "a refusal")
	require.NoError(t, got.err)
	require.Equal(t, DeletedText, got.response.Refusal)
	require.NoError(t, await.Result(p.courier(t.Context(), nil), "a later one does not wait"))
}

// A lock that was just made is free for a moment.
func TestRun_WaitsForALockThatIsBeingMade(t *testing.T) {
	p := newPod(t)
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	require.NoError(t, os.WriteFile(p.lockFile(), nil, 0o600))
	looked := make(chan struct{}, 64)
	courier := p.courier(t.Context(), func(o *RunOptions) {
		o.Now = func() time.Time {
			select {
			case looked <- struct{}{}:
			default:
			}
			return noon
		}
	})
	for range 3 {
		await.Receive(t, looked, "it has found the lock free")
	}
	select {
	case <-courier:
		t.Fatal("it took a new lock for one that was released")
	default:
	}
	asked := p.ask("a-1")
	require.NoError(t, await.Result(courier, "it carries the request"))
	require.NoError(t, Close(p.dir, "over"))
	require.Equal(t, "over", await.Receive(t, asked, "the refusal").response.Refusal)
}

func TestRun_GoesOnWithARequest(t *testing.T) {
	p := newPod(t)
	p.supervise()
	require.NoError(t, prepare(p.dir))
	text, err := letter.Seal(jobcontainer.Request{ID: "b"}, p.key.Public())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, requestsDir, "a"), []byte("another"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, requestsDir, "b"), []byte(text), 0o600))
	var parts []letter.Part
	joined, whole := "", false
	for !whole {
		require.Less(t, len(parts), 10)
		require.NoError(t, await.Result(p.courier(t.Context(), func(o *RunOptions) { o.Request, o.From, o.Limit = "b", len(joined), 60 }), "a part"))
		content, err := os.ReadFile(p.messageFile())
		require.NoError(t, err)
		require.LessOrEqual(t, len(content), 60)
		part, err := letter.ParsePart(string(content))
		require.NoError(t, err)
		parts = append(parts, part)
		joined, whole = letter.Join("b", len(text), parts)
	}
	require.Equal(t, text, joined)
	require.Error(t, await.Result(p.courier(t.Context(), func(o *RunOptions) { o.Request, o.Limit = "b", 10 }), "too little room"))
}

// A job can write into the volume from the runner's container.
func TestRun_ReadsOnlyRequests(t *testing.T) {
	p := newPod(t)
	require.NoError(t, prepare(p.dir))
	requests := filepath.Join(p.dir, requestsDir)
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(requests, "a")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(requests, "b"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(requests, "c"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(requests, "d"), []byte(strings.Repeat("x", letter.MaxRequestText+1)), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(requests, "e"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(requests, "UPPER"), []byte("x"), 0o600))
	id, _ := nextRequest(p.dir, "")
	require.Empty(t, id)
	require.NoError(t, os.WriteFile(filepath.Join(requests, "f"), []byte("x"), 0o600))
	id, text := nextRequest(p.dir, "")
	require.Equal(t, [2]string{"f", "x"}, [2]string{id, text})
	require.Error(t, deliver(p.dir, letter.Delivery{Responses: []jobcontainer.Response{{ID: "../../x"}}}))
	require.NoFileExists(t, filepath.Join(filepath.Dir(p.dir), "x"))
}

func TestAsk_SaysWhatIsMissing(t *testing.T) {
	ctx, p := t.Context(), newPod(t)
	_, err := Client{Dir: p.dir}.Ask(ctx, jobcontainer.Request{ID: "a"})
	require.ErrorIs(t, err, ErrNotEnabled)
	_, err = p.client().Ask(ctx, jobcontainer.Request{ID: "../a"})
	require.ErrorContains(t, err, "no id of a request")
	short := p.client()
	short.Wait = time.Millisecond
	_, err = short.Ask(ctx, jobcontainer.Request{ID: "a"})
	require.ErrorIs(t, err, ErrNoResponse)
	stopped, stop := context.WithCancel(ctx)
	stop()
	_, err = p.client().Ask(stopped, jobcontainer.Request{ID: "a"})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, responsesDir, "a"), []byte("{"), 0o600))
	_, err = p.client().Ask(ctx, jobcontainer.Request{ID: "a"})
	require.ErrorContains(t, err, "reading the response")
	require.Error(t, Run(ctx, RunOptions{}))
}

func TestRun_WatchesWhereItCan(t *testing.T) {
	p := newPod(t)
	p.supervise()
	events, watched := make(chan struct{}), make(chan string, 1)
	courier := p.courier(t.Context(), func(o *RunOptions) {
		o.LookEvery = time.Hour
		o.Watch = func(dir string) (<-chan struct{}, func(), error) { watched <- dir; return events, func() {}, nil }
	})
	require.Equal(t, filepath.Join(p.dir, requestsDir), await.Receive(t, watched, "it watches"))
	asked := p.ask("a-1")
	require.Eventually(t, func() bool { id, _ := nextRequest(p.dir, ""); return id != "" }, await.Limit, time.Millisecond)
	close(events)
	require.NoError(t, await.Result(courier, "woken by the event"))
	require.NoError(t, Close(p.dir, "over"))
	await.Receive(t, asked, "the end of the request")
	failing := RunOptions{Watch: func(string) (<-chan struct{}, func(), error) { return nil, nil, errors.New("none left") }}
	failing.Log = slog.New(slog.DiscardHandler)
	events2, stop := failing.watch()
	stop()
	require.Nil(t, events2)
	require.Equal(t, 100*time.Millisecond, failing.lookEvery(false))
	require.Equal(t, 2*time.Second, failing.lookEvery(true))
}

// Other sentences close the volume, too: containers that were granted before then still start.
func TestDeleted_IsThePodsAlone(t *testing.T) {
	c := Client{Dir: t.TempDir()}
	_, deleted := c.Deleted()
	require.False(t, deleted)
	require.NoError(t, Close(c.Dir, "over"))
	_, deleted = c.Deleted()
	require.False(t, deleted)
	require.NoError(t, Close(c.Dir, DeletedText))
	sentence, deleted := c.Deleted()
	require.True(t, deleted)
	require.Equal(t, DeletedText, sentence)
}
