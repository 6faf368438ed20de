package fields_test

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/cli/fields"
)

type demand struct {
	Queued int64 `json:"queued"`
}

type row struct {
	ID       int64      `json:"id"`
	Name     string     `json:"name"`
	Labels   []string   `json:"labels"`
	Share    float64    `json:"share"`
	Deleting bool       `json:"deleting,omitempty"`
	Demand   *demand    `json:"demand,omitempty"`
	At       *time.Time `json:"at,omitempty"`
	Plain    string
	Hidden   string `json:"-"`
	private  string
}

func value(t *testing.T, v any) any {
	t.Helper()
	out, err := fields.Value(v)
	require.NoError(t, err)
	return out
}

func at(text string) *time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return &at
}

func TestNames(t *testing.T) {
	type more struct {
		row
		Last string `json:"last"`
	}
	names := []string{"id", "name", "labels", "share", "deleting", "demand", "at", "Plain"}
	require.Equal(t, names, fields.Names(reflect.TypeFor[row]()))
	require.Equal(t, append(names, "last"), fields.Names(reflect.TypeFor[more]()))
	require.Empty(t, row{}.private)
}

// A field is written as kubectl takes it, and begins with one that there is.
func TestParsePath(t *testing.T) {
	known := []string{"id", "labels", "demand"}
	data := value(t, row{ID: 31415926535, Labels: []string{"a", "b"}, Demand: &demand{Queued: 7}})
	for text, want := range map[string][]any{
		"id": {int64(31415926535)}, ".id": {int64(31415926535)}, "{.id}": {int64(31415926535)}, " { .id } ": {int64(31415926535)}, "$.id": {int64(31415926535)},
		"{$.id}": {int64(31415926535)}, "demand.queued": {int64(7)}, ".labels[*]": {"a", "b"}, ".labels[-1]": {"b"}, ".labels[0,1]": {"a", "b"}, `.labels[?(@ == "b")]`: {"b"},
		".demand.nothing": nil, "['id']": {int64(31415926535)},
	} {
		path, err := fields.ParsePath(text, known)
		require.NoError(t, err, text)
		for range 2 { // an expression can be used again
			found, err := path.Find(data)
			require.NoError(t, err, text)
			require.Equal(t, want, found, text)
		}
	}
	for _, bad := range []string{"", "{}", ".", "{.id", ".id}", "{.id}{.name}", ".labels[", ".labels[?(@=]", "{range .id}"} {
		_, err := fields.ParsePath(bad, nil)
		require.ErrorIs(t, err, fields.ErrSyntax, bad)
	}
	_, err := fields.ParsePath("{.metadata.name}", known)
	var unknown *fields.UnknownError
	require.ErrorAs(t, err, &unknown)
	require.Equal(t, &fields.UnknownError{Field: "metadata", Known: known}, unknown)
	require.EqualError(t, err, "unknown field metadata: expected one of id, labels, demand")
	_, err = fields.ParsePath(".metadata", nil)
	require.NoError(t, err, "without names any will do")
}

// An index from the end is counted again for each value.
func TestPath_ValuesOfDifferentLength(t *testing.T) {
	path, err := fields.ParsePath(".labels[-1]", nil)
	require.NoError(t, err)
	for _, labels := range [][]string{{"a", "b", "c"}, {"d"}, {"e", "f"}} {
		found, err := path.Find(value(t, row{Labels: labels}))
		require.NoError(t, err)
		require.Equal(t, []any{labels[len(labels)-1]}, found)
	}
}

