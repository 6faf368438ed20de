package ledgertest

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// Exec runs one statement on the database at url.
func Exec(t testing.TB, url, sql string, args ...any) {
	t.Helper()
	use(t, url, func(conn *pgx.Conn) error {
		_, err := conn.Exec(t.Context(), sql, args...)
		return err
	})
}

// Hold runs statements in a transaction that stays open until the returned function commits it.
func Hold(t testing.TB, url string, statements ...string) (commit func()) {
	t.Helper()
	conn := connect(t, url)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	for _, sql := range statements {
		_, err = tx.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	return func() {
		t.Helper()
		require.NoError(t, tx.Commit(t.Context()))
	}
}

// Int runs a query that yields one whole number.
func Int(t testing.TB, url, sql string, args ...any) (n int64) {
	t.Helper()
	use(t, url, func(conn *pgx.Conn) error { return conn.QueryRow(t.Context(), sql, args...).Scan(&n) })
	return n
}

// Text reads one text.
func Text(t testing.TB, url, sql string, args ...any) (text string) {
	t.Helper()
	use(t, url, func(conn *pgx.Conn) error { return conn.QueryRow(t.Context(), sql, args...).Scan(&text) })
	return text
}

// connections are those that are not in use just now, by test and URL: each starts a process of the server, and a test may read a
// thousand times.
var connections = struct {
	sync.Mutex
	idle map[owner][]*pgx.Conn
}{idle: map[owner][]*pgx.Conn{}}

type owner struct {
	t   testing.TB
	url string
}

// use runs do on a connection that it has for itself.
func use(t testing.TB, url string, do func(*pgx.Conn) error) {
	t.Helper()
	conn := take(t, url)
	err := do(conn)
	put(owner{t, url}, conn)
	require.NoError(t, err)
}

// take returns an idle connection that still stands, or a new one.
func take(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	key := owner{t, url}
	for {
		connections.Lock()
		idle, known := connections.idle[key]
		var conn *pgx.Conn
		if last := len(idle) - 1; last >= 0 {
			conn, connections.idle[key] = idle[last], idle[:last]
		}
		if !known {
			connections.idle[key] = []*pgx.Conn{}
			t.Cleanup(func() { closeIdle(key) })
		}
		connections.Unlock()
		if conn == nil {
			return connect(t, url)
		}
		if conn.Ping(t.Context()) == nil {
			return conn
		}
		_ = conn.Close(context.Background()) // the server has ended it
	}
}

func put(key owner, conn *pgx.Conn) {
	connections.Lock()
	defer connections.Unlock()
	if _, open := connections.idle[key]; !open || conn.IsClosed() {
		_ = conn.Close(context.Background())
		return
	}
	connections.idle[key] = append(connections.idle[key], conn)
}

func closeIdle(key owner) {
	connections.Lock()
	defer connections.Unlock()
	for _, conn := range connections.idle[key] {
		_ = conn.Close(context.Background())
	}
	delete(connections.idle, key)
}

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	return conn
}
