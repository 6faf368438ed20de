package kubeletapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"k8s.io/utils/clock"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// logRequest is what of a log is asked for.
type logRequest struct {
	follow, timestamps bool
	tail               int64 // lines; negative: all
	limit              int64 // bytes; negative: all
	since              time.Time
}

// parseLogRequest reads what kubectl's users say as --follow, --tail, --since, --since-time, --timestamps and --limit-bytes. The
// error is a sentence for them.
func parseLogRequest(query url.Values, now time.Time) (logRequest, error) {
	request := logRequest{tail: -1, limit: -1}
	flags := map[string]*bool{"follow": &request.follow, "timestamps": &request.timestamps, "previous": new(bool)}
	for name, into := range flags {
		if text := query.Get(name); text != "" {
			value, err := strconv.ParseBool(text)
			if err != nil {
				return request, fmt.Errorf("%s=%q: true or false", name, text)
			}
			*into = value
		}
	}
	if *flags["previous"] {
		return request, errors.New("no previous container: containers are never restarted on this node")
	}
	if stream := query.Get("stream"); stream != "" && stream != "All" {
		return request, fmt.Errorf("stream=%q: this node keeps standard output and error together", stream)
	}
	tail := query.Get("tailLines")
	if old := query.Get("tail"); tail == "" && old != "all" {
		tail = old
	}
	seconds := int64(0)
	numbers := map[string]struct {
		text string
		into *int64
		from int64
	}{
		"tailLines": {tail, &request.tail, 0}, "limitBytes": {query.Get("limitBytes"), &request.limit, 1},
		"sinceSeconds": {query.Get("sinceSeconds"), &seconds, 1},
	}
	for name, number := range numbers {
		if number.text == "" {
			continue
		}
		value, err := strconv.ParseInt(number.text, 10, 64)
		if err != nil || value < number.from {
			return request, fmt.Errorf("%s=%q: a whole number of %d or more", name, number.text, number.from)
		}
		*number.into = value
	}
	if seconds > 0 {
		request.since = now.Add(-time.Duration(min(seconds, maxSeconds)) * time.Second)
	}
	if text := query.Get("sinceTime"); text != "" {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil || seconds > 0 {
			return request, fmt.Errorf("sinceTime=%q: a time such as 2006-01-02T15:04:05Z, and no sinceSeconds beside it", text)
		}
		request.since = at
	}
	return request, nil
}

// maxSeconds is a century, which no duration overflows at.
const maxSeconds = 100 * 365 * 24 * 60 * 60

// lookInterval is the polling interval of a log that is followed.
const lookInterval = 250 * time.Millisecond

