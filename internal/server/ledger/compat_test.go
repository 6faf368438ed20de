package ledger

import (
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

var recordFrom = flag.String("record-queries", "", "record the queries of a folder of generated code as those of the newest schema")

// widened are changes that cannot affect an older server, although they appear to, by the schema's version that makes them.
var widened = map[int64]map[string]string{
	7:  {"job_lanes.job_lanes_parked_check demands something new": "it allows one value more, which an older server does not write"},
	27: {"workflow_jobs.workflow_jobs_held_check demands something new": "it allows one value more, which an older server does not write"},
	28: {"workflow_jobs.workflow_jobs_held_check demands something new": "it allows two values more, which an older server does not write"},
}

// newest is the schema's version of this source.
func newest(t *testing.T) int64 {
	t.Helper()
	files, err := migrations.ReadDir("migrations")
	require.NoError(t, err)
	return version(t, files[len(files)-1].Name())
}

func version(t *testing.T, file string) int64 {
	t.Helper()
	number, _, _ := strings.Cut(file, "_")
	n, err := strconv.ParseInt(number, 10, 64)
	require.NoError(t, err)
	return n
}

func connectTo(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// upTo is a database as a server leaves it whose newest migration is that one.
func upTo(t *testing.T, level int64) string {
	t.Helper()
	url := postgrestest.NewDatabase(t, nil)
	p, done, err := provider(url, migrations)
	require.NoError(t, err)
	defer done()
	_, err = p.UpTo(t.Context(), level)
	require.NoError(t, err)
	return url
}

// During a deploy, servers of one version older work on the newer schema: no migration removes what they read, or demands
// what they do not write.
func TestMigrations_NothingBreaksAServerOneVersionOlder(t *testing.T) {
	t.Parallel()
	url := postgrestest.NewDatabase(t, nil)
	p, done, err := provider(url, migrations)
	require.NoError(t, err)
	defer done()
	_, err = p.UpByOne(t.Context())
	require.NoError(t, err)
	conn := connectTo(t, url)
	before := readCatalog(t, conn)
	files, err := migrations.ReadDir("migrations")
	require.NoError(t, err)
	for _, file := range files[1:] {
		level := version(t, file.Name())
		_, err = p.UpByOne(t.Context())
		require.NoError(t, err)
		after := readCatalog(t, conn)
		found := breaks(before, after)
		for _, breaks := range found {
			require.Contains(t, widened[level], breaks, "migration %d: give new columns a default, and leave what goes to a later release (ADR 0022)", level)
		}
		for explained := range widened[level] {
			require.Contains(t, found, explained, "migration %d: an explanation of nothing", level)
		}
		before = after
	}
}

// Each kind of change that would break an older server is found, and no other.
func TestMigrations_WhatBreaksIsFound(t *testing.T) {
	t.Parallel()
	conn := connectTo(t, postgrestest.NewDatabase(t, nil))
	_, err := conn.Exec(t.Context(), `CREATE TABLE b (v int PRIMARY KEY);
		CREATE TABLE a (x int NOT NULL DEFAULT 0, y int, CONSTRAINT k CHECK (x <> 0 OR x = 0));
		CREATE FUNCTION f(i int) RETURNS int LANGUAGE sql AS 'SELECT 1';
		CREATE FUNCTION g() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';`)
	require.NoError(t, err)
	before := readCatalog(t, conn)
	for change, want := range map[string]string{
		"DROP TABLE a CASCADE":                                                                "table a is gone",
		"ALTER TABLE a RENAME TO c":                                                           "table a is gone",
		"ALTER TABLE a DROP COLUMN y":                                                         "column a.y is gone",
		"ALTER TABLE a RENAME y TO z":                                                         "column a.y is gone",
		"ALTER TABLE a ALTER y TYPE bigint":                                                   "column a.y has become bigint",
		"ALTER TABLE a ALTER y SET NOT NULL":                                                  "column a.y may be null no more",
		"ALTER TABLE a ALTER x DROP DEFAULT":                                                  "column a.x has no default any more",
		"ALTER TABLE a ADD z int NOT NULL":                                                    "column a.z is new, not null and without a default",
		"ALTER TABLE a ADD CONSTRAINT c CHECK (y > 0)":                                        "a.c demands something new",
		"ALTER TABLE a ADD z int, ADD CONSTRAINT c CHECK (y > z)":                             "a.c demands something new",
		"ALTER TABLE a DROP CONSTRAINT k, ADD CONSTRAINT k CHECK (x <> 1)":                    "a.k demands something new",
		"CREATE UNIQUE INDEX u ON a (y)":                                                      "a.u demands something new",
		"ALTER TABLE a ADD z int NOT NULL DEFAULT 1 UNIQUE":                                   "a.a_z_key demands something new",
		"ALTER TABLE a ADD FOREIGN KEY (y) REFERENCES b":                                      "a.a_y_fkey demands something new",
		"CREATE TRIGGER t BEFORE INSERT ON a EXECUTE FUNCTION g()":                            "a.t demands something new",
		"DROP FUNCTION f":                                                                     "function f(integer) is gone, or returns something else",
		"DROP FUNCTION f; CREATE FUNCTION f(int, int) RETURNS int LANGUAGE sql AS 'SELECT 1'": "function f(integer) is gone, or returns something else",

		"CREATE TABLE c (z int NOT NULL UNIQUE CHECK (z > 0) REFERENCES b)":          "",
		"ALTER TABLE a ADD z int, ADD w text NOT NULL DEFAULT ''":                    "",
		"ALTER TABLE a ADD z int NOT NULL DEFAULT 0 CHECK (z >= 0)":                  "",
		"ALTER TABLE a ADD z int UNIQUE REFERENCES b":                                "",
		"ALTER TABLE a DROP CONSTRAINT k; CREATE INDEX i ON a (y)":                   "",
		"ALTER TABLE a ALTER x DROP NOT NULL; UPDATE a SET y = 1":                    "",
		"CREATE OR REPLACE FUNCTION f(i int) RETURNS int LANGUAGE sql AS 'SELECT 2'": "",
	} {
		t.Run(change, func(t *testing.T) {
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Rollback(context.WithoutCancel(t.Context()))) }()
			_, err = tx.Exec(t.Context(), change)
			require.NoError(t, err)
			if found := breaks(before, readCatalog(t, tx)); want == "" {
				require.Empty(t, found)
			} else {
				require.Equal(t, []string{want}, found)
			}
		})
	}
}

