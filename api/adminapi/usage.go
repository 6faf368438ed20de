package adminapi

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"time"
)

// PathUsage says what accounts have used: ?from=2026-01&to=2026-03&account=LOGIN.
const PathUsage = "/api/v1/usage"

// ResourceUsage is what Kubernetes is asked about for usage.
const ResourceUsage = "usages"

// MonthFormat is how a month is written: 2026-11.
const MonthFormat = "2006-01"

// MaxMonths is how many months may be asked for at once.
const MaxMonths = 24

// MonthUsage is what the runners of one pool have done for one account in one month (UTC). A session is one runner, from its registration to the
// end of its pod; its seconds belong to the months in which they passed, and itself and its job to the one in which they began.
type MonthUsage struct {
	Account   string `json:"account"` // its login; "@id" when nothing is known of it any more
	AccountID int64  `json:"accountId"`
	Month     string `json:"month"` // 2026-11
	Namespace string `json:"namespace"`
	Pool      string `json:"pool"`
	Platform  string `json:"platform"`
	Sessions  int64  `json:"sessions"`
	Jobs      int64  `json:"jobs"`
	// RunnerSeconds is how long runners existed, JobSeconds how long they ran jobs.
	RunnerSeconds float64 `json:"runnerSeconds"`
	JobSeconds    float64 `json:"jobSeconds"`
	// CPUSeconds and MemoryGiBSeconds are RunnerSeconds times what the pool's runners may use.
	CPUSeconds       float64 `json:"cpuSeconds"`
	MemoryGiBSeconds float64 `json:"memoryGiBSeconds"`
}

// UsageList is one page, by account and month.
type UsageList struct {
	Usage []MonthUsage `json:"usage"`
	AsOf  time.Time    `json:"asOf"`           // sessions that have not ended are counted up to here
	Next  int64        `json:"next,omitempty"` // the "after" of the next page; 0: this is the last
}

// WriteUsageCSV writes usage as CSV in full precision, a line of names first. It is what every download of it looks like.
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
