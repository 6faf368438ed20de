package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
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

// Listen receives notifications until ctx ends, reconnecting whenever the connection fails. url must lead to Postgres
// itself: see CheckListening.
func Listen(ctx context.Context, url string, l Listener, log *slog.Logger) {
	for ctx.Err() == nil {
		if err := listenOnce(ctx, url, l); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "listening for notifications; polls are matched later until it is restored", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

func listenOnce(ctx context.Context, url string, l Listener) error {
	conn, err := connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connecting to listen: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := hears(ctx, url, conn); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "LISTEN bullpen_work; LISTEN bullpen_pod; LISTEN bullpen_adoption; LISTEN bullpen_account"); err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	l.Reconnected()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return fmt.Errorf("waiting for a notification: %w", err)
		}
		switch n.Channel {
		case "bullpen_work":
			l.WorkArrived(n.Payload)
		case "bullpen_pod":
			l.ClaimChanged(n.Payload)
		case "bullpen_adoption":
			l.AdoptionRequested()
		case "bullpen_account":
			if id, err := strconv.ParseInt(n.Payload, 10, 64); err == nil {
				l.AccountChanged(id)
			}
		}
	}
}
