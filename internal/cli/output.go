package cli

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
	"github.com/bullpen-ci/bullpen/internal/cli/fields"
)

// Formats of commands that list rows, or get one. The last two take a template or columns after the equals sign.
const (
	FormatCSV     Format = "csv" // of usage only
	FormatName    Format = "name"
	FormatPath    Format = "jsonpath="
	FormatColumns Format = "custom-columns="
)

// Output is how a command prints rows, or one of them: the flags -o, --no-headers, --sort-by and -q, with kubectl's meaning. It is the value of -o.
type Output struct {
	// Fields are the JSON fields of a row: what --sort-by and custom-columns take.
	Fields []string
	// CSV: the rows can be printed as CSV. Nameless: they have no name that -o name could print.
	CSV, Nameless bool

	format           Format // empty: table
	template         fields.Template
	columns          []fields.Column
	sortBy           sortBy
	noHeaders, quiet bool
	list             bool
}

// OutputOf is the output of rows of a type.
func OutputOf[T any]() Output { return Output{Fields: fields.Names(reflect.TypeFor[T]())} }

// ListFlags adds the flags of a command that lists rows.
func (o *Output) ListFlags(fs *pflag.FlagSet) {
	o.flags(fs)
	o.list = true
	o.sortBy.known = o.Fields
	fs.Var(&o.sortBy, "sort-by", "sort the rows that are shown by this field of the JSON, in ascending order, such as ."+o.example())
}

// GetFlags adds the flags of a command that prints one row.
func (o *Output) GetFlags(fs *pflag.FlagSet) { o.flags(fs) }

func (o *Output) flags(fs *pflag.FlagSet) {
	fs.VarP(o, "output", "o", alternatives(o.Formats()))
	fs.BoolVar(&o.noHeaders, "no-headers", false, "print no column headers")
	if !o.Nameless {
		fs.BoolVarP(&o.quiet, "quiet", "q", false, "print names or IDs only, one per line, for scripts")
	}
}

// example is a field that help names.
func (o *Output) example() string {
	for _, name := range []string{"queuedAt", "createdAt", "at"} {
		if slices.Contains(o.Fields, name) {
			return name
		}
	}
	return o.Fields[0]
}

// Formats are the values of -o, with what stands for a template or columns.
func (o *Output) Formats() []string {
	formats := []string{string(FormatTable), string(FormatWide), string(FormatJSON), string(FormatYAML)}
	if o.CSV {
		formats = append(formats, string(FormatCSV))
	}
	if !o.Nameless {
		formats = append(formats, string(FormatName))
	}
	return append(formats, string(FormatPath)+"TEMPLATE", string(FormatColumns)+"HEADER:FIELD")
}

