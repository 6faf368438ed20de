package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
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
		return fmt.Errorf("choose table, wide, json or yaml")
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
	Empty         string     // what is said when there is no row
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
	if len(table.Rows) == 0 {
		_, err := fmt.Fprintln(w, table.Empty)
		return err
	}
	columns := table.Columns
	if format == FormatWide {
		columns = slices.Concat(table.Columns, table.Wide)
	}
	out := tabwriter.NewWriter(w, 0, 4, 3, ' ', 0)
	fmt.Fprintln(out, strings.Join(columns, "\t"))
	for _, row := range table.Rows {
		cells := make([]string, len(columns))
		for i := range columns {
			cells[i] = printable(row[i])
		}
		fmt.Fprintln(out, strings.Join(cells, "\t"))
	}
	return out.Flush()
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
