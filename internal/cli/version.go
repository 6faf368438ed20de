package cli

import "cmp"

// VersionReport is what `bullpen version` prints.
type VersionReport struct {
	Client   string `json:"client"`
	Platform string `json:"platform"` // of the client
	Server   string `json:"server,omitempty"`
	// Problem says why the server's version is not known.
	Problem string `json:"problem,omitempty"`
}

// Table shows both versions, or the client's alone.
func (r VersionReport) Table(clientOnly bool) Table {
	t := Table{Columns: []string{"PART", "VERSION", "DETAIL"}, Rows: [][]string{{"client", r.Client, r.Platform}}}
	if !clientOnly {
		t.Rows = append(t.Rows, []string{"server", cmp.Or(r.Server, "unknown"), r.Problem})
	}
	return t
}
