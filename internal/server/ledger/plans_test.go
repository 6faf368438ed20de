package ledger_test

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// growing are the tables that grow with jobs, pods or accounts. A statement that reads one of them from its beginning to
// its end costs more every day.
var growing = []string{
	"workflow_jobs", "job_tombstones", "job_lanes", "runner_claims", "runner_registrations", "runner_sessions", "webhook_deliveries", "delivery_asks",
	"audit_events", "repositories", "accounts", "account_limits",
}

// wholeTables are the queries that read a growing table as a whole, and why each may: how often, and what it would take to do without.
var wholeTables = map[string]string{
	"PoolRunners":      claimsOfPods + "; for the signals of pools, every few seconds",
	"SessionChanges":   claimsOfPods + "; for the peaks of pools, every few minutes",
	"StartedJobs":      openSessions + "; when pools are sampled, every minute",
	"UsageByDay":       openSessions + "; when a user opens the page of usage",
	"RepositoryScopes": "registrations that may be alive are of pods that exist; when claims are rebuilt after a restore",
	"EndedPods":        claimsOfPods + "; in a pass that forgets pods that have gone",
	"ProvenEnds":       claimsOfPods + "; in a pass of recovery",

	"WaitingLanes":    "the accounts of all lanes that wait are what it is asked for; for the signals of pools, every few seconds",
	"UnparkLabelSets": "all lanes of some labels are what it is about; when a pool's labels or shape were changed",
	"UnservedLanes":   "each lane is read once, to find the oldest of those that no pool serves; twice a minute, and by clients at most every ten seconds",
	"ParkedLanes":     "a gauge of lanes, as often as it is scraped; a row for each account and set of labels",
	"LeakedLanes":     "each lane that is not parked as empty is read once; in a pass of retention",

	"InstalledAccounts": "all accounts are what it is asked for; in a comparison with GitHub's list of installations",
	"ReadableAccounts":  "all accounts are what it is asked for; in a pass that asks GitHub about each",

	"SettleAsks":     openAsks,
	"SettleRecorded": openAsks,

	"RerunsOfRun": "the jobs that run now are read; when a job was lost with its pod, and is run again",

	"PruneRegistrations":    oncePerPass + "; those of pods that have a row are passed over, until the pod is forgotten",
	"ForgetDeletedAccounts": oncePerPass + "; jobs are read for those accounts alone that an administrator has deleted",

	"DisownClaims":       onceEver,
	"PurgeRegistrations": onceEver,
}

const (
	openAsks     = "an index of those deliveries that GitHub was asked for and has not sent: few, and none after a few hours"
	openSessions = "an index has the sessions that are open, which are of pods that exist: it is read whole, and the table is not"
	claimsOfPods = "claims are of pods that exist: whatever is forgotten with its pod has no row"
	oncePerPass  = "accounts are read, in a pass of retention"
	onceEver     = "when an administrator deletes an account; an index would cost each write of a claim or registration more than that ever does"
)

// node is a part of a plan, as EXPLAIN (FORMAT JSON) has it.
type node struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Cond     string  `json:"Index Cond"`
	Filter   string  `json:"Filter"`
	Compared string  `json:"Join Filter"`
	Rows     float64 `json:"Plan Rows"`
	Plans    []node  `json:"Plans"`

	// Those that only EXPLAIN ANALYZE has, for reads_test.go.
	Parent    string  `json:"Parent Relationship"`
	Operation string  `json:"Operation"`
	Subplan   string  `json:"Subplan Name"`
	CTE       string  `json:"CTE Name"`
	Actual    float64 `json:"Actual Rows"`
	Loops     float64 `json:"Actual Loops"`
	Filtered  float64 `json:"Rows Removed by Filter"`
	Rechecked float64 `json:"Rows Removed by Index Recheck"`
	Hit       float64 `json:"Shared Hit Blocks"`
	Read      float64 `json:"Shared Read Blocks"`
}

// whole are the growing tables that a plan reads as a whole, or of which it expects thousands of rows with nothing to end it.
func (n node) whole(limited bool) []string {
	var found []string
	limited = limited || n.Type == "Limit"
	if slices.Contains(growing, n.Relation) && n.Type != "ModifyTable" && (n.Type == "Seq Scan" || (n.Rows > 5000 || n.all()) && !limited) {
		found = append(found, fmt.Sprintf("%s (%s, %.0f)", n.Relation, n.Type, n.Rows))
	}
	for _, below := range n.Plans {
		found = append(found, below.whole(limited)...)
	}
	return found
}

// all: every entry of an index is read, and filtered.
func (n node) all() bool {
	return (n.Type == "Index Scan" || n.Type == "Index Only Scan") && n.Cond == "" && n.Filter != ""
}

// queries are the texts of all that sqlc has made functions of, by name.
func queries(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("sqlcgen/*.sql.go")
	require.NoError(t, err)
	found := map[string]string{}
	name := regexp.MustCompile(`^-- name: (\w+) :`)
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				text, err := strconv.Unquote(literal.Value)
				require.NoError(t, err)
				if match := name.FindStringSubmatch(text); match != nil {
					found[match[1]] = text
				}
			}
			return true
		})
	}
	require.Greater(t, len(found), 150)
	return found
}

var parameter = regexp.MustCompile(`\$(\d+)`)

