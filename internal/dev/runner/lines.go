package runner

import (
	"bytes"
	"strings"
)

// lineWriter cuts a process's output into lines and acts on the workflow commands among them.
type lineWriter struct {
	w    *work
	s    *stepRun
	rest []byte
}

// maxLine is the longest line kept whole, in bytes.
const maxLine = 64 << 10

func (l *lineWriter) Write(data []byte) (int, error) {
	l.rest = append(l.rest, data...)
	for {
		end := bytes.IndexByte(l.rest, '\n')
		if end < 0 && len(l.rest) < maxLine {
			return len(data), nil
		}
		if end < 0 {
			l.w.output(l.s, string(l.rest))
			l.rest = l.rest[:0]
			return len(data), nil
		}
		l.w.output(l.s, strings.TrimSuffix(string(l.rest[:end]), "\r"))
		l.rest = l.rest[end+1:]
	}
}

func (l *lineWriter) flush() {
	if len(l.rest) > 0 {
		l.w.output(l.s, string(l.rest))
		l.rest = nil
	}
}
