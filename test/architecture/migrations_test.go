package architecture

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const migrationsDir = "internal/server/ledger/migrations"

// The migrations of the first release meet an empty database: their tables are new, and their indexes cost nothing. Every
// later one meets a live ledger, with servers of the former version on it.
const firstReleaseUpTo = "00013"

var (
	createdTable = regexp.MustCompile(`(?i)\bCREATE TABLE (?:IF NOT EXISTS )?([a-z_]+)`)
	indexOn      = regexp.MustCompile(`(?is)\bCREATE (?:UNIQUE )?INDEX (CONCURRENTLY )?(IF NOT EXISTS )?([a-z_]+) ON ([a-z_]+)`)
	addedColumn  = regexp.MustCompile(`(?i)\bADD COLUMN\b[^,;]*`)
	notAdditive  = regexp.MustCompile(`(?i)\b(DROP (?:TABLE|COLUMN|FUNCTION|SCHEMA|CONSTRAINT)|RENAME\b|SET NOT NULL|ALTER COLUMN [a-z_]+ (?:SET DATA )?TYPE|TRUNCATE|DELETE FROM)`)
	dropped      = regexp.MustCompile(`(?i)\bDROP CONSTRAINT ([a-z_]+)`)
	sqlComment   = regexp.MustCompile(`(?m)--.*$`)
)

// migrationFaults says what is wrong with how a migration is written.
func migrationFaults(text string) (faults []string) {
	up, _, _ := strings.Cut(text, "-- +goose Down")
	alone := strings.Contains(up, "-- +goose NO TRANSACTION")
	statements := sqlComment.ReplaceAllString(up, "")
	bad := func(why string) { faults = append(faults, why) }
	for part := range strings.SplitSeq(text, "-- +goose Down") { // each direction separately
		if alone && !regexp.MustCompile(`(?m)^SET lock_timeout = '[0-9]+m?s';`).MatchString(part) ||
			!alone && !regexp.MustCompile(`(?m)^SET LOCAL lock_timeout = '[0-9]+m?s';`).MatchString(part) {
			bad("it sets no lock_timeout: behind a long transaction it would block all later statements")
		}
		if alone && !strings.Contains(part, "RESET lock_timeout;") {
			bad("without a transaction, a setting stays with the connection: RESET lock_timeout at the end")
		}
	}
	fresh := map[string]bool{}
	for _, m := range createdTable.FindAllStringSubmatch(statements, -1) {
		fresh[m[1]] = true
	}
	for _, m := range indexOn.FindAllStringSubmatch(statements, -1) {
		switch concurrently, ifNotExists, name, table := m[1], m[2], m[3], m[4]; {
		case fresh[table]:
		case concurrently == "":
			bad("the index " + name + " locks " + table + " against writers while it is built: CREATE INDEX CONCURRENTLY")
		case !alone:
			bad("an index cannot be built concurrently in a transaction: -- +goose NO TRANSACTION")
		case ifNotExists != "":
			bad("one that failed half-way leaves " + name + " behind, invalid: drop it first, instead of IF NOT EXISTS")
		case !strings.Contains(statements, "DROP INDEX CONCURRENTLY IF EXISTS "+name+";"):
			bad("one that failed half-way leaves " + name + " behind, invalid: DROP INDEX CONCURRENTLY IF EXISTS first")
		}
	}
	for _, column := range addedColumn.FindAllString(statements, -1) {
		if strings.Contains(strings.ToUpper(column), "NOT NULL") && !strings.Contains(strings.ToUpper(column), "DEFAULT") {
			bad("a server of the former version cannot insert a row: a new column that is NOT NULL needs a DEFAULT")
		}
	}
	for _, m := range dropped.FindAllStringSubmatch(statements, -1) { // whether the new one demands more is seen in a database, see compat_test.go of the ledger
		if strings.Contains(statements, "ADD CONSTRAINT "+m[1]+"\n") {
			statements = strings.Replace(statements, m[0], "", 1)
		}
	}
	if found := notAdditive.FindString(statements); found != "" {
		bad(found + ": a server of the former version still goes by what was there before")
	}
	return faults
}

