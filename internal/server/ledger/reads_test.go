package ledger_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

var (
	ledgerJobs = flag.Int("ledger-jobs", 4*smallLedger, "TestReads: queued jobs of the large ledger, and as many that have ended")
	ledgerPage = flag.Bool("ledger-page", false, "TestReads: write docs/internals/queries.md")
)

// smallLedger has what large ones have, less often: an account has a hundred jobs that wait in either.
const smallLedger = 10_000

// reader is one sample of a query: what EXPLAIN (ANALYZE, BUFFERS) says of it.
type reader struct {
	pages, rows float64 // that were read, in memory or on disk
	touched     bool    // it has found or written a row
	plan        string
}

// grows: it has read more than one that finds the same in a small ledger and in a large one. There, an index is a level or two higher, and rows that
// stood on one page stand on many.
func grows(small, large reader) bool {
	return large.rows > 2*small.rows+50 || large.pages > 2*small.pages+4*small.rows+16
}

// shape is how jobs are spread in ledgers that are compared.
type shape struct {
	name         string
	accounts     func(jobs int) int
	small, large int // jobs that are queued
	longer       map[string]string
}

// Every read and write of the ledger reads as much with many jobs and accounts as with few, except those that state why
// they may read more. That holds with one account that has all the jobs, and before PostgreSQL has gathered statistics (ADR
// 0034). Each query is run with EXPLAIN (ANALYZE, BUFFERS) and parameters that find something.
func TestReads_AreTheSameInALargeLedger(t *testing.T) {
	for _, s := range []shape{
		{name: "of many accounts", accounts: func(jobs int) int { return jobs / 100 }, small: smallLedger, large: *ledgerJobs},
		{name: "of one account", accounts: func(int) int { return 1 }, small: 3000, large: 12_000, longer: ofOneAccount},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			small, large := fillLedger(t, s, s.small), fillLedger(t, s, s.large)
			known := s.compare(t, small.reads(t, true), large.reads(t, true))
			t.Run("without statistics", func(t *testing.T) { s.compare(t, small.reads(t, false), large.reads(t, false)) })
			if *ledgerPage && s.longer == nil {
				known.publish(t)
			}
		})
	}
}

// compared are the samples of a small and a large ledger.
type compared struct{ small, large map[string]reader }

func (s shape) compare(t *testing.T, small, large map[string]reader) compared {
	t.Helper()
	for name, before := range small {
		l := large[name]
		query, _, _ := strings.Cut(name, " ")
		if grows(before, l) && wholeTables[query] == "" && longer[name] == "" && s.longer[name] == "" {
			t.Errorf("%s looks at %.0f rows and %.0f pages among %d jobs, and at %.0f and %.0f among %d:\n%s",
				name, before.rows, before.pages, s.small, l.rows, l.pages, s.large, l.plan)
		}
		if (!before.touched || !l.touched) && findsNothing[name] == "" && s.longer[name] == "" {
			t.Errorf("%s has found nothing: give it parameters that do, in variants", name)
		}
	}
	for _, named := range []map[string]string{longer, findsNothing, s.longer} {
		for name := range named {
			require.Contains(t, small, name, "there is no such sample any more")
		}
	}
	return compared{small, large}
}

// filledLedger is a database of some size.
type filledLedger struct {
	url  string
	size ledgertest.Size
}

func fillLedger(t *testing.T, s shape, jobs int) filledLedger {
	t.Helper()
	l := filledLedger{postgrestest.NewDatabase(t, ledger.Migrate), ledgertest.Size{Queued: jobs, Accounts: s.accounts(jobs), Free: 1}}
	ledgertest.Fill(t, l.url, l.size)
	for _, sql := range seldom {
		ledgertest.Exec(t, l.url, sql)
	}
	return l
}

// settle vacuums dead rows, and gives PostgreSQL the statistics of all tables, or none, as for new tables.
func (l filledLedger) settle(t *testing.T, statistics bool) {
	t.Helper()
	ledgertest.Exec(t, l.url, "VACUUM (ANALYZE, INDEX_CLEANUP ON)")
	if !statistics {
		ledgertest.Exec(t, l.url, "DELETE FROM pg_statistic")
		ledgertest.Exec(t, l.url, "UPDATE pg_class SET reltuples = -1, relpages = 0, relallvisible = 0 WHERE relnamespace = 'public'::regnamespace")
	}
}

