package ledger

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Listener gets what other replicas, and this one, have committed. Calls come one at a time.
type Listener interface {
	// Reconnected is called after every (re)connection: notifications sent in between are lost.
	Reconnected()
	// WorkArrived: jobs of that label set were queued, or room was made (empty).
	WorkArrived(labelKey string)
	ClaimChanged(podUID string)
	AdoptionRequested()
	// AccountChanged: GitHub or an administrator changed what the account may do.
	AccountChanged(accountID int64)
}

// ErrNotHeard: notifications do not arrive at that URL.
var ErrNotHeard = errors.New("the connection pooler in front of the database drops notifications, as with pool_mode=transaction: set " +
	"BULLPEN_LISTEN_DATABASE_URL (the chart's database.secret.listenURLKey) to a URL that leads to PostgreSQL itself")

// hearing is how long a notification may take. Only what comes through a pooler is waited for.
const hearing = 3 * time.Second

// CheckListening returns an error, which is ErrNotHeard, if notifications do not arrive at that URL. If they do, each connection has a session of its
// own: the URL leads to PostgreSQL itself, or through a pooler that pools sessions.
func CheckListening(ctx context.Context, url string) error {
	conn, err := connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connecting to listen (BULLPEN_LISTEN_DATABASE_URL, if it is set): %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return hears(ctx, url, conn)
}

// hears has another connection send a notification, if the given one leads through a pooler. Its own would arrive with the statement that
// sends it. It listens to nothing else before: a pooler in transaction mode may deliver a notification to any of its clients.
func hears(ctx context.Context, url string, conn *pgx.Conn) error {
	route, err := findRoute(ctx, conn.PgConn())
	if err != nil || route == RouteDirect {
		return err
	}
	if _, err := conn.Exec(ctx, "LISTEN bullpen_echo"); err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	var mine, others int64
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&mine); err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	other, err := connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connecting to notify: %w", err)
	}
	defer func() { _ = other.Close(context.WithoutCancel(ctx)) }()
	word := rand.Text()
	if err := other.QueryRow(ctx, "SELECT pg_backend_pid() FROM pg_notify('bullpen_echo', $1)", word).Scan(&others); err != nil {
		return fmt.Errorf("notifying: %w", err)
	}
	if others == mine { // two connections share a session: that is proof without a wait
		return ErrNotHeard
	}
	waiting, cancel := context.WithTimeout(ctx, hearing)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(waiting)
		switch {
		case err == nil && n.Payload == word:
			return nil
		case err != nil && waiting.Err() != nil && ctx.Err() == nil:
			return ErrNotHeard
		case err != nil:
			return fmt.Errorf("waiting for a notification: %w", err)
		}
	}
}

// Listening is a connection that receives notifications. URL, Listener and Log are required.
type Listening struct {
	URL      string // must lead to Postgres itself: see CheckListening
	Listener Listener
	Log      *slog.Logger
	// Quiet is how long nothing may arrive before the connection is checked; default 30 s. After a failover a proxy may keep it open
	// although no server is behind it any more.
	Quiet time.Duration
	// Timeout bounds a check; default 5 s.
	Timeout time.Duration
}

const (
	quiet        = 30 * time.Second
	checkTimeout = 5 * time.Second
	setUpTimeout = 20 * time.Second // of a connection that is to listen
)

// Listen receives notifications until ctx ends, reconnecting whenever the connection fails. url must lead to Postgres
// itself: see CheckListening.
func Listen(ctx context.Context, url string, l Listener, log *slog.Logger) {
	Listening{URL: url, Listener: l, Log: log}.Run(ctx)
}

// Run receives notifications until ctx ends, reconnecting whenever the connection fails or has fallen silent.
func (o Listening) Run(ctx context.Context) {
	o.Quiet, o.Timeout = cmp.Or(o.Quiet, quiet), cmp.Or(o.Timeout, checkTimeout)
	for ctx.Err() == nil {
		if err := o.once(ctx); err != nil && ctx.Err() == nil {
			o.Log.WarnContext(ctx, "listening for notifications; polls are matched later until it is restored", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

func (o Listening) once(ctx context.Context) error {
	conn, err := o.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	o.Listener.Reconnected()
	for {
		n, err := within(ctx, o.Quiet, conn.WaitForNotification)
		switch {
		case n != nil:
			o.tell(n)
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			if err := o.echo(ctx, conn); err != nil {
				return err
			}
		default:
			return fmt.Errorf("waiting for a notification: %w", err)
		}
	}
}

func (o Listening) connect(ctx context.Context) (*pgx.Conn, error) {
	return within(ctx, setUpTimeout, func(ctx context.Context) (*pgx.Conn, error) {
		conn, err := connect(ctx, o.URL)
		if err != nil {
			return nil, fmt.Errorf("connecting to listen: %w", err)
		}
		if err = hears(ctx, o.URL, conn); err == nil {
			if _, err = conn.Exec(ctx, listenToAll); err != nil {
				err = fmt.Errorf("listening: %w", err)
			}
		}
		if err != nil {
			_ = conn.Close(context.WithoutCancel(ctx))
			return nil, err
		}
		return conn, nil
	})
}

// listenToAll is one statement: a session that has one of the channels has all of them.
const listenToAll = "LISTEN bullpen_echo; LISTEN bullpen_work; LISTEN bullpen_pod; LISTEN bullpen_adoption; LISTEN bullpen_account"

// within bounds one call.
func within[T any](ctx context.Context, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return call(ctx)
}

// echo has the connection notify itself, and waits for that. A statement alone would not do: another session, which listens to nothing,
// may respond behind a proxy.
func (o Listening) echo(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	word := rand.Text()
	if _, err := conn.Exec(ctx, "SELECT pg_notify('bullpen_echo', $1)", word); err != nil {
		return fmt.Errorf("checking the connection that listens: %w", err)
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return fmt.Errorf("checking the connection that listens: no notification arrives: %w", err)
		}
		if n.Channel == "bullpen_echo" && n.Payload == word {
			return nil
		}
		o.tell(n)
	}
}

func (o Listening) tell(n *pgconn.Notification) {
	switch n.Channel {
	case "bullpen_work":
		o.Listener.WorkArrived(n.Payload)
	case "bullpen_pod":
		o.Listener.ClaimChanged(n.Payload)
	case "bullpen_adoption":
		o.Listener.AdoptionRequested()
	case "bullpen_account":
		if id, err := strconv.ParseInt(n.Payload, 10, 64); err == nil {
			o.Listener.AccountChanged(id)
		}
	}
}
