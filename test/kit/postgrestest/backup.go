package postgrestest

import (
	"context"
	"net/url"
	"strings"
	"testing"
)

// Backup is a copy of a test's database as it was at a moment, made file by file by the server.
type Backup struct{ name string }

// TakeBackup copies the database at that URL. Its connections are cut for the copy; clients reconnect afterwards.
func TakeBackup(t testing.TB, target string) Backup {
	t.Helper()
	base, source := parts(t, target)
	b := Backup{newName()}
	run(t, base, "ALTER DATABASE "+source+" WITH ALLOW_CONNECTIONS false")
	cut(t, base, source)
	copyOf(t, base, source, b.name)
	run(t, base, "ALTER DATABASE "+source+" WITH ALLOW_CONNECTIONS true")
	t.Cleanup(func() { run(t, base, "DROP DATABASE IF EXISTS "+b.name+" WITH (FORCE)") })
	return b
}

// Restore puts the backup in the place of the database at that URL, while clients use it: connections are cut, and there is
// no database for a moment.
func (b Backup) Restore(t testing.TB, target string) {
	t.Helper()
	base, source := parts(t, target)
	run(t, base, "DROP DATABASE "+source+" WITH (FORCE)")
	copyOf(t, base, b.name, source)
}

// RestoreBeside makes another database of the backup, beside the one that it was taken of, and returns its URL.
func (b Backup) RestoreBeside(t testing.TB, target string) string {
	t.Helper()
	base, _ := parts(t, target)
	name := newName()
	copyOf(t, base, b.name, name)
	t.Cleanup(func() { run(t, base, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	beside, err := withDatabase(base, name)
	if err != nil {
		t.Fatal(err)
	}
	return beside
}

func parts(t testing.TB, target string) (base, name string) {
	t.Helper()
	parsed, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	name = strings.TrimPrefix(parsed.Path, "/")
	if !strings.HasPrefix(name, "bullpentest_") {
		t.Fatalf("%q is not a test's database", name)
	}
	base, err = shared.start(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return base, name
}

func cut(t testing.TB, base, name string) {
	t.Helper()
	run(t, base, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '"+name+"'")
}

func copyOf(t testing.TB, base, template, name string) {
	t.Helper()
	if err := shared.admin.copy(context.Background(), base, template, name); err != nil {
		t.Fatalf("copying the database %s: %v", template, err)
	}
}

func run(t testing.TB, base, sql string) {
	t.Helper()
	if err := shared.admin.execute(context.Background(), base, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Execute has the server run one statement in the database at that URL: what breaks a database, for tests.
func Execute(t testing.TB, target, sql string) {
	t.Helper()
	if err := execute(context.Background(), target, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