// reads has every query run.
func (l filledLedger) reads(t *testing.T, statistics bool) map[string]reader {
	t.Helper()
	l.settle(t, statistics)
	pool, err := ledger.OpenPool(t.Context(), l.url, 1) // whose connections plan as those of the store do
	require.NoError(t, err)
	defer pool.Close()
	acquired, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer acquired.Release()
	all := samples(l.size, ledgertest.Text(t, l.url, "SELECT lineage FROM ledger_epoch"))
	names, statements, found := parameterNames(t), queries(t), map[string]reader{}
	for _, name := range inOrder(statements) {
		for _, s := range all.of(name) {
			statement := record(t, name, names[name], s)
			top, err := explain(t, acquired.Conn(), s, statement)
			if err == nil && top.written() <= 1000 { // the first time the session may read catalogs, too
				top, err = explain(t, acquired.Conn(), s, statement)
			}
			if err != nil {
				t.Errorf("%s: %v", s.name, err)
				continue
			}
			found[s.name] = reader{pages: top.pages(), rows: top.rows(), touched: top.touched(), plan: top.text("")}
			if top.written() > 1000 {
				l.settle(t, statistics)
			}
		}
	}
	return found
}

// inOrder are the names of those that only read, and then of the others, for what was written and rolled back slows down
// the next.
func inOrder(queries map[string]string) []string {
	writes := regexp.MustCompile(`\b(INSERT|UPDATE|DELETE)\b`)
	return slices.SortedFunc(maps.Keys(queries), func(a, b string) int {
		if first, second := writes.MatchString(queries[a]), writes.MatchString(queries[b]); first != second {
			return cmp.Compare(strconv.FormatBool(first), strconv.FormatBool(second))
		}
		return cmp.Compare(a, b)
	})
}

// asked is a statement and its arguments, as sqlc's function hands them to the database.
type asked struct {
	text string
	args []any
}

var errRecorded = errors.New("this database only listens")

func (a *asked) Exec(_ context.Context, text string, args ...any) (pgconn.CommandTag, error) {
	a.text, a.args = text, args
	return pgconn.CommandTag{}, errRecorded
}

func (a *asked) Query(_ context.Context, text string, args ...any) (pgx.Rows, error) {
	a.text, a.args = text, args
	return nil, errRecorded
}

func (a *asked) QueryRow(_ context.Context, text string, args ...any) pgx.Row {
	a.text, a.args = text, args
	return noRow{}
}

type noRow struct{}

func (noRow) Scan(...any) error { return errRecorded }

// record has sqlc's function of that name make its statement of the sample's values.
func record(t *testing.T, query string, names []string, s sample) *asked {
	t.Helper()
	recorded := &asked{}
	method := reflect.ValueOf(sqlcgen.New(recorded)).MethodByName(query)
	args := []reflect.Value{reflect.ValueOf(t.Context())}
	for i, name := range names {
		typ := method.Type().In(i + 1)
		if typ.Kind() != reflect.Struct || typ.Name() != query+"Params" {
			args = append(args, s.value(t, name, typ))
			continue
		}
		whole := reflect.New(typ).Elem()
		for field := range typ.NumField() {
			whole.Field(field).Set(s.value(t, typ.Field(field).Name, typ.Field(field).Type))
		}
		args = append(args, whole)
	}
	method.Call(args)
	require.NotEmpty(t, recorded.text, query)
	return recorded
}

// parameterNames are those of sqlc's functions, without the context.
func parameterNames(t *testing.T) map[string][]string {
	t.Helper()
	found := methodParameters(t, "sqlcgen/*.sql.go", "Queries")
	for name, parameters := range found {
		found[name] = parameters[1:]
	}
	return found
}

// explain runs the statement, and takes back what it did.
func explain(t *testing.T, conn *pgx.Conn, s sample, a *asked) (node, error) {
	t.Helper()
	ctx := t.Context()
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(ctx)) }()
	_, err = tx.Exec(ctx, s.before)
	if err != nil {
		return node{}, fmt.Errorf("%s: %w", s.before, err)
	}
	prepared, err := conn.Prepare(ctx, "looked", a.text)
	require.NoError(t, err, s.name)
	defer func() { require.NoError(t, conn.Deallocate(ctx, "looked")) }()
	literals := make([]string, len(a.args))
	for i, arg := range a.args {
		text, err := conn.TypeMap().Encode(prepared.ParamOIDs[i], pgtype.TextFormatCode, arg, []byte{}) // nil is NULL
		require.NoError(t, err, s.name)
		literals[i] = "NULL"
		if text != nil {
			literals[i] = "'" + strings.ReplaceAll(string(text), "'", "''") + "'"
		}
	}
	execute := "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE looked"
	if len(literals) > 0 {
		execute += "(" + strings.Join(literals, ", ") + ")"
	}
	var out []byte
	if err := tx.QueryRow(ctx, execute, pgx.QueryExecModeSimpleProtocol).Scan(&out); err != nil {
		return node{}, err
	}
	var plans []struct{ Plan node }
	require.NoError(t, json.Unmarshal(out, &plans), s.name)
	return plans[0].Plan, nil
}

// each calls fn for the node and all below it.
func (n node) each(fn func(node)) {
	fn(n)
	for _, below := range n.Plans {
		below.each(fn)
	}
}

