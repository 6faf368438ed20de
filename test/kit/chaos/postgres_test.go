package chaos

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/postgres"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// database starts a server in a directory that its own user may reach.
func database(t *testing.T) (string, func() *postgres.Server) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "bullpen-chaos-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o711))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	directory := filepath.Join(dir, "postgres")
	return directory, func() *postgres.Server {
		server, err := postgres.Start(t.Context(), postgres.Options{Dir: directory})
		require.NoError(t, err)
		t.Cleanup(func() { _ = server.Stop(context.Background()) })
		return server
	}
}

func (p Postgres) query(t *testing.T, sql string) string {
	t.Helper()
	answer, err := p.run(t.Context(), "psql", "--no-psqlrc", "--tuples-only", "--no-align", "--quiet", "--command="+sql)
	require.NoError(t, err)
	return answer
}

func TestPostgres_EndsAndKeepsWhatWasCommitted(t *testing.T) {
	dir, start := database(t)
	server := start()
	p := Postgres{DataDir: filepath.Join(dir, "data"), URL: server.URL()}
	p.query(t, "CREATE TABLE things (name text)")
	for name, how := range map[string]End{"fast": Fast, "immediate": Immediate, "killed": Killed} {
		p.query(t, "INSERT INTO things VALUES ('"+name+"')")
		require.NoError(t, p.End(t.Context(), how))
		await.Receive(t, server.Done(), "the server that was killed ends")
		_, err := p.run(t.Context(), "psql", "--command=SELECT 1")
		require.Error(t, err, "nobody answers")
		require.NoError(t, server.Stop(t.Context()), "it releases the directory")
		server = start()
		p.URL = server.URL()
		require.Equal(t, "1", p.query(t, "SELECT count(*) FROM things WHERE name = '"+name+"'"))
	}
}

func TestProxy_BetweenAServerAndItsPostgres(t *testing.T) {
	dir, start := database(t)
	direct := Postgres{DataDir: filepath.Join(dir, "data"), URL: start().URL()}
	at, err := url.Parse(direct.URL)
	require.NoError(t, err)
	proxy, err := NewProxy(filepath.Join(at.Query().Get("host"), ".s.PGSQL.5432"))
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	at.Host, at.RawQuery = proxy.Addr(), ""
	through := Postgres{DataDir: direct.DataDir, URL: at.String()}
	require.Equal(t, "1", through.query(t, "SELECT 1"))

	asleep := make(chan error, 1)
	go func() {
		_, err := through.run(t.Context(), "psql", "--no-psqlrc", "--command=SELECT pg_sleep(60)")
		asleep <- err
	}()
	require.NoError(t, until(t.Context(), func() bool {
		return direct.query(t, "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)'") == "1"
	}))
	require.Positive(t, proxy.Cut())
	require.ErrorContains(t, await.Receive(t, asleep, "the statement fails"), "connection", "in the middle of a statement")
	proxy.Set(Conditions{Refuse: true})
	_, err = through.run(t.Context(), "psql", "--command=SELECT 1")
	require.Error(t, err)
	proxy.Heal()
	require.Equal(t, "1", through.query(t, "SELECT 1"))
}

func TestPostgres_RestoreGoesBackWhileOthersAreConnected(t *testing.T) {
	dir, start := database(t)
	p := Postgres{DataDir: filepath.Join(dir, "data"), URL: start().URL()}
	p.query(t, "CREATE TYPE mood AS ENUM ('glad'); CREATE TABLE things (name text, how mood DEFAULT 'glad'); INSERT INTO things VALUES ('old')")
	file := filepath.Join(t.TempDir(), "dump.sql")
	require.NoError(t, p.Dump(t.Context(), file))
	p.query(t, "INSERT INTO things VALUES ('new'); CREATE TABLE later (name text)")

	watching := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // a client that stays connected, over it all
		_, err := p.run(ctx, "psql", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--command=SELECT 1", "--command=SELECT pg_sleep(60)")
		watching <- err
	}()
	defer cancel()
	connected := "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)'"
	require.NoError(t, until(t.Context(), func() bool { return p.query(t, connected) == "1" }))
	require.NoError(t, p.Restore(t.Context(), file))
	require.Equal(t, "1", p.query(t, connected))
	require.Equal(t, "old", p.query(t, "SELECT string_agg(name, ',') FROM things"))
	require.Equal(t, "", p.query(t, "SELECT to_regclass('public.later')"))
	p.query(t, "INSERT INTO things VALUES ('again')")
	cancel()
	await.Receive(t, watching, "the watch ends")

	require.NoError(t, os.WriteFile(file, []byte("CREATE TABLE half (name text); SELECT 1/0;"), 0o600))
	require.Error(t, p.Restore(t.Context(), file))
	require.Equal(t, "old,again", p.query(t, "SELECT string_agg(name, ',') FROM things"), "a dump that cannot be read changes nothing")
}

func TestPostgres_SaysWhatItMisses(t *testing.T) {
	p := Postgres{DataDir: t.TempDir(), URL: "postgres://ada:secret@localhost/db"}
	require.ErrorContains(t, p.End(t.Context(), Fast), "does it run?")
	require.ErrorContains(t, p.Dump(t.Context(), "x"), "beside Postgres")
	environment, err := p.environment()
	require.NoError(t, err)
	require.Equal(t, []string{"PGHOST=localhost", "PGUSER=ada", "PGDATABASE=db", "PGPASSWORD=secret"}, environment)
	p.URL = "postgres://ada:secret@%zz"
	_, err = p.environment()
	require.NotContains(t, err.Error(), "secret")
}
