package top

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// about is more of the chosen row, wrapped.
func (m model) about() []string {
	lines := []string{}
	say := func(label, text string) {
		wrapped := strings.Split(ansi.Wrap(plain(text), max(10, m.width-12), ""), "\n")
		for i, line := range wrapped {
			if i > 0 {
				label = ""
			}
			lines = append(lines, label+strings.Repeat(" ", max(1, 11-len(label)))+line)
		}
	}
	for _, r := range m.rows() {
		if r.key != m.selected[m.at] {
			continue
		}
		for i, column := range m.columns() {
			say(strings.ToLower(column), r.cells[i])
		}
	}
	switch m.at {
	case pools:
		for _, p := range m.fleet.Pools.Pools {
			if p.Namespace+"/"+p.Name == m.selected[pools] {
				say("namespace", p.Namespace)
				say("intake", p.Intake)
				say("labels", strings.Join(p.Labels, ", "))
				for _, problem := range p.Problems {
					say("problem", problem.Sentence)
				}
			}
		}
	case jobs:
		m.aboutJob(say)
	}
	return lines
}

func (m model) aboutJob(say func(label, text string)) {
	job, ok := m.job()
	if !ok {
		return
	}
	say("labels", strings.Join(job.Labels, ", "))
	if job.URL != "" {
		say("github", job.URL)
	}
	switch {
	case m.unknown != nil:
		say("reason", "cannot read it: "+m.unknown.Error())
	case len(m.reasons.Reasons) == 0:
		say("reason", "...")
	}
	for _, reason := range m.reasons.Reasons {
		say("reason", reason.Sentence)
		if reason.Remedy != "" {
			say("remedy", reason.Remedy)
		}
	}
}