// text shows a plan as psql does, a line for each part.
func (n node) text(indent string) string {
	lines := fmt.Sprintf("%s%s %s %s %s: %.0f rows, %.0f left, %.0f times, %.0f pages", indent, n.Subplan, n.Type, n.Relation, n.Index, n.Actual, n.Filtered, n.Loops, n.Hit+n.Read)
	for _, condition := range []string{n.Cond, n.Filter, n.Compared} {
		if condition != "" {
			lines += " " + condition
		}
	}
	for _, below := range n.Plans {
		lines += "\n" + below.text(indent+"  ")
	}
	return lines
}

// pages are those that the statement read. What a part of WITH writes is not counted at the top if its result is not read:
// it is run after the rest.
func (n node) pages() float64 {
	read := map[string]bool{}
	n.each(func(below node) { read["CTE "+below.CTE] = true })
	total := n.Hit + n.Read
	n.each(func(below node) {
		if below.Type == "ModifyTable" && strings.HasPrefix(below.Subplan, "CTE ") && !read[below.Subplan] {
			total += below.Hit + below.Read
		}
	})
	return total
}

// rows are those that were found in tables and indexes, and those that were read and filtered out.
func (n node) rows() float64 {
	var total float64
	n.each(func(below node) {
		if below.Type != "ModifyTable" && (below.Relation != "" || below.Index != "") {
			total += (below.Actual + below.Filtered + below.Rechecked) * below.Loops
		}
	})
	return total
}

// touched: a row was found in a table and, if the statement writes, one was written; if it does not, it returns one.
func (n node) touched() bool {
	var tables, found, writes, written bool
	n.each(func(below node) {
		if below.Type == "ModifyTable" {
			writes = true
			written = written || below.input() > 0
		} else if below.Relation != "" {
			tables = true
			found = found || below.Actual > 0
		}
	})
	return (found || !tables || written && n.Operation == "Insert") && (written || !writes && n.Actual > 0)
}

// input is how many rows came to what writes them.
func (n node) input() float64 {
	for _, below := range n.Plans {
		if below.Parent == "Outer" {
			return below.Actual * below.Loops
		}
	}
	return 0
}

// written is how many rows the part that writes most was given.
func (n node) written() float64 {
	var most float64
	n.each(func(below node) {
		if below.Type == "ModifyTable" {
			most = max(most, below.input())
		}
	})
	return most
}

const (
	readsPage  = "../../../docs/internals/queries.md"
	readsBegin = "<!-- begin: make explain -->\n"
	readsEnd   = "<!-- end: make explain -->\n"
)

// publish writes what was read into the page.
func (c compared) publish(t *testing.T) {
	t.Helper()
	page, err := os.ReadFile(readsPage)
	require.NoError(t, err)
	before, rest, begins := strings.Cut(string(page), readsBegin)
	_, after, ends := strings.Cut(rest, readsEnd)
	require.True(t, begins && ends, "the page has no place for it")
	var out strings.Builder
	fmt.Fprintf(&out, "%s%s| statement | rows: %s queued | %s queued | pages: %s queued | %s queued | more, because |\n|---|--:|--:|--:|--:|---|\n",
		before, readsBegin, thousands(smallLedger), thousands(*ledgerJobs), thousands(smallLedger), thousands(*ledgerJobs))
	for _, name := range slices.SortedFunc(maps.Keys(c.large), func(a, b string) int {
		return cmp.Or(-cmp.Compare(c.large[a].pages, c.large[b].pages), cmp.Compare(a, b))
	}) {
		s, l := c.small[name], c.large[name]
		query, _, _ := strings.Cut(name, " ")
		because := ""
		if grows(s, l) {
			because = cmp.Or(longer[name], wholeTables[query])
		}
		fmt.Fprintf(&out, "| %s | %.0f | %.0f | %.0f | %.0f | %s |\n", name, s.rows, l.rows, s.pages, l.pages, because)
	}
	out.WriteString(readsEnd + after)
	require.NoError(t, os.WriteFile(readsPage, []byte(out.String()), 0o644)) //nolint:gosec // world-readable
}

// thousands writes a number with its commas.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// The page has a row for each statement, and for no other.
func TestReadsPage_HasEveryStatement(t *testing.T) {
	page, err := os.ReadFile(readsPage)
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(page), readsBegin)
	table, _, _ := strings.Cut(rest, readsEnd)
	var shown, expected []string
	for _, line := range strings.Split(strings.TrimSpace(table), "\n")[2:] {
		shown = append(shown, strings.Split(line, " | ")[0])
	}
	all := samples(ledgertest.Size{Queued: smallLedger, Accounts: smallLedger / 100, Free: 1}, "")
	for name := range queries(t) {
		for _, s := range all.of(name) {
			expected = append(expected, "| "+s.name)
		}
	}
	slices.Sort(shown)
	slices.Sort(expected)
	require.Equal(t, strings.Join(expected, "\n"), strings.Join(shown, "\n"), "run make explain")
}