// alternatives joins words with commas and a last "or".
func alternatives(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// String makes an Output the value of -o.
func (o *Output) String() string {
	if o.format == "" {
		return string(FormatTable)
	}
	return string(o.format)
}

// Type is what help calls the value.
func (o *Output) Type() string { return "format" }

// Set accepts the formats only, with a template or columns that are valid.
func (o *Output) Set(text string) error {
	if template, ok := strings.CutPrefix(text, string(FormatPath)); ok {
		return o.setTemplate(template)
	}
	if columns, ok := strings.CutPrefix(text, string(FormatColumns)); ok {
		return o.setColumns(columns)
	}
	if !slices.Contains(o.Formats(), text) {
		return commandline.ValueError{Must: alternatives(o.Formats())}
	}
	o.format = Format(text)
	return nil
}

func (o *Output) setTemplate(text string) error {
	template, err := fields.ParseTemplate(text)
	if err != nil {
		return commandline.ValueError{Must: string(FormatPath) + " and a JSONPath template in braces, such as " + string(FormatPath) + o.exampleTemplate()}
	}
	o.format, o.template = FormatPath, template
	return nil
}

func (o *Output) exampleTemplate() string {
	if o.list {
		return "'{.items[*]." + o.Fields[0] + "}'"
	}
	return "'{." + o.Fields[0] + "}'"
}

func (o *Output) setColumns(text string) error {
	columns, err := fields.ParseColumns(text, o.Fields)
	var unknown *fields.UnknownError
	if errors.As(err, &unknown) {
		return commandline.ValueError{Must: string(FormatColumns) + " with fields of " + strings.Join(unknown.Known, ", ")}
	}
	if err != nil {
		return commandline.ValueError{Must: string(FormatColumns) + " and HEADER:FIELD, separated by commas, such as " + string(FormatColumns) +
			strings.ToUpper(o.Fields[0]) + ":." + o.Fields[0]}
	}
	o.format, o.columns = FormatColumns, columns
	return nil
}

// ForPeople says whether a table is printed, which a command may add to.
func (o *Output) ForPeople() bool {
	return !o.quiet && !o.noHeaders && (o.format == "" || o.format == FormatTable || o.format == FormatWide)
}

// sortBy is the value of --sort-by.
type sortBy struct {
	text  string
	path  fields.Path
	known []string
}

func (s *sortBy) String() string { return s.text }

// Type is what help calls the value.
func (s *sortBy) Type() string { return "field" }

// Set accepts a field of the rows.
func (s *sortBy) Set(text string) error {
	path, err := fields.ParsePath(text, s.known)
	if err != nil {
		return commandline.ValueError{Must: "a field of " + strings.Join(s.known, ", ")}
	}
	s.text, s.path = text, path
	return nil
}

// Rows says how values of one kind are printed.
type Rows[T any] struct {
	Kind  string         // of -o name, such as pool
	Name  func(T) string // nil: the rows are nameless
	Table func([]T) Table
}

// Print writes rows in the order of --sort-by.
func (r Rows[T]) Print(w io.Writer, o *Output, rows []T) error {
	if rows == nil {
		rows = []T{} // JSON has an empty list
	}
	rows, err := sorted(rows, o.sortBy)
	if err != nil {
		return err
	}
	return r.print(w, o, rows, rows)
}

// PrintOne writes one row. JSON, YAML and templates have the row itself, and no list.
func (r Rows[T]) PrintOne(w io.Writer, o *Output, row T) error { return r.print(w, o, []T{row}, row) }

// print writes rows; whole is what JSON has.
func (r Rows[T]) print(w io.Writer, o *Output, rows []T, whole any) error {
	switch {
	case o.quiet:
		return r.names(w, "", rows)
	case o.format == FormatName:
		return r.names(w, r.Kind+"/", rows)
	case o.format == FormatPath:
		return o.writeTemplate(w, whole)
	case o.format == FormatColumns:
		return printCustom(w, o, o.noHeaders, rows)
	case o.format == FormatJSON || o.format == FormatYAML:
		return Print(w, o.format, whole, Table{})
	}
	return printTable(w, r.Table(rows), o.format == FormatWide, o.noHeaders)
}

func (r Rows[T]) names(w io.Writer, prefix string, rows []T) error {
	var b strings.Builder
	for _, row := range rows {
		b.WriteString(prefix + printable(r.Name(row)) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (o *Output) writeTemplate(w io.Writer, whole any) error {
	hint := "`-o json` shows the fields"
	if reflect.TypeOf(whole).Kind() == reflect.Slice {
		whole = map[string]any{"items": whole}
		hint += ", and the list is at .items"
	}
	value, err := fields.Value(whole)
	if err != nil {
		return err
	}
	if err := o.template.Write(w, value); err != nil {
		return fmt.Errorf("%w. %s", err, hint)
	}
	return nil
}

func printCustom[T any](w io.Writer, o *Output, noHeaders bool, rows []T) error {
	var t Table
	for _, column := range o.columns {
		t.Columns = append(t.Columns, column.Header)
	}
	for _, row := range rows {
		value, err := fields.Value(row)
		if err != nil {
			return err
		}
		cells := make([]string, len(o.columns))
		for i, column := range o.columns {
			if cells[i], err = column.Cell(value); err != nil {
				return fmt.Errorf("column %s: %w", column.Header, err)
			}
		}
		t.Rows = append(t.Rows, cells)
	}
	_, err := io.WriteString(w, t.text(false, false, noHeaders))
	return err
}

// sorted returns rows in ascending order of a field, or as they are without one.
func sorted[T any](rows []T, by sortBy) ([]T, error) {
	if by.text == "" {
		return rows, nil
	}
	values := make([]any, len(rows))
	for i, row := range rows {
		value, err := fields.Value(row)
		if err != nil {
			return nil, err
		}
		values[i] = value
	}
	order, err := fields.Order(values, by.path)
	if err != nil {
		return nil, fmt.Errorf("--sort-by %s: %w", by.text, err)
	}
	out := make([]T, len(rows))
	for i, from := range order {
		out[i] = rows[from]
	}
	return out, nil
}
