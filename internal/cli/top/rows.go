package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
)

// row is one line of a list; key tells it from the others whatever its place.
type row struct {
	key   string
	cells []string
}

func (m model) columns() []string {
	return [screens][]string{
		pools:    {"POOL", "IDLE", "BUSY", "STARTING", "DESIRED", "QUEUED", "BLOCKED", "OLDEST", "PROBLEM"},
		jobs:     {"ID", "STATE", "WAITED", "RAN", "WHY", "REPOSITORY", "POOL", "NAME"},
		accounts: {"ACCOUNT", "STATE", "PLATFORM", "CLOSEST", "JOBS", "CPU", "MEMORY", "QUEUED", "BLOCKED", "NO POOL"},
	}[m.at]
}

// rows are those of the present list that the filter lets through. The cells are those of the other commands' tables.
func (m model) rows() []row {
	var all []row
	columns := m.columns()
	switch m.at {
	case pools:
		table := cli.PoolTable(m.fleet.Pools.Pools, m.fleet.At)
		for i, p := range m.fleet.Pools.Pools {
			own := map[string]string{}
			if p.Intake != "" && p.Intake != "Open" && len(p.Problems) == 0 {
				own["PROBLEM"] = p.Intake
			}
			all = append(all, row{p.Namespace + "/" + p.Name, pick(table, i, columns, own)})
		}
	case jobs:
		table := cli.JobTable(m.fleet.Jobs, m.fleet.At)
		for i, j := range m.fleet.Jobs {
			why := map[string]string{"WHY": few(m.fleet.Why[j.ID])}
			all = append(all, row{strconv.FormatInt(j.ID, 10), pick(table, i, columns, why)})
		}
	case accounts:
		for _, a := range m.fleet.Accounts {
			table := cli.AccountTable([]adminapi.Account{a})
			for i := range table.Rows {
				name := map[string]string{"ACCOUNT": a.Login} // the table has it in the first row only, and a filter may hide that row
				all = append(all, row{fmt.Sprintf("%d/%d", a.ID, i), pick(table, i, columns, name)})
			}
		}
	}
	return slices.DeleteFunc(all, func(r row) bool { return !m.fits(r.cells) })
}

// pick selects cells by the names of their columns; own ones take precedence over the table's.
func pick(table cli.Table, at int, columns []string, own map[string]string) []string {
	names := slices.Concat(table.Columns, table.Wide)
	cells := make([]string, len(columns))
	for i, column := range columns {
		text, ok := own[column]
		if !ok {
			text = table.Rows[at][slices.Index(names, column)]
		}
		cells[i] = plain(text)
	}
	return cells
}

// few makes a code words.
func few(code string) string { return cmp.Or(strings.ReplaceAll(code, "-", " "), "-") }

// job is the chosen one.
func (m model) job() (adminapi.Job, bool) {
	if m.at != jobs {
		return adminapi.Job{}, false
	}
	for _, j := range m.fleet.Jobs {
		if strconv.FormatInt(j.ID, 10) == m.selected[jobs] {
			return j, true
		}
	}
	return adminapi.Job{}, false
}

// nearest are the limits with the highest use, highest first.
func (m model) nearest(most int) []string {
	type near struct {
		text    string
		percent int64
	}
	var all []near
	for _, a := range m.fleet.Accounts {
		for _, b := range a.Budgets {
			if limit, percent := cli.Closest(b); b.Usage.Jobs > 0 { // an idle account is close to no limit
				all = append(all, near{fmt.Sprintf("%4d%%  %s of %s on %s", percent, limit, plain(a.Login), plain(b.Platform)), percent})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b near) int { return cmp.Compare(b.percent, a.percent) })
	var lines []string
	for _, n := range all[:min(most, len(all))] {
		lines = append(lines, n.text)
	}
	return lines
}
