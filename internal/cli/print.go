package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
)

// Format is how a command prints.
type Format string

// The formats.
const (
	FormatTable Format = "table"
	FormatWide  Format = "wide"
	FormatJSON  Format = "json"
	FormatYAML  Format = "yaml"
)

func formats() []Format { return []Format{FormatTable, FormatWide, FormatJSON, FormatYAML} }

// String makes a Format a flag's value.
func (f *Format) String() string { return string(*f) }

// Set accepts the formats only.
func (f *Format) Set(text string) error {
	if !slices.Contains(formats(), Format(text)) {
		return commandline.ValueError{Must: "table, wide, json or yaml"}
	}
	*f = Format(text)
	return nil
}

// Type is what help calls the value.
func (f *Format) Type() string { return "format" }

// OutputFlag adds -o.
func OutputFlag(fs *pflag.FlagSet, f *Format) {
	*f = FormatTable
	fs.VarP(f, "output", "o", "table, wide, json or yaml")
}

// Table is what Print shows of a value: Wide columns follow the others with -o wide.
type Table struct {
	Columns, Wide []string
	Rows          [][]string // as many cells as there are columns of both kinds
	Empty         string     // printed when there is no row
	// Paint chooses the colour of a cell by its column and its text, where colours are shown; nil: none has one.
	Paint func(column, cell string) Colour
}

// Colour of a cell on a terminal.
type Colour string

// The colours are those of the terminal's own palette.
const (
	NoColour Colour = ""
	Red      Colour = "\x1b[31m"
	Green    Colour = "\x1b[32m"
	Yellow   Colour = "\x1b[33m"
	Grey     Colour = "\x1b[90m"
)

// paintOnly colours the cells of one column that have these texts.
func paintOnly(in string, colours map[string]Colour) func(column, cell string) Colour {
	return func(column, cell string) Colour {
		if column != in {
			return NoColour
		}
		return colours[cell]
	}
}

// paint surrounds a text with a colour.
func (c Colour) paint(text string) string {
	if c == NoColour || text == "" {
		return text
	}
	return string(c) + text + "\x1b[0m"
}

// Print writes the value as JSON or YAML, or the table.
func Print(w io.Writer, format Format, value any, table Table) error {
	switch format {
	case FormatJSON:
		encoded, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			return fmt.Errorf("encoding: %w", err)
		}
		_, err = fmt.Fprintln(w, string(encoded))
		return err
	case FormatYAML:
		encoded, err := yaml.Marshal(value)
		if err != nil {
			return fmt.Errorf("encoding: %w", err)
		}
		_, err = w.Write(encoded)
		return err
	}
	return printTable(w, table, format == FormatWide, false)
}

// printTable writes a table, or its sentence if it has no row. Without headers, for scripts, nothing is written then.
func printTable(w io.Writer, table Table, wide, noHeaders bool) error {
	text := table.Empty + "\n"
	switch {
	case len(table.Rows) > 0:
		text = table.text(wide, Coloured(w), noHeaders)
	case noHeaders:
		return nil
	}
	_, err := io.WriteString(w, text)
	return err
}

// gap is between two columns.
const gap = 3

// text aligns the columns.
func (t Table) text(wide, coloured, noHeaders bool) string {
	columns := t.Columns
	if wide {
		columns = slices.Concat(t.Columns, t.Wide)
	}
	var rows [][]string
	headers := 0
	if !noHeaders {
		rows, headers = append(rows, columns), 1
	}
	for _, row := range t.Rows {
		cells := make([]string, len(columns))
		for i := range columns {
			cells[i] = printable(row[i])
		}
		rows = append(rows, cells)
	}
	widths := make([]int, len(columns))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], ansi.StringWidth(cell))
		}
	}
	var b strings.Builder
	for at, row := range rows {
		for i, cell := range row {
			shown := cell
			if at >= headers && coloured && t.Paint != nil {
				shown = t.Paint(columns[i], cell).paint(cell)
			}
			b.WriteString(shown)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-ansi.StringWidth(cell)+gap))
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Coloured says whether colours are shown on w: on a terminal, unless NO_COLOR is set.
func Coloured(w io.Writer) bool {
	if page, ok := w.(interface{ Coloured() bool }); ok {
		return page.Coloured()
	}
	return isTerminal(w) && os.Getenv("NO_COLOR") == ""
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
}

// printable keeps what others wrote from moving the terminal's cursor, or the table's columns.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}