func (s *Server) serveLogs(w http.ResponseWriter, r *http.Request) {
	request, err := parseLogRequest(r.URL.Query(), s.opts.Clock.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	t, state, begun := s.target(w, r)
	if !begun {
		return
	}
	log, err := s.opts.Sandbox.OpenLog(t.uid, t.container)
	if err != nil {
		s.unanswered(w, r, "the log could not be opened", err)
		return
	}
	defer func() { _ = log.Close() }()
	start, err := firstByte(log, request)
	if err != nil {
		s.unanswered(w, r, "the log could not be read", err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	out := &logWriter{to: w, left: request.limit}
	if request.timestamps {
		out.times = &lineTimes{log: log, begun: state.StartedAt, now: s.opts.Clock.Now}
	}
	err = s.copyLog(r.Context(), t, log, start, request.follow, out)
	if err != nil && !errors.Is(err, errEnough) && r.Context().Err() == nil {
		s.opts.Log.Warn("sending a log failed", "namespace", t.namespace, "pod", t.pod, "container", t.container, "error", err)
	}
}

// copyLog sends the log from an offset to its end and, if it is followed, what is added until the container has ended.
func (s *Server) copyLog(ctx context.Context, t target, log sandbox.Log, offset int64, follow bool, out *logWriter) error {
	var ended <-chan struct{}
	if follow {
		waiting, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = s.opts.Sandbox.Wait(waiting, t.uid, t.container) // also when the pod is gone, or we are
		}()
		defer func() {
			stop()
			<-done
		}()
		ended = done
	}
	var tick clock.Ticker
	for {
		over := !follow
		select {
		case <-ended: // what is there now is all there will be
			over = true
		default:
		}
		next, err := out.copy(log, offset)
		if err != nil || over {
			return err
		}
		offset = next
		if tick == nil {
			tick = s.opts.Clock.NewTicker(lookInterval)
			defer tick.Stop()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ended:
		case <-tick.C():
		}
	}
}

// firstByte is where what is asked for begins, always at the beginning of a line.
func firstByte(log sandbox.Log, request logRequest) (start int64, err error) {
	size, err := log.Size()
	if err != nil {
		return 0, err
	}
	if !request.since.IsZero() {
		at, err := log.OffsetAt(request.since)
		if err != nil {
			return 0, err
		}
		if start = size; at < size {
			if start, err = afterNewline(log, at, 1); err != nil {
				return 0, err
			}
		}
	}
	if request.tail >= 0 {
		at, err := lastLines(log, size, request.tail)
		if err != nil {
			return 0, err
		}
		start = max(start, at)
	}
	return start, nil
}

// lastLines is where the last n lines of a log of that size begin. A line that is not complete yet is one, too.
func lastLines(log sandbox.Log, size, n int64) (int64, error) {
	if n == 0 || size == 0 {
		return size, nil
	}
	last := make([]byte, 1)
	if _, err := log.ReadAt(last, size-1); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if last[0] == '\n' { // it ends the last line, and begins none
		size--
	}
	return afterNewline(log, size, n)
}

// chunk is how much of a log is read at once.
const chunk = 32 << 10

// afterNewline is the offset behind the n-th newline before end, counted backwards; 0 when there are fewer.
func afterNewline(log sandbox.Log, end, n int64) (int64, error) {
	buffer := make([]byte, chunk)
	for end > 0 {
		begin := max(0, end-chunk)
		read, err := log.ReadAt(buffer[:end-begin], begin)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for i := read - 1; i >= 0; i-- {
			if buffer[i] != '\n' {
				continue
			}
			if n--; n == 0 {
				return begin + int64(i) + 1, nil
			}
		}
		end = begin
	}
	return 0, nil
}

// errEnough reports that as many bytes were sent as were asked for.
var errEnough = errors.New("as much was sent as was asked for")

// logWriter sends parts of a log, with times in front of lines if it has them.
type logWriter struct {
	to      http.ResponseWriter
	left    int64 // bytes; negative: no limit
	times   *lineTimes
	midLine bool
}

// copy sends everything from the offset to the log's end, and returns that.
func (w *logWriter) copy(log sandbox.Log, offset int64) (int64, error) {
	buffer := make([]byte, chunk)
	sent := false
	for {
		n, err := log.ReadAt(buffer, offset)
		if n > 0 {
			if err := w.send(buffer[:n], offset); err != nil {
				return offset, err
			}
			offset += int64(n)
			sent = true
		}
		switch {
		case errors.Is(err, io.EOF):
			if !sent {
				return offset, nil
			}
			return offset, http.NewResponseController(w.to).Flush()
		case err != nil:
			return offset, err
		}
	}
}

func (w *logWriter) send(part []byte, offset int64) error {
	if w.times == nil {
		return w.write(part)
	}
	for len(part) > 0 {
		if !w.midLine {
			at, err := w.times.at(offset)
			if err != nil {
				return err
			}
			if err := w.write([]byte(at.UTC().Format(time.RFC3339Nano) + " ")); err != nil {
				return err
			}
		}
		line := part
		if end := bytes.IndexByte(part, '\n'); end >= 0 {
			line = part[:end+1]
		}
		w.midLine = line[len(line)-1] != '\n'
		if err := w.write(line); err != nil {
			return err
		}
		part, offset = part[len(line):], offset+int64(len(line))
	}
	return nil
}

func (w *logWriter) write(part []byte) error {
	enough := w.left >= 0 && int64(len(part)) >= w.left
	if enough {
		part = part[:w.left]
	}
	if _, err := w.to.Write(part); err != nil {
		return err
	}
	if w.left >= 0 {
		w.left -= int64(len(part))
	}
	if enough {
		return errEnough
	}
	return nil
}

// lineTimes says when lines were written, as exactly as the log knows. It is asked about offsets that never fall.
type lineTimes struct {
	log   sandbox.Log
	begun time.Time
	now   func() time.Time

	last time.Time
	upTo int64 // what was written at last ends here
}

// timeStep is how exactly times are looked for.
const timeStep = time.Millisecond

// at is the last time from which on the log has what is at the offset: when that was written.
func (l *lineTimes) at(offset int64) (time.Time, error) {
	if offset < l.upTo {
		return l.last, nil
	}
	low, high := l.begun, l.now().Add(timeStep)
	if l.last.After(low) {
		low = l.last
	}
	for high.Sub(low) > timeStep { // at low it counts, at high it does not
		middle := low.Add(high.Sub(low) / 2)
		at, err := l.log.OffsetAt(middle)
		if err != nil {
			return time.Time{}, err
		}
		if at <= offset {
			low = middle
		} else {
			high = middle
		}
	}
	next, err := l.log.OffsetAt(high)
	if err != nil {
		return time.Time{}, err
	}
	l.last, l.upTo = low, max(next, offset+1)
	return low, nil
}
