package dockerfile

import (
	"bytes"
	"strings"
	"sync"
)

// maxComplaint bounds what is kept of what a program writes, in bytes.
const maxComplaint = 4 << 10

// tail keeps the end of what is written. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - maxComplaint; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

// or is what was written, or another text if that is nothing.
func (t *tail) or(other string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := strings.TrimSpace(string(bytes.ToValidUTF8(t.text, []byte("?")))); text != "" {
		return text
	}
	return other
}
