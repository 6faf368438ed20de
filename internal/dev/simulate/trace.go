package simulate

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Trace is jobs, the oldest first.
type Trace []Job

// Job is one job of a trace.
type Job struct {
	QueuedAt time.Time
	Account  string
	// Labels that it asks for, or Pool, whose first label it asks for.
	Labels     []string
	Pool       string
	Repository string
	Duration   time.Duration
}

// The columns of a trace, by the names in its first line.
const (
	columnQueued     = "queued_at"
	columnAccount    = "account"
	columnLabels     = "labels"
	columnPool       = "pool"
	columnRepository = "repository"
	columnDuration   = "duration_seconds"
)

func columns() []string {
	return []string{columnQueued, columnAccount, columnLabels, columnPool, columnRepository, columnDuration}
}

// MostJobs is the longest trace that is read.
const MostJobs = 5_000_000

// TraceError says where a trace cannot be read, and what is expected there.
type TraceError struct {
	Line, Column int    // from 1; Column is a byte's, 0 where a line as a whole is meant
	Field        string // the column's name, if one is meant
	Problem      string
}

// Error is a sentence for a person.
func (e *TraceError) Error() string {
	where := fmt.Sprintf("line %d", e.Line)
	if e.Column > 0 {
		where += fmt.Sprintf(", column %d", e.Column)
	}
	if e.Field != "" {
		where += " (" + e.Field + ")"
	}
	return where + ": " + e.Problem
}

// ParseTrace reads a trace as CSV: a first line with the columns' names, then a job a line, in any order. Times are RFC 3339,
// or seconds from any beginning; all of them the one or the other. It fails with a *TraceError, or with the reader's error.
func ParseTrace(r io.Reader) (Trace, error) {
	reader := csv.NewReader(r)
	reader.ReuseRecord = true
	head, err := reader.Read()
	if errors.Is(err, io.EOF) {
		return nil, &TraceError{Line: 1, Problem: "the trace is empty; expected the columns' names: " + strings.Join(columns(), ",")}
	}
	if err != nil {
		return nil, csvError(err)
	}
	at, err := header(head)
	if err != nil {
		return nil, err
	}
	p := traceParser{reader: reader, at: at}
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, csvError(err)
		}
		if err := p.job(record); err != nil {
			return nil, err
		}
	}
	if len(p.trace) == 0 {
		return nil, &TraceError{Line: 2, Problem: "the trace has no job; expected one a line"}
	}
	slices.SortStableFunc(p.trace, func(a, b Job) int { return a.QueuedAt.Compare(b.QueuedAt) })
	return p.trace, nil
}

func csvError(err error) error {
	var parse *csv.ParseError
	if !errors.As(err, &parse) {
		return fmt.Errorf("reading the trace: %w", err)
	}
	problem := parse.Err.Error()
	if errors.Is(parse.Err, csv.ErrFieldCount) {
		problem = "expected as many fields as the first line has"
	}
	return &TraceError{Line: parse.Line, Column: parse.Column, Problem: problem}
}

// header finds the columns.
func header(names []string) (map[string]int, error) {
	at := map[string]int{}
	for i, name := range names {
		if name = strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")); !slices.Contains(columns(), name) {
			return nil, &TraceError{Line: 1, Problem: fmt.Sprintf("there is no column %q; expected some of %s", name, strings.Join(columns(), ","))}
		}
		if _, twice := at[name]; twice {
			return nil, &TraceError{Line: 1, Problem: fmt.Sprintf("the column %s is there twice", name)}
		}
		at[name] = i
	}
	for _, name := range []string{columnQueued, columnAccount, columnDuration} {
		if _, found := at[name]; !found {
			return nil, &TraceError{Line: 1, Problem: "the column " + name + " is missing"}
		}
	}
	_, labels := at[columnLabels]
	if _, pool := at[columnPool]; !labels && !pool {
		return nil, &TraceError{Line: 1, Problem: "expected a column labels or pool: what jobs ask for"}
	}
	return at, nil
}

type traceParser struct {
	reader *csv.Reader
	at     map[string]int
	trace  Trace
	stamps bool // times are RFC 3339; known from the first job on
}

func (p *traceParser) job(record []string) error {
	text := func(column string) string {
		if i, there := p.at[column]; there {
			return strings.TrimSpace(record[i])
		}
		return ""
	}
	wrong := func(column, expected string) error {
		line, place := p.reader.FieldPos(p.at[column])
		return &TraceError{Line: line, Column: place, Field: column, Problem: fmt.Sprintf("expected %s, not %q", expected, text(column))}
	}
	if len(p.trace) == MostJobs {
		line, _ := p.reader.FieldPos(0)
		return &TraceError{Line: line, Problem: fmt.Sprintf("a trace has at most %d jobs", MostJobs)}
	}
	j := Job{Account: text(columnAccount), Pool: text(columnPool), Repository: text(columnRepository)}
	queued, stamped, ok := parseTime(text(columnQueued))
	switch {
	case !ok:
		return wrong(columnQueued, "a time such as 2026-10-05T09:00:00Z, or a number of seconds")
	case len(p.trace) > 0 && stamped != p.stamps && p.stamps:
		return wrong(columnQueued, "a time such as 2026-10-05T09:00:00Z, as on the lines before")
	case len(p.trace) > 0 && stamped != p.stamps:
		return wrong(columnQueued, "a number of seconds, as on the lines before")
	}
	j.QueuedAt, p.stamps = queued, stamped
	if j.Account == "" {
		return wrong(columnAccount, "the login of an account")
	}
	for label := range strings.FieldsFuncSeq(text(columnLabels), func(r rune) bool { return r == ' ' || r == ';' || r == ',' }) {
		j.Labels = append(j.Labels, label)
	}
	if (len(j.Labels) == 0) == (j.Pool == "") {
		column := columnLabels
		if _, there := p.at[column]; !there {
			column = columnPool
		}
		return wrong(column, "labels with spaces between, or the name of a pool in the column pool: one of both")
	}
	duration, err := strconv.ParseFloat(text(columnDuration), 64)
	if err != nil || !(duration >= 0 && duration <= longest.Seconds()) {
		return wrong(columnDuration, fmt.Sprintf("a number of seconds from 0 to %.0f", longest.Seconds()))
	}
	j.Duration = time.Duration(math.Round(duration * float64(time.Second)))
	p.trace = append(p.trace, j)
	return nil
}

// mostSeconds bounds the times of a trace that has seconds: a hundred years.
const mostSeconds = 100 * 365.25 * 24 * 3600

// parseTime reads RFC 3339, or seconds.
func parseTime(text string) (at time.Time, stamped, ok bool) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.UTC(), true, at.Year() >= 1970 && at.Year() < 2200
	}
	s, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(s) || math.Abs(s) > mostSeconds {
		return time.Time{}, false, false
	}
	return time.Unix(0, 0).UTC().Add(time.Duration(math.Round(s * float64(time.Second)))), false, true
}

// WriteTrace writes a trace as ParseTrace reads it, times as RFC 3339 to the millisecond.
func WriteTrace(w io.Writer, trace Trace) error {
	out := csv.NewWriter(w)
	rows := [][]string{columns()}
	for _, j := range trace {
		rows = append(rows, []string{
			j.QueuedAt.UTC().Format("2006-01-02T15:04:05.999Z07:00"), j.Account, strings.Join(j.Labels, " "), j.Pool, j.Repository,
			strconv.FormatFloat(j.Duration.Seconds(), 'f', -1, 64),
		})
	}
	if err := out.WriteAll(rows); err != nil {
		return fmt.Errorf("writing the trace: %w", err)
	}
	return nil
}
