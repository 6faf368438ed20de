package runner

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// chunkSize is when a growing log is uploaded without waiting for the clock.
	chunkSize = 256 << 10
	// maxBuffered bounds what a log may grow by while the service is slow; the rest is dropped, and said.
	maxBuffered = 16 << 20
	uploadTries = 3
	// uploadPatience is how long the end of a job waits for its logs.
	uploadPatience = 60 * time.Second
)

// uploader sends logs and the state of steps to the Results service from one goroutine, in order. It does so as well
// as it can: what it cannot send is dropped with a warning, and never fails a job.
type uploader struct {
	service *results
	feed    *feed
	log     *slog.Logger
	masks   *masker
	now     func() time.Time
	after   func(time.Duration) <-chan time.Time
	every   time.Duration

	wake chan struct{}
	done chan struct{}
	stop context.CancelFunc

	mu        sync.Mutex
	logs      []*jobLog
	steps     []stepUpdate // changed since the last update
	order     int
	summaries []summary
	closed    bool
}

type summary struct {
	step string
	data []byte
}

// jobLog is the log of a step, or of the whole job when step is empty. Only the uploader touches its fields.
type jobLog struct {
	step    string
	buffer  bytes.Buffer
	lines   int64
	started bool     // its first chunk was sent
	live    []string // lines that the feed has not sent
	unsent  int64    // the number of the first of them
	final   bool     // nothing more will be written
	sent    bool     // its last chunk was sent
	dropped bool
}

func newUploader(service *results, live *feed, r *Runner, masks *masker) *uploader {
	ctx, stop := context.WithCancel(context.Background())
	u := &uploader{
		service: service, feed: live, log: r.opts.Log, masks: masks, now: r.opts.Now, after: r.opts.After, every: r.opts.FlushEvery,
		wake: make(chan struct{}, 1), done: make(chan struct{}), stop: stop,
	}
	u.logs = []*jobLog{{}} // the job's own log
	go u.loop(ctx)
	return u
}

// open begins the log of a step.
func (u *uploader) open(step string) *jobLog {
	u.mu.Lock()
	defer u.mu.Unlock()
	l := &jobLog{step: step}
	u.logs = append(u.logs, l)
	return l
}

// line writes one line to a step's log and the job's.
func (u *uploader) line(l *jobLog, text string) {
	text = u.masks.mask(text)
	live := text
	text = u.now().UTC().Format("2006-01-02T15:04:05.0000000Z") + " " + text + "\n"
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(l.live) == 0 {
		l.unsent = l.lines + 1
	}
	if u.feed.address != "" && len(l.live) < maxUnsent {
		l.live = append(l.live, live)
	}
	for _, log := range []*jobLog{u.logs[0], l} {
		switch {
		case log.dropped:
		case log.buffer.Len() > maxBuffered:
			log.dropped = true
			log.buffer.WriteString("##[warning]The rest of this log was dropped: it could not be uploaded as fast as it grew.\n")
		default:
			log.buffer.WriteString(text)
			log.lines++
		}
		if log.buffer.Len() >= chunkSize {
			u.poke()
		}
	}
}

// finish reports that nothing more will be written to a step's log.
func (u *uploader) finish(l *jobLog) {
	u.mu.Lock()
	defer u.mu.Unlock()
	l.final = true
	u.poke()
}

// update announces the new state of a step; only the latest of several is sent.
func (u *uploader) update(s stepUpdate) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.steps {
		if u.steps[i].ExternalID == s.ExternalID {
			u.steps[i] = s
			u.poke()
			return
		}
	}
	u.steps = append(u.steps, s)
	u.poke()
}

func (u *uploader) summary(step string, data []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.summaries = append(u.summaries, summary{step, data})
	u.poke()
}

// poke wakes the loop; one wake-up in store is enough.
func (u *uploader) poke() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// close finishes every log and waits until all is sent, or until patience ends.
func (u *uploader) close() {
	u.mu.Lock()
	u.closed = true
	for _, l := range u.logs {
		l.final = true
	}
	u.poke()
	u.mu.Unlock()
	select {
	case <-u.done:
	case <-u.after(uploadPatience):
		u.log.Warn("giving up on the rest of the logs")
	}
	u.stop()
	<-u.done
}

func (u *uploader) loop(ctx context.Context) {
	defer close(u.done)
	defer u.feed.close()
	u.feed.connect(ctx)
	var tick <-chan time.Time
	for {
		due := false
		if tick == nil {
			tick = u.after(u.every)
		}
		select {
		case <-u.wake:
		case <-tick:
			due, tick = true, nil
		case <-ctx.Done():
			return
		}
		if u.send(ctx, due) {
			return
		}
	}
}

// send sends what is ready and reports whether that was the last. due means that growing logs are sent too.
func (u *uploader) send(ctx context.Context, due bool) (last bool) {
	u.mu.Lock()
	steps, summaries := u.steps, u.summaries
	u.steps, u.summaries = nil, nil
	if len(steps) > 0 {
		u.order++
	}
	order, last := u.order, u.closed
	var chunks []chunk
	var live []feedLines
	for _, l := range append(u.logs[1:len(u.logs):len(u.logs)], u.logs[0]) { // the job's own log comes last, as GitHub's runner has it
		if len(l.live) > 0 {
			live = append(live, feedLines{Count: len(l.live), Value: l.live, StepID: l.step, StartLine: l.unsent})
			l.live = nil
		}
		if c, ok := l.next(due); ok {
			chunks = append(chunks, c)
		}
	}
	u.mu.Unlock()
	for _, lines := range live {
		u.feed.send(ctx, lines)
	}
	if u.service.url == "" {
		return last // a job without a Results service has no log
	}
	u.upload(ctx, chunks, summaries)
	if len(steps) > 0 {
		u.try(ctx, func() error { return u.service.updateSteps(ctx, order, steps) })
	}
	return last
}

// upload sends logs, and before each the summary of its step: the order in which GitHub's runner has them.
func (u *uploader) upload(ctx context.Context, chunks []chunk, summaries []summary) {
	send := func(s summary) {
		u.try(ctx, func() error { return u.service.uploadSummary(ctx, s.step, s.data) })
	}
	for _, c := range chunks {
		summaries = slices.DeleteFunc(summaries, func(s summary) bool {
			if s.step == c.step {
				send(s)
			}
			return s.step == c.step
		})
		u.try(ctx, func() error { return u.service.uploadLog(ctx, c) })
	}
	for _, s := range summaries {
		send(s)
	}
}

// next returns the part of a log to send now.
func (l *jobLog) next(due bool) (chunk, bool) {
	if l.sent || (!l.final && (l.buffer.Len() == 0 || (!due && l.buffer.Len() < chunkSize))) {
		return chunk{}, false
	}
	c := chunk{step: l.step, data: bytes.Clone(l.buffer.Bytes()), first: !l.started, last: l.final, lines: l.lines}
	l.buffer.Reset()
	l.started, l.sent = true, l.final
	return c, true
}

func (u *uploader) try(ctx context.Context, send func() error) {
	for try := 1; ; try++ {
		err := send()
		if err == nil || ctx.Err() != nil {
			return
		}
		if try == uploadTries {
			u.log.Warn("uploading to the Results service failed", "error", err, "tries", try)
			return
		}
		select {
		case <-u.after(time.Second << (try - 1)):
		case <-ctx.Done():
			return
		}
	}
}
