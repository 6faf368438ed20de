package runner

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

// masker keeps secrets out of everything that leaves the runner. It is safe for concurrent use.
type masker struct {
	mu       sync.RWMutex
	values   []string // longest first, so that a secret that contains another is hidden whole
	patterns []*regexp.Regexp
}

func newMasker(msg *workflow.Message) *masker {
	m := &masker{}
	for _, v := range msg.Variables {
		if v.IsSecret {
			m.add(v.Value)
		}
	}
	for _, e := range msg.Resources.Endpoints {
		m.add(e.Authorization.Parameters["AccessToken"])
	}
	for _, hint := range msg.Mask {
		if !strings.EqualFold(hint.Type, "regex") {
			continue
		}
		if p, err := regexp.Compile(hint.Value); err == nil {
			m.patterns = append(m.patterns, p)
		}
	}
	return m
}

// add hides a value from now on, each of its lines separately: logs are masked line by line.
func (m *masker) add(secret string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for line := range strings.Lines(secret) {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" || slices.Contains(m.values, line) {
			continue
		}
		m.values = append(m.values, line)
	}
	slices.SortStableFunc(m.values, func(a, b string) int { return len(b) - len(a) })
}

func (m *masker) mask(text string) string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, v := range m.values {
		text = strings.ReplaceAll(text, v, "***")
	}
	for _, p := range m.patterns {
		text = p.ReplaceAllLiteralString(text, "***")
	}
	return text
}
