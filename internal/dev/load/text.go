package load

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Style is how a result is written.
type Style struct {
	// Blocks draws bars with block characters, else with ASCII alone.
	Blocks bool
	// Width of a line, in characters; at least 60 are taken.
	Width int
}

// Caveat goes with every result that people read.
const Caveat = "GitHub's times are whole seconds: hook, start and wait may be off by one."

// Seconds writes a time with three digits.
func Seconds(s float64) string {
	switch {
	case s < 0.0005:
		return "0ms"
	case s < 0.9995:
		return strconv.FormatFloat(s*1000, 'f', 0, 64) + "ms"
	case s < 9.995:
		return strconv.FormatFloat(s, 'f', 2, 64) + "s"
	case s < 99.95:
		return strconv.FormatFloat(s, 'f', 1, 64) + "s"
	default:
		return strconv.FormatFloat(s, 'f', 0, 64) + "s"
	}
}

// Text writes the result for people: counts, the split by stage, a histogram of each, and the jobs that did not end.
func Text(w io.Writer, r Result, style Style) error {
	var b strings.Builder
	counts(&b, r)
	if len(r.Stages) > 0 {
		fmt.Fprintf(&b, "\n%-10s%8s%10s%10s%10s%10s\n", "STAGE", "JOBS", "P50", "P90", "P99", "MAX")
		for _, s := range r.Stages {
			fmt.Fprintf(&b, "%-10s%8d%10s%10s%10s%10s\n", s.Name, s.Count, Seconds(s.P50), Seconds(s.P90), Seconds(s.P99), Seconds(s.Max))
		}
		b.WriteString(Caveat + "\n")
	}
	for _, s := range r.Stages {
		fmt.Fprintf(&b, "\n%s\n", s.Name)
		bars(&b, s.Histogram, style)
	}
	for i, s := range r.Stuck {
		if i == 0 {
			b.WriteString("\nThese jobs did not end:\n")
		}
		stuck(&b, s)
	}
	if more := r.Unended - len(r.Stuck); more > 0 && len(r.Stuck) > 0 {
		fmt.Fprintf(&b, "\nand %d more.\n", more)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func counts(b *strings.Builder, r Result) {
	fmt.Fprintf(b, "%d of %d jobs in %d runs submitted in %s (%s, seed %d)", r.SubmittedJobs, r.PlannedJobs, r.SubmittedRuns, Seconds(r.SubmitSeconds), r.Shape, r.Seed)
	fmt.Fprintf(b, "; %d ended", r.Ended)
	for i, conclusion := range slices.Sorted(maps.Keys(r.Conclusions)) {
		if i == 0 {
			b.WriteString(": ")
		} else {
			b.WriteString(", ")
		}
		fmt.Fprintf(b, "%d %s", r.Conclusions[conclusion], printable(conclusion))
	}
	fmt.Fprintf(b, "; it took %s\n", Seconds(r.LastedSeconds))
	if r.HeldBack > 0 {
		fmt.Fprintf(b, "%d runs were held back because too many jobs had not ended: the arrivals are not those that were planned.\n", r.HeldBack)
	}
	if r.LateSeconds >= 1 {
		fmt.Fprintf(b, "The run that was latest was submitted %s after its time.\n", Seconds(r.LateSeconds))
	}
	if r.Interrupted {
		fmt.Fprintf(b, "It was interrupted: %d jobs had not ended by then.\n", r.Unended)
	}
}

// blocks are eighths of a character.
var blocks = []rune(" ▏▎▍▌▋▊▉")

func bars(b *strings.Builder, buckets []Bucket, style Style) {
	most := 0
	for _, bucket := range buckets {
		most = max(most, bucket.Count)
	}
	room := max(style.Width, 60) - 24
	for i, bucket := range buckets {
		label := "up to " + Seconds(bucket.UpTo)
		if bucket.UpTo == bounds[len(bounds)-1] && i == len(buckets)-1 {
			label = "more"
		}
		fmt.Fprintf(b, "  %-12s |%s %d\n", label, bar(float64(bucket.Count)/float64(max(most, 1)), room, style.Blocks), bucket.Count)
	}
}

// bar shows that something is there, however little it is.
func bar(share float64, room int, drawn bool) string {
	if share <= 0 {
		return ""
	}
	if !drawn {
		return strings.Repeat("#", max(1, int(math.Round(share*float64(room)))))
	}
	eighths := max(1, int(math.Round(share*float64(room)*8)))
	out := strings.Repeat("█", eighths/8)
	if eighths%8 > 0 {
		out += string(blocks[eighths%8])
	}
	return out
}

func stuck(b *strings.Builder, s Stuck) {
	fmt.Fprintf(b, "\n  %d", s.ID)
	if s.Name != "" {
		fmt.Fprintf(b, ", %s", printable(s.Name))
	}
	fmt.Fprintf(b, " of %s", printable(s.Repository))
	if s.State != "" {
		fmt.Fprintf(b, ", is %s", printable(s.State))
	}
	fmt.Fprintf(b, "\n    %s", printable(s.Sentence))
	if s.Code != "" {
		fmt.Fprintf(b, " (%s)", printable(s.Code))
	}
	if s.Remedy != "" {
		fmt.Fprintf(b, "\n    %s", printable(s.Remedy))
	}
	b.WriteString("\n")
}

// printable keeps what others wrote from moving the terminal's cursor.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}

// Line is progress in one line.
func (p Progress) Line() string {
	line := fmt.Sprintf("%s: %d of %d jobs submitted, %d waiting, %d running, %d ended",
		Seconds(p.Elapsed.Seconds()), p.Submitted, p.Planned, p.Waiting, p.Running, p.Ended)
	if p.Trouble != nil {
		line += "; " + printable(p.Trouble.Error())
	}
	return line
}
