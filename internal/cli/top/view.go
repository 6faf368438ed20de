package top

import (
	"fmt"
	"strings"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/bullpen-ci/bullpen/internal/cli"
)

// Bold and reverse only: they say what they say on every terminal, in its own colours, and with NO_COLOR too.
const (
	bold    = "\x1b[1m"
	reverse = "\x1b[7m"
	normal  = "\x1b[0m"
)

// besides is how many lines of a screen are no rows of its list.
const besides = 6

// View is the whole screen.
func (m model) View() tea.View {
	view := tea.NewView(strings.Join(m.lines(), "\n"))
	view.AltScreen, view.WindowTitle = true, "bullpen top"
	return view
}

// lines are as many as the screen is high, none wider than it.
func (m model) lines() []string {
	if m.width < 1 || m.height < 1 {
		return nil
	}
	head := []string{m.title(), m.sums(), m.state(), ""}
	var body []string
	switch {
	case m.help:
		body = helpLines()
	case m.detail:
		body = m.about()
	case !m.known:
		body = []string{"Reading the fleet ..."}
	default:
		body = m.list()
	}
	for len(head)+len(body) < m.height-1 {
		body = append(body, "")
	}
	lines := append(head, body...)
	lines = append(lines[:min(len(lines), max(0, m.height-1))], m.foot())
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, m.width, "")
	}
	return lines
}

func (m model) title() string {
	names := [screens]string{pools: "Pools", jobs: "Jobs", accounts: "Accounts"}
	var b strings.Builder
	b.WriteString(bold + "bullpen top" + normal + "  ")
	for s, name := range names {
		if screen(s) == m.at {
			b.WriteString(" " + reverse + "[" + name + "]" + normal)
		} else {
			b.WriteString("  " + name + " ")
		}
	}
	if m.known {
		b.WriteString("   as of " + m.fleet.At.Format("15:04:05"))
	}
	return b.String()
}

func (m model) sums() string {
	if !m.known {
		return ""
	}
	s := cli.Sum(m.fleet.Pools, m.fleet.Accounts)
	unserved := cli.UnservedText(s.Unserved, m.fleet.At)
	if unserved != "" {
		unserved = ", " + unserved
	}
	return fmt.Sprintf("Jobs: %d queued, %d blocked%s.  Runners: %d idle, %d busy, %d starting, %d desired.",
		s.Queued, s.Blocked, unserved, s.Idle, s.Busy, s.Starting, s.Desired)
}

// state is the first problem.
func (m model) state() string {
	switch {
	case m.failed != nil:
		return reverse + "!" + normal + " " + plain(m.failed.Error())
	case !m.known:
		return ""
	}
	status := cli.Sum(m.fleet.Pools, m.fleet.Accounts)
	if len(status.Problems) == 0 {
		return status.Headline()
	}
	return bold + status.Headline() + normal + " " + plain(status.Problems[0])
}

// extras are below the pools if there is room.
func (m model) extras() []string {
	if m.at != pools || m.height < 20 || m.filter != "" {
		return nil
	}
	lines := []string{"", bold + "LONGEST QUEUED" + normal}
	for i, j := range m.fleet.Jobs[:min(mostWhys, len(m.fleet.Jobs))] {
		switch cli.StateOf(j) {
		case cli.JobPendingApproval, cli.JobQueued, cli.JobBlocked, cli.JobNoPool, cli.JobElsewhere:
			cells := pick(cli.JobTable(m.fleet.Jobs, m.fleet.At), i, []string{"WAITED", "ID", "REPOSITORY"}, nil)
			lines = append(lines, fmt.Sprintf("%7s  %s  %s  (%s)", cells[0], cells[1], few(m.fleet.Why[j.ID]), cells[2]))
		}
	}
	if len(lines) == 2 {
		lines = append(lines, "no queued jobs")
	}
	if m.fleet.Cut {
		lines[1] += fmt.Sprintf(" of the newest %d", mostQueued)
	}
	if near := m.nearest(3); len(near) > 0 {
		lines = append(append(lines, "", bold+"CLOSEST LIMITS"+normal), near...)
	}
	return lines
}

// listHeight is how many rows are shown at once.
func (m model) listHeight() int { return max(1, m.height-besides-len(m.extras())) }

// list is the table around the chosen row.
func (m model) list() []string {
	rows, columns := m.rows(), m.columns()
	if len(rows) == 0 {
		return append([]string{bold + "  " + strings.Join(columns, "  ") + normal, "  no entries"}, m.extras()...)
	}
	height := m.listHeight()
	from := min(max(0, m.cursor[m.at]-height/2), max(0, len(rows)-height))
	shown := rows[from:min(len(rows), from+height)]
	widths := make([]int, len(columns))
	for i, column := range columns {
		widths[i] = len(column)
		for _, r := range shown {
			widths[i] = min(max(widths[i], ansi.StringWidth(r.cells[i])), 40)
		}
	}
	lines := []string{bold + "  " + join(columns, widths) + normal}
	for i, r := range shown {
		line := "  " + join(r.cells, widths)
		if from+i == m.cursor[m.at] {
			line = reverse + "> " + join(r.cells, widths) + normal
		}
		lines = append(lines, line)
	}
	return append(lines, m.extras()...)
}

func join(cells []string, widths []int) string {
	var b strings.Builder
	for i, cell := range cells {
		cell = ansi.Truncate(cell, widths[i], "~")
		b.WriteString(cell + strings.Repeat(" ", max(0, widths[i]-ansi.StringWidth(cell))+2))
	}
	return strings.TrimRight(b.String(), " ")
}

func (m model) foot() string {
	switch {
	case m.typing:
		return "filter: " + plain(m.filter) + "_   enter: apply   esc: clear"
	case m.help || m.detail:
		return "esc: back   q: quit"
	case m.filter != "":
		return "filter: " + plain(m.filter) + "   esc: clear   /: change   q: quit"
	}
	return "p: pools  J: jobs  a: accounts  enter: details  /: filter  ?: help  q: quit"
}

func helpLines() []string {
	return []string{
		"p, J, a (or 1, 2, 3)   pools, jobs, accounts; tab: the next list",
		"arrows, j and k        select a row; page up and down, g and G: further",
		"enter                  details of the row; for a job: why it is queued",
		"/                      filter rows by text; esc: clear",
		"q, Ctrl-C              quit",
		"",
		"Queued jobs come first, the longest queued at the top. WHY is shown for the",
		"first of them; enter shows it for any job.",
	}
}

// plain keeps what others wrote from moving the terminal's cursor.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}
