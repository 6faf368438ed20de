package standin

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// The feed is the web socket that takes a job's log line by line while it runs. Runners send it what people watch; the log that stays is
// uploaded beside it.

const (
	pathFeed = pathResults + "/feed"
	// maxFeedMessage bounds one message, in bytes. Runners send a batch of lines in each, of at most a few hundred.
	maxFeedMessage = 4 << 20
	closeWithin    = time.Second
)

// feedURL is the feed's address. GitHub's runner takes its scheme as it is.
func (s *Server) feedURL() string { return "ws" + strings.TrimPrefix(s.opts.URL, "http") + pathFeed }

// feedLines is one message of the feed. Lines are counted from 1; a runner that does not count sends no startLine.
type feedLines struct {
	Count     int      `json:"count"`
	Value     []string `json:"value"`
	StepID    string   `json:"stepId"`
	StartLine *int     `json:"startLine"`
}

// feed keeps what the runner of a job sends until the runner ends the connection, or the server does.
func (s *Server) feed(w http.ResponseWriter, r *http.Request, token *runnerToken) error {
	j := token.job
	if j == nil {
		return failf(http.StatusForbidden, "The feed takes the token that comes with a job.")
	}
	upgrader := websocket.Upgrader{ReadBufferSize: 4 << 10, WriteBufferSize: 1 << 10}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return nil // Upgrade has answered what is wrong with the request
	}
	conn.SetReadLimit(maxFeedMessage)
	gone := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-s.closing:
		case <-r.Context().Done():
		case <-gone:
		}
		_ = conn.Close() // the lines that were read are kept
	})
	defer wg.Wait()
	defer close(gone)
	for {
		kind, data, err := conn.ReadMessage()
		if err != nil {
			return nil // the runner's job is over, or its connection broke: it connects again
		}
		var lines feedLines
		if kind != websocket.TextMessage || json.Unmarshal(data, &lines) != nil || lines.Count != len(lines.Value) || lines.StepID == "" {
			refusal := websocket.FormatCloseMessage(websocket.CloseInvalidFramePayloadData, "a message is a JSON object with count, value, stepId and startLine")
			_ = conn.WriteControl(websocket.CloseMessage, refusal, time.Now().Add(closeWithin))
			return nil
		}
		s.live.add(j.id, lines)
	}
}

// liveLogs keeps the lines that came by the feed, of each step up to a limit. Safe for concurrent use; no lock is taken under its own.
type liveLogs struct {
	limit int
	mu    sync.Mutex
	jobs  map[int64]map[string]*liveLog // by job and step
}

type liveLog struct {
	text strings.Builder
	next int // the number of the line that comes next
	full bool
}

func newLiveLogs(limit int) *liveLogs {
	return &liveLogs{limit: limit, jobs: map[int64]map[string]*liveLog{}}
}

// add appends lines. A runner that connected again may send some twice; those are known by their number.
func (l *liveLogs) add(job int64, lines feedLines) {
	l.mu.Lock()
	defer l.mu.Unlock()
	steps := l.jobs[job]
	if steps == nil {
		steps = map[string]*liveLog{}
		l.jobs[job] = steps
	}
	step := steps[strings.ToLower(lines.StepID)]
	if step == nil {
		step = &liveLog{next: 1}
		steps[strings.ToLower(lines.StepID)] = step
	}
	number := step.next
	if lines.StartLine != nil {
		number = *lines.StartLine
	}
	for _, line := range lines.Value {
		if number >= step.next && !step.full {
			step.next = number + 1
			step.write(line, l.limit)
		}
		number++
	}
}

func (l *liveLog) write(line string, limit int) {
	if l.text.Len()+len(line) >= limit {
		l.full = true
		line = "[the rest is in the log that the runner uploads]"
	}
	l.text.WriteString(line)
	l.text.WriteByte('\n')
}

// step returns the output of one step, and how many lines the feed has counted.
func (l *liveLogs) step(job int64, id string) (text string, lines int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	step := l.jobs[job][strings.ToLower(id)]
	if step == nil {
		return "", 0
	}
	return step.text.String(), step.next - 1
}

// drop forgets a job's lines: its log was uploaded.
func (l *liveLogs) drop(job int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.jobs, job)
}

// watchedLog is the log of a job that may still run: of each step what was uploaded, or what came by the feed where that is more.
func (s *Server) watchedLog(id int64, steps []StepView) (string, bool) {
	if text, ok := s.blobs.text(blobID(id, "job", "")); ok && !s.live.has(id) {
		return text, true
	}
	var all strings.Builder
	for _, step := range steps {
		text, _ := s.blobs.text(blobID(id, "step", step.ID))
		if live, lines := s.live.step(id, step.ID); lines > strings.Count(text, "\n") {
			text = live
		}
		all.WriteString(text)
	}
	return all.String(), all.Len() > 0
}

func (l *liveLogs) has(job int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.jobs[job]) > 0
}
