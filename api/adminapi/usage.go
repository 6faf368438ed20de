package adminapi

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"time"
)

// PathUsage lists the usage of accounts: ?from=2026-01&to=2026-03&account=LOGIN.
const PathUsage = "/api/v1/usage"

// ResourceUsage is the resource of access reviews for usage.
const ResourceUsage = "usages"

// MonthFormat is the format of months: 2026-11.
const MonthFormat = "2006-01"

// MaxMonths is the maximum number of months in a request.
const MaxMonths = 24

// MonthUsage is the usage of one pool by one account in one month (UTC). A session is one runner, from its registration to the exit of its pod. Its
// seconds count in the months in which they passed, the session and its job in the month in which they began.
type MonthUsage struct {
	Account   string `json:"account"` // its login, or "@id" if it is unknown
	AccountID int64  `json:"accountId"`
	Month     string `json:"month"` // 2026-11
	Namespace string `json:"namespace"`
	Pool      string `json:"pool"`
	Platform  string `json:"platform"`
	Sessions  int64  `json:"sessions"`
	Jobs      int64  `json:"jobs"`
	// RunnerSeconds is the total lifetime of runners, JobSeconds the total duration of jobs.
	RunnerSeconds float64 `json:"runnerSeconds"`
	JobSeconds    float64 `json:"jobSeconds"`
	// CPUSeconds and MemoryGiBSeconds are RunnerSeconds times the CPU and memory of the pool's runners.
	CPUSeconds       float64 `json:"cpuSeconds"`
	MemoryGiBSeconds float64 `json:"memoryGiBSeconds"`
}

// UsageList is one page, by account and month.
type UsageList struct {
	Usage []MonthUsage `json:"usage"`
	AsOf  time.Time    `json:"asOf"`           // running sessions count up to here
	Next  int64        `json:"next,omitempty"` // the "after" of the next page; 0: this is the last
}

// WriteUsageCSV writes usage as CSV with a header, in full precision, for all downloads.
func WriteUsageCSV(w io.Writer, usage []MonthUsage) error {
	out := csv.NewWriter(w)
	rows := [][]string{{
		"account", "account_id", "month", "namespace", "pool", "platform", "sessions", "jobs", "runner_seconds", "job_seconds", "cpu_seconds", "memory_gib_seconds",
	}}
	exactly := func(seconds float64) string { return strconv.FormatFloat(seconds, 'f', 3, 64) }
	for _, u := range usage {
		rows = append(rows, []string{
			u.Account, strconv.FormatInt(u.AccountID, 10), u.Month, u.Namespace, u.Pool, u.Platform, strconv.FormatInt(u.Sessions, 10),
			strconv.FormatInt(u.Jobs, 10), exactly(u.RunnerSeconds), exactly(u.JobSeconds), exactly(u.CPUSeconds), exactly(u.MemoryGiBSeconds),
		})
	}
	if err := out.WriteAll(rows); err != nil {
		return fmt.Errorf("writing CSV: %w", err)
	}
	return nil
}
