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
	}
	for _, e := range events {
		t.Rows = append(t.Rows, []string{
			short(now.Sub(e.At)), e.Type, e.Reason, e.Object(), e.Message,
			strconv.Itoa(int(e.Count)), short(now.Sub(e.First)), e.Namespace, dash(e.Related), dash(e.Reporter),
		})
	}
	return t
}

// PrintEvent writes one event as a line, with fixed column widths. JSON and YAML are one document for each.
func PrintEvent(w io.Writer, format Format, e clusterevents.Event) error {
	var err error
	switch format {
	case FormatJSON:
		err = json.NewEncoder(w).Encode(e)
	case FormatYAML:
		if _, err = io.WriteString(w, "---\n"); err == nil {
			err = Print(w, format, e, Table{})
		}
	case FormatWide:
		_, err = fmt.Fprintf(w, "%s  %-7s  %-22s  %-40s  %4d  %-18s  %-18s  %s\n", e.At.UTC().Format(time.RFC3339), printable(e.Type), printable(e.Reason), printable(e.Object()),
			e.Count, printable(e.Namespace), printable(e.Reporter), printable(e.Message))
	default:
		_, err = fmt.Fprintf(w, "%s  %-7s  %-22s  %-40s  %s\n", e.At.UTC().Format(time.TimeOnly), printable(e.Type), printable(e.Reason), printable(e.Object()), printable(e.Message))
	}
	if err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}