// plan is the one that serves any parameters: with those of a moment a plan may be better, and is never chosen for being worse.
func plan(t *testing.T, conn *pgx.Conn, name, text string) node {
	t.Helper()
	ctx := context.Background()
	_, err := conn.Exec(ctx, "PREPARE looked AS "+text)
	require.NoError(t, err, name)
	most := 0
	for _, match := range parameter.FindAllStringSubmatch(text, -1) {
		n, err := strconv.Atoi(match[1])
		require.NoError(t, err)
		most = max(most, n)
	}
	execute := "EXPLAIN (FORMAT JSON) EXECUTE looked"
	if most > 0 {
		execute += "(" + strings.TrimSuffix(strings.Repeat("NULL,", most), ",") + ")"
	}
	var out []byte
	require.NoError(t, conn.QueryRow(ctx, execute, pgx.QueryExecModeSimpleProtocol).Scan(&out), name)
	_, err = conn.Exec(ctx, "DEALLOCATE looked")
	require.NoError(t, err)
	var plans []struct{ Plan node }
	require.NoError(t, json.Unmarshal(out, &plans), name)
	return plans[0].Plan
}

// No query of the ledger reads a table that grows from its beginning to its end, but those that say why they may.
func TestPlans_NoQueryReadsAGrowingTableWhole(t *testing.T) {
	url := postgrestest.NewDatabase(t, ledger.Migrate)
	ledgertest.Fill(t, url, ledgertest.Size{Queued: 120_000, Accounts: 6_000, Free: 20})
	pool, err := ledger.OpenPool(t.Context(), url, 1) // whose connections plan as those of the store do
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	acquired, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	t.Cleanup(acquired.Release)
	conn := acquired.Conn()
	found := map[string]string{}
	all := queries(t)
	for name, text := range all {
		if whole := plan(t, conn, name, text).whole(false); len(whole) > 0 {
			found[name] = fmt.Sprint(whole)
		}
	}
	for name, tables := range found {
		if wholeTables[name] == "" {
			t.Errorf("%s reads whole: %s", name, tables)
		}
	}
	// Whether one of these reads a table that is not so large whole, or by an index, is close: samples decide.
	for name := range wholeTables {
		require.Contains(t, all, name, "there is no such query any more")
	}
}

// filters are the conditions that rows of lanes are discarded by.
func (n node) filters() []string {
	var found []string
	if n.Relation == "job_lanes" && n.Filter != "" {
		found = append(found, n.Filter)
	}
	for _, below := range n.Plans {
		found = append(found, below.filters()...)
	}
	return found
}

// TEN-1: a lane is not compared with each label set that a pool serves, however few lanes there were when the statement was planned.
func TestPlans_TEN1_WhatPoolsServeIsHashed(t *testing.T) {
	pool, err := ledger.OpenPool(t.Context(), postgrestest.NewDatabase(t, ledger.Migrate), 1)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	acquired, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	t.Cleanup(acquired.Release)
	filters := strings.Join(plan(t, acquired.Conn(), "UnservedLanes", queries(t)["UnservedLanes"]).filters(), "; ")
	require.Contains(t, filters, "hashed SubPlan")
}

// joined are the conditions by which the plan compares each row of one list with each of another: work that grows with the
// square of a batch.
func (n node) joined() []string {
	var found []string
	if n.Compared != "" && strings.Contains(n.Compared, " = ") {
		found = append(found, n.Compared)
	}
	for _, below := range n.Plans {
		found = append(found, below.joined()...)
	}
	return found
}

// comparisons are the queries that compare lists, and why each may: their lists are not those of a batch of jobs or mints.
var comparisons = map[string]string{
	"CloseStraySession":     ofAPass,
	"ExpireJobs":            ofAPass,
	"ForgetDeletedAccounts": ofAPass,
	"SetAside":              "the repositories of a batch that are at their share",
	"FreeRoom":              ofAnAccount,
	"UnparkAccount":         ofAnAccount,
}

const (
	ofAPass     = "a pass of retention or recovery, so many rows at a time"
	ofAnAccount = "the label sets of one account"
)

// A job's cost in the ledger does not grow with the batch that it is claimed or recorded with.
func TestPlans_NoBatchIsComparedWithItself(t *testing.T) {
	pool, err := ledger.OpenPool(t.Context(), postgrestest.NewDatabase(t, ledger.Migrate), 1)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	acquired, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	t.Cleanup(acquired.Release)
	all := queries(t)
	for name, text := range all {
		if joined := plan(t, acquired.Conn(), name, text).joined(); len(joined) > 0 && comparisons[name] == "" {
			t.Errorf("%s compares list with list: %s", name, joined)
		}
	}
	for name := range comparisons {
		require.Contains(t, all, name, "there is no such query any more")
	}
}

// TEN-1: a search for lanes without a job reads those of the account, and probes the jobs of each by an index.
func TestPlans_TEN1_LanesToEvictAreFoundByIndexes(t *testing.T) {
	url := postgrestest.NewDatabase(t, ledger.Migrate)
	ledgertest.Fill(t, url, ledgertest.Size{Queued: 10_000, Accounts: 100, Free: 1})
	pool, err := ledger.OpenPool(t.Context(), url, 1)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	acquired, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	t.Cleanup(acquired.Release)
	found := map[string][]string{}
	plan(t, acquired.Conn(), "EvictLanes", queries(t)["EvictLanes"]).indexes(found)
	require.Equal(t, map[string][]string{
		"job_lanes": {"", "job_lanes_account"}, "workflow_jobs": {"workflow_jobs_executing_lane", "workflow_jobs_held_lane", "workflow_jobs_queue"},
	}, found)
}

// indexes are those that each table is read by, in order; of a row that was found before: none.
func (n node) indexes(found map[string][]string) {
	if n.Relation != "" && n.Type != "ModifyTable" {
		if n.Type == "Tid Scan" || n.Index != "" {
			found[n.Relation] = append(found[n.Relation], n.Index)
		} else {
			found[n.Relation] = append(found[n.Relation], n.Type)
		}
		slices.Sort(found[n.Relation])
	}
	for _, below := range n.Plans {
		below.indexes(found)
	}
}
