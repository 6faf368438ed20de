package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// AccountTable shows accounts, one row per account and platform.
func AccountTable(accounts []adminapi.Account) Table {
	t := Table{
		Columns: []string{"ACCOUNT", "STATE", "PLATFORM", "JOBS", "CPU", "MEMORY", "CLOSEST", "PER REPO", "QUEUED", "BLOCKED", "NO POOL"},
		Wide:    []string{"ID", "KIND", "INSTALLATION", "VERSION", "REASON"},
		Empty:   "No accounts found. Install the GitHub App in an organization or for a user.",
		Paint:   paintAccount,
	}
	for _, a := range accounts {
		budgets := a.Budgets
		if len(budgets) == 0 {
			budgets = []adminapi.Budget{{Platform: "-"}}
		}
		for i, b := range budgets {
			row := []string{"", "", b.Platform, "-", "-", "-", "-", "-", "", "", ""}
			if b.Platform != "-" {
				row = []string{
					"", "", b.Platform, fmt.Sprintf("%d/%d", b.Usage.Jobs, b.Limits.Jobs),
					fleet.FormatCPU(b.Usage.MilliCPU) + "/" + fleet.FormatCPU(b.Limits.MilliCPU),
					fleet.FormatMemory(b.Usage.MemoryMB) + "/" + fleet.FormatMemory(b.Limits.MemoryMB), closest(b), orDash(b.Limits.JobsPerRepository), "", "", "",
				}
			}
			wide := []string{"", "", "", "", ""}
			if i == 0 { // the account's own columns are in its first row
				row[0], row[1] = a.Login, accountState(a)
				row[8], row[9], row[10] = count(a.Queued), count(a.Blocked), count(a.Unserved)
				wide = []string{
					strconv.FormatInt(a.ID, 10), a.Kind, orDash(a.InstallationID), strconv.FormatInt(a.Version, 10), a.SuspensionReason,
				}
			}
			t.Rows = append(t.Rows, append(row, wide...))
		}
	}
	return t
}

// paintAccount colours accounts whose jobs do not start.
func paintAccount(column, cell string) Colour {
	state, _, _ := strings.Cut(cell, " ")
	switch {
	case column == "CLOSEST" && atFullUse(cell):
		return Red
	case column != "STATE":
		return NoColour
	case adminapi.AccountState(state) == adminapi.AccountSuspended:
		return Yellow
	case adminapi.AccountState(state) == adminapi.AccountUninstalled, adminapi.AccountState(state) == adminapi.AccountDeleted:
		return Grey
	}
	return NoColour
}

// atFullUse says whether a cell of the column CLOSEST is 100% or more.
func atFullUse(cell string) bool {
	digits, _, _ := strings.Cut(cell, "%")
	percent, err := strconv.Atoi(digits)
	return err == nil && percent >= 100
}

// AccountRows prints accounts.
func AccountRows() Rows[adminapi.Account] {
	return Rows[adminapi.Account]{Kind: "account", Name: func(a adminapi.Account) string { return a.Login }, Table: AccountTable}
}

// AuditRows prints audit events.
func AuditRows() Rows[adminapi.AuditEvent] {
	return Rows[adminapi.AuditEvent]{Kind: "audit", Name: func(e adminapi.AuditEvent) string { return strconv.FormatInt(e.ID, 10) }, Table: AuditTable}
}

// closest names the limit that is reached first, and how much of it is in use. The percentage is rounded down, so 100% means that the limit is
// reached. It is more than 100% after a limit was lowered below what is in use. A limit of zero is always reached.
func closest(b adminapi.Budget) string {
	name, percent := Closest(b)
	return strconv.FormatInt(percent, 10) + "% " + name
}

// Closest is the limit of a budget that is reached first (jobs, cpu or memory), and how much of it is in use, in percent.
func Closest(b adminapi.Budget) (limit string, percent int64) {
	name, most := "", int64(-1)
	for _, l := range []struct {
		name        string
		used, limit int64
	}{
		{"jobs", b.Usage.Jobs, b.Limits.Jobs}, {"cpu", b.Usage.MilliCPU, b.Limits.MilliCPU}, {"memory", b.Usage.MemoryMB, b.Limits.MemoryMB},
	} {
		percent := int64(100)
		if l.limit > 0 {
			percent = l.used * 100 / l.limit
		}
		if percent > most {
			name, most = l.name, percent
		}
	}
	return name, most
}

// NothingRuns is a warning that a limit of 0 keeps an account from starting jobs on a platform; "" if none does.
func NothingRuns(a adminapi.Account, platform string) string {
	for _, b := range a.Budgets {
		if b.Platform != platform {
			continue
		}
		for _, limit := range []struct {
			name string
			most int64
		}{{"job", b.Limits.Jobs}, {"CPU", b.Limits.MilliCPU}, {"memory", b.Limits.MemoryMB}} {
			if limit.most == 0 {
				return a.Login + " cannot start " + platformName(platform) + " jobs while its " + limit.name + " limit is 0. To pause it and keep its limits, run `bullpen accounts suspend " +
					a.Login + "`"
			}
		}
	}
	return ""
}

// platformName is the platform as its makers write it.
func platformName(platform string) string {
	switch fleet.Platform(platform) {
	case fleet.Linux:
		return "Linux"
	case fleet.MacOS:
		return "macOS"
	}
	return platform
}

func accountState(a adminapi.Account) string {
	var by []string
	if a.SuspendedByGitHub {
		by = append(by, "github")
	}
	if a.SuspendedByAdministrator {
		by = append(by, "administrator")
	}
	if len(by) == 0 {
		return string(a.State)
	}
	if a.State != adminapi.AccountSuspended {
		return string(a.State) + " (suspended by " + strings.Join(by, ", ") + ")"
	}
	return "suspended (" + strings.Join(by, ", ") + ")"
}

// orDash shows zero as a dash.
func orDash(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

// count marks a lower bound with a plus sign.
func count(n int64) string {
	if n >= adminapi.MaxQueued {
		return strconv.Itoa(adminapi.MaxQueued) + "+"
	}
	return strconv.FormatInt(n, 10)
}
