package kubeletapi

import (
	"io"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// written is a log whose lines were written at known times.
type written struct {
	text   string
	pieces []piece
}

type piece struct {
	at   time.Time
	from int64
}

func (w *written) write(at time.Time, text string) {
	w.pieces = append(w.pieces, piece{at, int64(len(w.text))})
	w.text += text
}

func (w *written) ReadAt(p []byte, off int64) (int, error) {
	return strings.NewReader(w.text).ReadAt(p, off)
}
func (w *written) Size() (int64, error) { return int64(len(w.text)), nil }
func (w *written) Close() error         { return nil }

func (w *written) OffsetAt(t time.Time) (int64, error) {
	for _, p := range w.pieces {
		if !p.at.Before(t) {
			return p.from, nil
		}
	}
	return int64(len(w.text)), nil
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func second(n int) time.Time { return epoch.Add(time.Duration(n) * time.Second) }

func TestParseLogRequest(t *testing.T) {
	none := logRequest{tail: -1, limit: -1}
	for query, want := range map[string]logRequest{
		"":                               none,
		"follow=true&timestamps=true":    {follow: true, timestamps: true, tail: -1, limit: -1},
		"tailLines=0&limitBytes=1":       {tail: 0, limit: 1},
		"tail=all&stream=All":            none,
		"tail=7&previous=false":          {tail: 7, limit: -1},
		"sinceSeconds=5":                 {tail: -1, limit: -1, since: second(-5)},
		"sinceTime=2026-01-02T03:04:06Z": {tail: -1, limit: -1, since: second(1)},
	} {
		values, err := url.ParseQuery(query)
		require.NoError(t, err)
		got, err := parseLogRequest(values, epoch)
		require.NoError(t, err, query)
		require.True(t, want.since.Equal(got.since), query)
		got.since = want.since
		require.Equal(t, want, got, query)
	}
	for query, says := range map[string]string{
		"previous=true":    "no previous container",
		"follow=perhaps":   "true or false",
		"stream=Stderr":    "together",
		"tailLines=-1":     "0 or more",
		"limitBytes=0":     "1 or more",
		"sinceSeconds=0":   "1 or more",
		"sinceSeconds=ten": "1 or more",
		"sinceTime=noon":   "a time such as",
		"sinceTime=2026-01-02T03:04:06Z&sinceSeconds=1": "no sinceSeconds beside it",
	} {
		values, err := url.ParseQuery(query)
		require.NoError(t, err)
		_, err = parseLogRequest(values, epoch)
		require.ErrorContains(t, err, says, query)
	}
}

func TestFirstByte(t *testing.T) {
	log := &written{}
	log.write(second(1), "one\ntwo\nthr")
	log.write(second(2), "ee\nfour")
	for _, test := range []struct {
		tail  int64
		since time.Time
		want  string
	}{
		{-1, time.Time{}, "one\ntwo\nthree\nfour"},
		{0, time.Time{}, ""},
		{1, time.Time{}, "four"},
		{2, time.Time{}, "three\nfour"},
		{9, time.Time{}, "one\ntwo\nthree\nfour"},
		{-1, second(1), "one\ntwo\nthree\nfour"},
		{-1, second(2), "three\nfour"}, // never half a line
		{-1, second(3), ""},
		{1, second(2), "four"},
		{9, second(2), "three\nfour"},
	} {
		start, err := firstByte(log, logRequest{tail: test.tail, limit: -1, since: test.since})
		require.NoError(t, err)
		require.Equal(t, test.want, log.text[start:], "%+v", test)
	}
	start, err := firstByte(&written{}, logRequest{tail: 5, since: second(1)})
	require.NoError(t, err)
	require.Zero(t, start)
}

// The last lines are the last lines, however they lie in the chunks that are read.
func TestLastLines_AsSplittingWouldHaveIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 7, chunk - 1, chunk, chunk + 1}), 0, 6).Draw(t, "lengths")
		ended := rapid.Bool().Draw(t, "ended")
		n := rapid.IntRange(1, 8).Draw(t, "n")
		var lines []string
		for _, length := range lengths {
			lines = append(lines, strings.Repeat("x", length)+"\n")
		}
		if !ended {
			lines = append(lines, "y")
		}
		log := &written{text: strings.Join(lines, "")}
		at, err := lastLines(log, int64(len(log.text)), int64(n))
		require.NoError(t, err)
		require.Equal(t, strings.Join(lines[max(0, len(lines)-n):], ""), log.text[at:])
	})
}

func send(t *testing.T, log *written, w *logWriter, from int64) string {
	t.Helper()
	recorder := httptest.NewRecorder()
	w.to = recorder
	if _, err := w.copy(log, from); err != nil {
		require.ErrorIs(t, err, errEnough)
	}
	body, err := io.ReadAll(recorder.Result().Body)
	require.NoError(t, err)
	return string(body)
}

func TestTimestampsStandBeforeEachLine(t *testing.T) {
	log := &written{}
	log.write(second(1), "one\ntwo\n")
	log.write(second(61), "three")
	times := &lineTimes{log: log, begun: epoch, now: func() time.Time { return second(3600) }}
	w := &logWriter{left: -1, times: times}
	sent := send(t, log, w, 0)
	var lines []string
	for line := range strings.Lines(sent) {
		stamp, rest, found := strings.Cut(line, " ")
		require.True(t, found)
		at, err := time.Parse(time.RFC3339Nano, stamp)
		require.NoError(t, err)
		lines = append(lines, at.Round(10*time.Millisecond).Format(time.TimeOnly)+" "+rest)
	}
	require.Equal(t, []string{"03:04:06 one\n", "03:04:06 two\n", "03:05:06 three"}, lines)

	// The rest of a line that is added later has no time of its own.
	log.write(second(70), " and a half\nfour\n")
	more := send(t, log, w, int64(len("one\ntwo\nthree")))
	require.True(t, strings.HasPrefix(more, " and a half\n2026-01-02T03:05:1"), more)
}

func TestLimitIsInBytes(t *testing.T) {
	log := &written{text: strings.Repeat("0123456789", chunk)}
	require.Len(t, send(t, log, &logWriter{left: chunk + 5}, 0), chunk+5)
	require.Equal(t, "0123", send(t, log, &logWriter{left: 4}, 0))
}
