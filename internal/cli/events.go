package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/bullpen-ci/bullpen/internal/cli/clusterevents"
)

// EventTable shows events, newest last.
func EventTable(events []clusterevents.Event, now time.Time) Table {
	t := Table{
		Columns: []string{"LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"},
		Wide:    []string{"COUNT", "FIRST SEEN", "NAMESPACE", "RELATED", "REPORTER"},
		Empty:   "No events found. Kubernetes deletes events after an hour; see `bullpen audit` for changes and `bullpen jobs --completed` for past jobs.",
		Paint:   paintEvent,
	}
	for _, e := range events {
		t.Rows = append(t.Rows, []string{
			short(now.Sub(e.At)), e.Type, e.Reason, e.Object(), e.Message,
			strconv.Itoa(int(e.Count)), short(now.Sub(e.First)), e.Namespace, dash(e.Related), dash(e.Reporter),
		})
	}
	return t
}

// paintEvent colours warnings.
var paintEvent = paintOnly("TYPE", map[string]Colour{"Warning": Yellow})

// EventRows prints events.
func EventRows(now time.Time) Rows[clusterevents.Event] {
	return Rows[clusterevents.Event]{
		Kind: "event", Name: clusterevents.Event.ObjectName,
		Table: func(events []clusterevents.Event) Table { return EventTable(events, now) },
	}
}

// PrintEvent writes one event of a watch: as a line with fixed column widths, or as a document of its own. A line of custom columns has no headers.
func PrintEvent(w io.Writer, o *Output, e clusterevents.Event) error {
	var err error
	switch {
	case o.quiet, o.format == FormatName, o.format == FormatPath:
		return EventRows(e.At).PrintOne(w, o, e)
	case o.format == FormatColumns:
		return printCustom(w, o, true, []clusterevents.Event{e})
	case o.format == FormatJSON:
		err = json.NewEncoder(w).Encode(e)
	case o.format == FormatYAML:
		if _, err = io.WriteString(w, "---\n"); err == nil {
			err = Print(w, o.format, e, Table{})
		}
	case o.format == FormatWide:
		_, err = fmt.Fprintf(w, "%s  %s  %-22s  %-40s  %4d  %-18s  %-18s  %s\n", e.At.UTC().Format(time.RFC3339), eventType(w, e), printable(e.Reason), printable(e.Object()),
			e.Count, printable(e.Namespace), printable(e.Reporter), printable(e.Message))
	default:
		_, err = fmt.Fprintf(w, "%s  %s  %-22s  %-40s  %s\n", e.At.UTC().Format(time.TimeOnly), eventType(w, e), printable(e.Reason), printable(e.Object()), printable(e.Message))
	}
	if err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// eventType is the type of an event, in the width of its column and in its colour.
func eventType(w io.Writer, e clusterevents.Event) string {
	text := fmt.Sprintf("%-7s", printable(e.Type))
	if !Coloured(w) {
		return text
	}
	return paintEvent("TYPE", e.Type).paint(text)
}
