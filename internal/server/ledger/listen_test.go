package ledger

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// ear counts connections and passes on which label sets have work.
type ear struct {
	connections atomic.Int32
	work        chan string
}

func (e *ear) Reconnected()             { e.connections.Add(1) }
func (e *ear) WorkArrived(key string)   { e.work <- key }
func (*ear) ClaimChanged(string)        {}
func (*ear) AdoptionRequested()         {}
func (*ear) AccountChanged(int64)       {}
func (e *ear) next(t *testing.T) string { return await.Receive(t, e.work, "a notification arrives") }

// A connection that is quiet because nothing happens is checked and kept.
func TestListening_AQuietConnectionIsKept(t *testing.T) {
	url := postgrestest.NewDatabase(t, nil)
	onlooker, err := connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = onlooker.Close(context.Background()) })
	_, err = onlooker.Exec(t.Context(), "LISTEN bullpen_echo")
	require.NoError(t, err)

	e := &ear{work: make(chan string, 1)}
	ctx, end := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		Listening{URL: url, Listener: e, Log: slog.New(slog.DiscardHandler), Quiet: time.Millisecond}.Run(ctx)
	}()
	for range 5 {
		_, err := onlooker.WaitForNotification(await.Context(t))
		require.NoError(t, err, "it is checked")
	}
	_, err = onlooker.Exec(t.Context(), "NOTIFY bullpen_work, 'linux'")
	require.NoError(t, err)
	require.Equal(t, "linux", e.next(t))
	require.EqualValues(t, 1, e.connections.Load())
	end()
	await.Receive(t, stopped, "it stops")
}

// A session that responds, and has never listened, is no connection that listens: a proxy may have put it there.
func TestListening_NET9_AnotherSessionIsFound(t *testing.T) {
	url := postgrestest.NewDatabase(t, nil)
	for _, row := range []struct {
		setUp   func(*testing.T, *pgx.Conn)
		timeout time.Duration
		want    error
	}{
		{func(*testing.T, *pgx.Conn) {}, 100 * time.Millisecond, context.DeadlineExceeded},
		{listens, checkTimeout, nil},
	} {
		conn, err := connect(t.Context(), url) // one whose statement reaches its deadline is closed
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		row.setUp(t, conn)
		o := Listening{Listener: &ear{}, Timeout: row.timeout}
		require.ErrorIs(t, o.echo(t.Context(), conn), row.want)
	}
}

func listens(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	_, err := conn.Exec(t.Context(), listenToAll)
	require.NoError(t, err)
}