func TestTemplate(t *testing.T) {
	list := value(t, map[string]any{"items": []row{{ID: 10000000001, Name: "a", Labels: []string{"x"}}, {ID: 2, Name: "b"}}})
	for text, want := range map[string]string{
		"{.items[*].name}": "a b", "{.items[0].id}": "10000000001", `{range .items[*]}{.name}={.id}{"\n"}{end}`: "a=10000000001\nb=2\n",
		`{.items[?(@.name=="b")].id}`: "2", "{.items[0].labels}": `["x"]`, "{.nothing}": "", "n: {.items[1].name}": "n: b", "{.items[?(@.id>5)].name}": "a",
	} {
		template, err := fields.ParseTemplate(text)
		require.NoError(t, err, text)
		for range 2 {
			var out bytes.Buffer
			require.NoError(t, template.Write(&out, list), text)
			require.Equal(t, want, out.String(), text)
		}
	}
	for _, bad := range []string{"", ".name", "{.name", "{.items[}", "{.items[*]"} {
		_, err := fields.ParseTemplate(bad)
		require.ErrorIs(t, err, fields.ErrSyntax, bad)
	}
	template, err := fields.ParseTemplate("begun {.items[5].name}")
	require.NoError(t, err)
	var out bytes.Buffer
	require.ErrorContains(t, template.Write(&out, list), "applying the template")
	require.Empty(t, out.String(), "nothing is printed of a template that fails")
}

func TestColumns(t *testing.T) {
	known := []string{"id", "name", "labels", "demand", "share", "deleting"}
	columns, err := fields.ParseColumns("ID:.id, NAME:name,FIRST:{.labels[0,1]},ALL:.labels,QUEUED:.demand.queued,DEMAND:.demand,S:.share,D:.deleting", known)
	require.NoError(t, err)
	var headers, cells []string
	for _, column := range columns {
		cell, err := column.Cell(value(t, row{ID: 10000000001, Name: "a", Labels: []string{"x", "y"}, Share: 0.5, Deleting: true}))
		require.NoError(t, err)
		headers, cells = append(headers, column.Header), append(cells, cell)
	}
	require.Equal(t, []string{"ID", "NAME", "FIRST", "ALL", "QUEUED", "DEMAND", "S", "D"}, headers)
	require.Equal(t, []string{"10000000001", "a", "x,y", `["x","y"]`, "<none>", "<none>", "0.5", "true"}, cells)
	for _, bad := range []string{"", "ID", "ID:", ":.id", "ID:.id,", "ID:.id,,NAME:.name", "ID:{.id"} {
		_, err := fields.ParseColumns(bad, known)
		require.ErrorIs(t, err, fields.ErrSyntax, bad)
	}
	_, err = fields.ParseColumns("ID:.id,NODE:.node", known)
	require.ErrorContains(t, err, "unknown field node")
}

// Values are in the order of numbers, times, and names with numbers in them; missing ones come first.
func TestOrder(t *testing.T) {
	rows := []row{
		{ID: 9007199254740993, Name: "linux-16", Share: 0.5, At: at("2026-03-01T12:00:00Z")},
		{ID: 9007199254740992, Name: "linux-4", Share: 2, At: at("2026-03-01T12:00:00.5Z"), Demand: &demand{Queued: 3}},
		{ID: 10, Name: "linux-4a", Deleting: true, At: at("2026-03-01T13:00:00+02:00")},
		{ID: 9, Name: "big", Share: 0.5},
	}
	var values []any
	for _, r := range rows {
		values = append(values, value(t, r))
	}
	for text, want := range map[string][]int{
		"id": {3, 2, 1, 0}, "name": {3, 1, 2, 0}, "share": {2, 0, 3, 1}, "at": {3, 2, 0, 1}, "deleting": {0, 1, 3, 2}, "demand.queued": {0, 2, 3, 1},
	} {
		path, err := fields.ParsePath(text, nil)
		require.NoError(t, err)
		order, err := fields.Order(values, path)
		require.NoError(t, err, text)
		require.Equal(t, want, order, text)
	}
	for _, text := range []string{"labels", "demand"} {
		path, err := fields.ParsePath(text, nil)
		require.NoError(t, err)
		_, err = fields.Order([]any{value(t, row{Labels: []string{"a"}, Demand: &demand{}})}, path)
		require.ErrorIs(t, err, fields.ErrUnsortable, text)
	}
}

func TestOrder_NamesWithNumbers(t *testing.T) {
	path, err := fields.ParsePath("name", nil)
	require.NoError(t, err)
	var values []any
	for _, name := range []string{"a10b2", "a2", "a010b1", "b", "", "a2b", "a99999999999999999999999"} {
		values = append(values, value(t, row{Name: name}))
	}
	order, err := fields.Order(values, path)
	require.NoError(t, err)
	require.Equal(t, []int{4, 1, 5, 2, 0, 6, 3}, order)
}
