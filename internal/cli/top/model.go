package top

import (
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// screen is one of the lists.
type screen int

const (
	pools screen = iota
	jobs
	accounts
	screens
)

// model is what is known and shown. It is a value: Update gives another.
type model struct {
	read  func() (Fleet, error)
	why   func(job int64) (adminapi.Why, error)
	every time.Duration

	width, height int
	fleet         Fleet
	known         bool  // fleet was read at least once
	failed        error // of the last reading

	at       screen
	selected [screens]string // the key of the chosen row: it stays chosen where the list changes around it
	cursor   [screens]int
	filter   string
	typing   bool // the filter
	help     bool
	detail   bool
	reasons  adminapi.Why // of the job that detail shows
	unknown  error        // why the reasons could not be read
}

// fleetRead, whyRead and again are what comes from outside besides keys and sizes.
type (
	fleetRead struct {
		fleet Fleet
		err   error
	}
	whyRead struct {
		job int64
		why adminapi.Why
		err error
	}
	again struct{}
)

// Init begins to read.
func (m model) Init() tea.Cmd { return m.reading() }

func (m model) reading() tea.Cmd {
	return func() tea.Msg {
		fleet, err := m.read()
		return fleetRead{fleet, err}
	}
}

// asking reads why the chosen job waits.
func (m model) asking() tea.Cmd {
	job, ok := m.job()
	if !ok || !m.detail {
		return nil
	}
	return func() tea.Msg {
		why, err := m.why(job.ID)
		return whyRead{job.ID, why, err}
	}
}

// Update takes one message. The next reading is asked for when the last has come, so a slow server is never asked twice at once.
func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case fleetRead:
		if m.failed = msg.err; msg.err == nil {
			m.fleet, m.known = msg.fleet, true
			m.settle()
		}
		return m, tea.Batch(m.asking(), tea.Tick(m.every, func(time.Time) tea.Msg { return again{} }))
	case again:
		return m, m.reading()
	case whyRead:
		if job, ok := m.job(); ok && job.ID == msg.job {
			m.reasons, m.unknown = msg.why, msg.err
		}
	case tea.KeyPressMsg:
		return m.press(msg)
	}
	return m, nil
}

func (m model) press(key tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	name := key.String()
	if name == "ctrl+c" {
		return m, tea.Quit
	}
	if m.typing {
		return m.write(key), nil
	}
	switch name {
	case "q":
		return m, tea.Quit
	case "?":
		m.help = !m.help
	case "esc", "backspace":
		if m.help || m.detail {
			m.help, m.detail = false, false
		} else {
			m.filter = ""
			m.settle()
		}
	case "/":
		m.typing, m.help, m.detail = true, false, false
	case "enter":
		m.detail, m.help = !m.detail && m.selected[m.at] != "", false
		m.reasons, m.unknown = adminapi.Why{}, nil
		return m, m.asking()
	case "p", "1":
		m.turn(pools)
	case "J", "2":
		m.turn(jobs)
	case "a", "3":
		m.turn(accounts)
	case "tab":
		m.turn((m.at + 1) % screens)
	default:
		m.move(name)
		return m, m.asking()
	}
	return m, nil
}

// write changes the filter.
func (m model) write(key tea.KeyPressMsg) model {
	switch name := key.String(); name {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.filter = false, ""
	case "backspace":
		if runes := []rune(m.filter); len(runes) > 0 {
			m.filter = string(runes[:len(runes)-1])
		}
	default:
		if len(m.filter) < 100 {
			m.filter += key.Text
		}
	}
	m.settle()
	return m
}

func (m *model) turn(to screen) {
	m.at, m.help, m.detail = to, false, false
	m.settle()
}

// move chooses another row.
func (m *model) move(key string) {
	rows, by := m.rows(), 0
	switch key {
	case "j", "down":
		by = 1
	case "k", "up":
		by = -1
	case "pgdown", "ctrl+f":
		by = max(1, m.listHeight()-1)
	case "pgup", "ctrl+b":
		by = -max(1, m.listHeight()-1)
	case "home", "g":
		by = -len(rows)
	case "end", "G":
		by = len(rows)
	}
	if by == 0 || len(rows) == 0 {
		return
	}
	to := min(max(0, m.cursor[m.at]+by), len(rows)-1)
	m.cursor[m.at], m.selected[m.at] = to, rows[to].key
	m.reasons, m.unknown = adminapi.Why{}, nil
}

// settle finds the chosen row again after the list has changed; if it is gone, what stands in its place is chosen.
func (m *model) settle() {
	rows := m.rows()
	if len(rows) == 0 {
		m.cursor[m.at], m.selected[m.at], m.detail = 0, "", false
		return
	}
	for i, r := range rows {
		if r.key == m.selected[m.at] {
			m.cursor[m.at] = i
			return
		}
	}
	m.cursor[m.at] = min(m.cursor[m.at], len(rows)-1)
	m.selected[m.at], m.detail = rows[m.cursor[m.at]].key, false // the detail was of another
}

// fits reports whether a row has what the filter asks for.
func (m model) fits(cells []string) bool {
	return m.filter == "" || strings.Contains(strings.ToLower(strings.Join(cells, " ")), strings.ToLower(m.filter))
}