// Migrations run while servers of the former version are running.
func TestMigrations_AreAdditiveAndBlockNoServer(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("../..", migrationsDir, "*.sql"))
	require.NoError(t, err)
	later := 0
	for _, file := range files {
		name := filepath.Base(file)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if name[:len(firstReleaseUpTo)] <= firstReleaseUpTo {
			continue
		}
		later++
		require.Empty(t, migrationFaults(string(text)), name)
	}
	require.Positive(t, later)
}

// The rule finds what it is for.
func TestMigrations_TheRuleFindsEachFault(t *testing.T) {
	const good = "-- +goose Up\nSET LOCAL lock_timeout = '5s';\nALTER TABLE a ADD COLUMN b bigint NOT NULL DEFAULT 0;\nCREATE TABLE n (x int);\n" +
		"CREATE INDEX nx ON n (x);\n-- +goose Down\nSET LOCAL lock_timeout = '5s';\nALTER TABLE a DROP COLUMN b;\nDROP TABLE n;\n"
	const goodIndex = "-- +goose NO TRANSACTION\n-- +goose Up\nSET lock_timeout = '5s';\nDROP INDEX CONCURRENTLY IF EXISTS ab;\n" +
		"CREATE INDEX CONCURRENTLY ab ON a (b);\nRESET lock_timeout;\n-- +goose Down\nSET lock_timeout = '5s';\nDROP INDEX CONCURRENTLY IF EXISTS ab;\nRESET lock_timeout;\n"
	require.Empty(t, migrationFaults(good))
	require.Empty(t, migrationFaults(goodIndex))
	require.Empty(t, migrationFaults(strings.Replace(good, "CREATE TABLE n (x int)", "ALTER TABLE a DROP CONSTRAINT c; ALTER TABLE a ADD CONSTRAINT c\n CHECK (b > 0) NOT VALID; CREATE TABLE n (x int)", 1)))
	for want, text := range map[string]string{
		"sets no lock_timeout":     strings.Replace(good, "SET LOCAL lock_timeout = '5s';\n", "", 1),
		"needs a DEFAULT":          strings.Replace(good, " DEFAULT 0", "", 1),
		"locks a against writers":  strings.Replace(good, "CREATE INDEX nx ON n (x)", "CREATE INDEX ab ON a (b)", 1),
		"NO TRANSACTION":           strings.Replace(good, "CREATE INDEX nx ON n (x)", "CREATE INDEX CONCURRENTLY ab ON a (b)", 1),
		"IF NOT EXISTS":            strings.Replace(goodIndex, "CREATE INDEX CONCURRENTLY ab", "CREATE INDEX CONCURRENTLY IF NOT EXISTS ab", 1),
		"IF EXISTS first":          strings.Replace(goodIndex, "DROP INDEX CONCURRENTLY IF EXISTS ab;\nCREATE", "CREATE", 1),
		"stays with the":           strings.Replace(goodIndex, "RESET lock_timeout;\n", "", 1),
		"goes by what was there":   strings.Replace(good, "CREATE TABLE n (x int)", "ALTER TABLE a DROP COLUMN c; CREATE TABLE n (x int)", 1),
		"still goes by what":       strings.Replace(good, "CREATE TABLE n (x int)", "ALTER TABLE a RENAME COLUMN c TO d; CREATE TABLE n (x int)", 1),
		"DROP CONSTRAINT":          strings.Replace(good, "CREATE TABLE n (x int)", "ALTER TABLE a DROP CONSTRAINT c; ALTER TABLE a ADD CONSTRAINT d\n CHECK (b > 0) NOT VALID; CREATE TABLE n (x int)", 1),
		"the former version still": strings.Replace(good, "CREATE TABLE n (x int)", "ALTER TABLE a ALTER COLUMN b SET NOT NULL; CREATE TABLE n (x int)", 1),
	} {
		require.Contains(t, strings.Join(migrationFaults(text), "\n"), want)
	}
}