// A server of one version older that starts while a newer one has migrated finds nothing to do, and nothing wrong.
func TestMigrate_AnOlderServerStartsOnANewerSchema(t *testing.T) {
	t.Parallel()
	url := postgrestest.NewDatabase(t, Migrate)
	older := fstest.MapFS{}
	files, err := migrations.ReadDir("migrations")
	require.NoError(t, err)
	for _, file := range files[:len(files)-1] {
		content, err := fs.ReadFile(migrations, "migrations/"+file.Name())
		require.NoError(t, err)
		older["migrations/"+file.Name()] = &fstest.MapFile{Data: content}
	}
	p, done, err := provider(url, older)
	require.NoError(t, err)
	defer done()
	pending, err := p.HasPending(t.Context())
	require.NoError(t, err)
	require.False(t, pending)
	ran, err := p.Up(t.Context())
	require.NoError(t, err)
	require.Empty(t, ran)
	require.NoError(t, CheckSchema(t.Context(), url), "and it left the newer one's as it was")
}

// Queries of earlier versions work with the newest schema: the same parameters, the same columns, and a plan. A release records its
// queries: go test ./internal/server/ledger -run QueriesOfEarlier -record-queries sqlcgen
func TestMigrations_QueriesOfEarlierVersionsMeanTheSame(t *testing.T) {
	t.Parallel()
	if *recordFrom != "" {
		file := filepath.Join("testdata", fmt.Sprintf("queries-%05d.sql", newest(t)))
		require.NoError(t, os.WriteFile(file, []byte(generatedQueries(t, *recordFrom)), 0o600))
	}
	recorded, err := filepath.Glob(filepath.Join("testdata", "queries-*.sql"))
	require.NoError(t, err)
	require.NotEmpty(t, recorded)
	is := connectTo(t, postgrestest.NewDatabase(t, Migrate))
	for _, file := range recorded {
		t.Run(filepath.Base(file), func(t *testing.T) {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			queries := splitQueries(string(content))
			require.Greater(t, len(queries), 100)
			level := version(t, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "queries-"), ".sql"))
			was := connectTo(t, upTo(t, level))
			for _, query := range queries {
				then, err := describeQuery(t, was, query)
				require.NoError(t, err, "it was never right: %s", query)
				now, err := describeQuery(t, is, query)
				require.NoError(t, err, "version %d fails: %s", level, query)
				require.Equal(t, then, now, "%s", query)
			}
		})
	}
	t.Run("control: a query for what is not there", func(t *testing.T) {
		_, err := describeQuery(t, is, "SELECT nothing_of_that_name FROM runner_claims")
		require.Error(t, err)
		_, err = describeQuery(t, is, "INSERT INTO runner_claims (pod_uid) VALUES ($1) ON CONFLICT (proof) DO NOTHING")
		require.Error(t, err, "only the planner looks for the index")
	})
}

// described is what a client sees of a statement before it runs.
type described struct {
	Parameters []uint32
	Columns    []string // name and type
}

// describeQuery has the database parse and plan a statement.
func describeQuery(t *testing.T, conn *pgx.Conn, query string) (described, error) {
	t.Helper()
	statement, err := conn.Prepare(t.Context(), "described", query)
	if err != nil {
		return described{}, err
	}
	defer func() { require.NoError(t, conn.Deallocate(t.Context(), "described")) }()
	d := described{Parameters: statement.ParamOIDs}
	for _, field := range statement.Fields {
		d.Columns = append(d.Columns, fmt.Sprintf("%s %d", field.Name, field.DataTypeOID))
	}
	arguments := strings.Repeat(", NULL", len(d.Parameters))
	if arguments != "" {
		arguments = "(" + arguments[2:] + ")"
	}
	_, err = conn.Exec(t.Context(), "SET plan_cache_mode = force_generic_plan; EXPLAIN EXECUTE described"+arguments)
	return d, err
}

const queryMark = "-- name: "

func splitQueries(text string) []string {
	var queries []string
	for _, query := range strings.Split(text, queryMark) {
		if strings.TrimSpace(query) != "" {
			queries = append(queries, queryMark+query)
		}
	}
	return queries
}

// generatedQueries reads the queries out of a directory of generated code, ordered by their text.
func generatedQueries(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.sql.go"))
	require.NoError(t, err)
	var queries []string
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			require.NoError(t, err)
			if strings.HasPrefix(text, queryMark) {
				queries = append(queries, strings.TrimSpace(text)+"\n")
			}
			return true
		})
	}
	slices.Sort(queries)
	return strings.Join(queries, "\n")
}
