package ledgertest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// Exec runs one statement on the database at url.
func Exec(t testing.TB, url, sql string, args ...any) {
	t.Helper()
	conn := connect(t, url)
	defer func() { _ = conn.Close(context.Background()) }() // a test may call this a thousand times
	_, err := conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// Hold runs statements in a transaction that stays open until the returned function commits it.
func Hold(t testing.TB, url string, statements ...string) (commit func()) {
	t.Helper()
	tx, err := connect(t, url).Begin(t.Context())
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
	conn := connect(t, url)
	defer func() { _ = conn.Close(context.Background()) }()
	require.NoError(t, conn.QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}

// Text reads one text.
func Text(t testing.TB, url, sql string, args ...any) (text string) {
	t.Helper()
	conn := connect(t, url)
	defer func() { _ = conn.Close(context.Background()) }()
	require.NoError(t, conn.QueryRow(t.Context(), sql, args...).Scan(&text))
	return text
}

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
