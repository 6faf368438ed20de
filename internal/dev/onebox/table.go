package onebox

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// board is what the live table shows at one moment.
type board struct {
	Elapsed  time.Duration
	Now      time.Time
	Jobs     []standin.JobView
	WantJobs int
	Expected func(key string) string
	Pods     []podRow
	Restarts []Restart
	Changes  []Change
	Notes    []string // actions in progress; empty ones are left out
}

// Marks of a job: done well, done badly, running, queued, not yet there.
const (
	markGood    = '✓'
	markBad     = '✗'
	markSkipped = '–'
	markRunning = '●'
	markQueued  = '·'
)

const nameWidth = 18

// render draws the board in at most height lines and width columns; runners are left out first.
// Colours are escape sequences, without any when color is false.
func render(b board, width, height int, color bool) []string {
	width = max(width, 40)
	done, running, queued := countJobs(b.Jobs)
	lines := []string{
		fmt.Sprintf("%s  %d jobs: %d done, %d running, %d queued", clock(b.Elapsed), b.WantJobs, done, running, queued), "",
	}
	lines = append(lines, jobGrid(b, width, color)...)
	lines = append(lines, "", fmt.Sprintf("runners: %d idle, %d busy, %d starting",
		countStage(b.Pods, stageIdle), countStage(b.Pods, stageBusy), countStage(b.Pods, stageStarting)))
	tail := restartLines(b)
	room := max(height-len(lines)-len(tail), 3)
	lines = append(lines, runnerLines(b, room, color)...)
	lines = append(lines, tail...)
	lines = lines[:min(len(lines), max(height, 1))] // scrolled lines cannot be redrawn
	for i, line := range lines {
		lines[i] = cut(line, width)
	}
	return lines
}

func countJobs(jobs []standin.JobView) (done, running, queued int) {
	for _, job := range jobs {
		switch {
		case job.Conclusion != "":
			done++
		case job.Status == "in_progress":
			running++
		default:
			queued++
		}
	}
	return done, running, queued
}

func clock(d time.Duration) string {
	seconds := int(d / time.Second)
	return fmt.Sprintf("%02d:%02d", seconds/60, seconds%60)
}

// jobGrid is a line for each job of the workflow, with a mark for each of its instances.
func jobGrid(b board, width int, color bool) []string {
	type row struct {
		id    string
		marks []string
	}
	var rows []*row
	for _, job := range b.Jobs {
		id, _, _ := strings.Cut(job.Key, "/")
		at := slices.IndexFunc(rows, func(r *row) bool { return r.id == id })
		if at < 0 {
			rows = append(rows, &row{id: id})
			at = len(rows) - 1
		}
		rows[at].marks = append(rows[at].marks, mark(job, b.Expected(job.Key), color))
	}
	perLine := max(width-nameWidth-2, 10)
	var lines []string
	for _, r := range rows {
		name := r.id
		for marks := range slices.Chunk(r.marks, perLine) {
			lines = append(lines, fmt.Sprintf("%-*s %s", nameWidth, cut(name, nameWidth), strings.Join(marks, "")))
			name = ""
		}
	}
	return lines
}

const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	reset  = "\x1b[0m"
)

func paint(text, with string, color bool) string {
	if !color {
		return text
	}
	return with + text + reset
}

func mark(job standin.JobView, expected string, color bool) string {
	with := green
	if job.Conclusion != expected {
		with = red
	}
	switch {
	case job.Conclusion == "success":
		return paint(string(markGood), with, color)
	case job.Conclusion == "skipped":
		return paint(string(markSkipped), with, color)
	case job.Conclusion != "":
		return paint(string(markBad), with, color)
	case job.Status == "in_progress":
		return paint(string(markRunning), yellow, color)
	default:
		return string(markQueued)
	}
}

// runnerLines are the pods, busy ones first, with the job that each runs.
func runnerLines(b board, room int, color bool) []string {
	running := map[string]standin.JobView{}
	for _, job := range b.Jobs {
		if uid, ours := runnerpod.PodUID(job.RunnerName); ours && job.Status == "in_progress" {
			running[uid] = job
		}
	}
	order := map[stage]int{stageBusy: 0, stageIdle: 1, stageStarting: 2, stageTerminating: 3, stageFinished: 4}
	rows := slices.Clone(b.Pods)
	slices.SortStableFunc(rows, func(x, y podRow) int { return order[x.Stage] - order[y.Stage] })
	var lines []string
	for i, row := range rows {
		if i == room-1 && len(rows) > room {
			lines = append(lines, fmt.Sprintf("  … and %d more", len(rows)-i))
			break
		}
		with, what := "", ""
		switch row.Stage {
		case stageBusy:
			with = yellow
		case stageIdle:
			with = green
		default:
		}
		word := fmt.Sprintf("%-11s", row.Stage)
		if with != "" {
			word = paint(word, with, color)
		}
		if job, is := running[row.UID]; is && job.StartedAt != nil {
			what = fmt.Sprintf("%-22s %s", job.Name, short(max(b.Now.Sub(*job.StartedAt), 0)))
		}
		lines = append(lines, fmt.Sprintf("  %-*s %-*s %s %s", nameWidth, row.Name, platformWidth, row.platform(), word, what))
	}
	return lines
}

// platform is the word for where a runner runs.
func (r podRow) platform() string {
	if r.Mac {
		return "macOS"
	}
	return "Linux"
}

const platformWidth = 5

func restartLines(b board) []string {
	var lines []string
	for _, r := range b.Restarts[max(len(b.Restarts)-3, 0):] {
		lines = append(lines, fmt.Sprintf("restarted %s: %s, pid %d → %d, with %s running", partName(r.Part), r.Signal, r.OldPID, r.NewPID, jobCount(r.Running)))
	}
	for _, c := range b.Changes[max(len(b.Changes)-3, 0):] {
		lines = append(lines, fmt.Sprintf("%s: %s %s, with %s running", changeName(c.Kind), changeDone(c.Kind), short(c.Took), jobCount(c.Running)))
	}
	for _, note := range b.Notes {
		if note != "" {
			lines = append(lines, note)
		}
	}
	if len(lines) > 0 {
		lines = append([]string{""}, lines...)
	}
	return lines
}

// cut shortens a line to width columns. Escape sequences take none; every character that is written here takes one.
func cut(line string, width int) string {
	columns, inEscape := 0, false
	for i, r := range line {
		switch {
		case r == '\x1b':
			inEscape = true
		case inEscape:
			inEscape = r != 'm'
		case columns == width:
			if strings.Contains(line[:i], "\x1b") {
				return line[:i] + reset
			}
			return line[:i]
		default:
			columns++
		}
	}
	return line
}

// screen redraws lines in place on a terminal.
type screen struct {
	out   io.Writer
	drawn int
}

func (s *screen) draw(lines []string) {
	var text strings.Builder
	text.WriteString(s.erase())
	for _, line := range lines {
		text.WriteString(line)
		text.WriteByte('\n')
	}
	s.drawn = len(lines)
	// One write, so that nothing is seen half drawn. A terminal that has gone ends us by a signal.
	_, _ = io.WriteString(s.out, text.String())
}

// clear takes what was drawn away.
func (s *screen) clear() {
	_, _ = io.WriteString(s.out, s.erase())
	s.drawn = 0
}

func (s *screen) erase() string {
	if s.drawn == 0 {
		return "\r\x1b[J"
	}
	return fmt.Sprintf("\x1b[%dA\r\x1b[J", s.drawn)
}
