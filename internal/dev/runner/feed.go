package runner

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
)

const (
	// feedPiece is how much of a message goes into one frame, as with GitHub's runner.
	feedPiece   = 1 << 10
	feedTimeout = 30 * time.Second
	// feedTries is how often a broken feed is reconnected before the job continues without.
	feedTries = 3
	// maxUnsent bounds what waits for a slow feed, in lines; the log that is uploaded has them all.
	maxUnsent = 10_000
)

// feed sends the lines of a running job to its viewers. It is best effort: lines that it cannot send are in the log that is uploaded. One
// goroutine uses it, the uploader's.
type feed struct {
	address, token string
	log            *slog.Logger
	conn           *websocket.Conn
	failures       int
}

// feedLines is one message: lines of a step, counted from 1.
type feedLines struct {
	Count     int      `json:"count"`
	Value     []string `json:"value"`
	StepID    string   `json:"stepId"`
	StartLine int64    `json:"startLine"`
}

// connect opens the connection unless it is open. It gives up for good after a few failures.
func (f *feed) connect(ctx context.Context) bool {
	if f.conn != nil {
		return true
	}
	if f.address == "" || f.failures >= feedTries {
		return false
	}
	dialer := websocket.Dialer{Proxy: http.ProxyFromEnvironment, HandshakeTimeout: feedTimeout}
	conn, response, err := dialer.DialContext(ctx, f.address, http.Header{"Authorization": {"Bearer " + f.token}})
	if response != nil {
		_ = response.Body.Close() // gorilla/websocket has read what there is
	}
	if err != nil {
		f.failed(err)
		return false
	}
	f.conn = conn
	return true
}

// send sends lines. Those that are lost are not sent again.
func (f *feed) send(ctx context.Context, lines feedLines) {
	if !f.connect(ctx) {
		return
	}
	text, err := json.Marshal(lines)
	if err == nil {
		err = f.write(text)
	}
	if err != nil {
		f.failed(err)
		_ = f.conn.Close()
		f.conn = nil
	}
}

func (f *feed) write(text []byte) error {
	if err := f.conn.SetWriteDeadline(time.Now().Add(feedTimeout)); err != nil {
		return err
	}
	w, err := f.conn.NextWriter(websocket.TextMessage)
	if err != nil {
		return err
	}
	for len(text) > 0 {
		n := min(feedPiece, len(text))
		if _, err := w.Write(text[:n]); err != nil {
			return err
		}
		text = text[n:]
	}
	return w.Close()
}

func (f *feed) failed(err error) {
	f.failures++
	f.log.Debug("the live log is not sent", "error", err, "failures", f.failures)
}

// close says goodbye.
func (f *feed) close() {
	if f.conn == nil {
		return
	}
	goodbye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = f.conn.WriteControl(websocket.CloseMessage, goodbye, time.Now().Add(time.Second))
	_ = f.conn.Close()
	f.conn = nil
}
