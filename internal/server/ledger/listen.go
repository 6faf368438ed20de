package ledger

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"
)

// Listener is told what other replicas, and this one, have committed. Calls come one at a time.
type Listener interface {
	// Reconnected is called after every (re)connection: notifications sent meanwhile are lost.
	Reconnected()
	// WorkArrived: jobs of that label set were queued, or room was made (empty).
	WorkArrived(labelKey string)
	ClaimChanged(podUID string)
	AdoptionRequested()
	// AccountChanged: GitHub or an operator changed what the account may do.
	AccountChanged(accountID int64)
}

// Listen hears notifications until ctx ends, connecting anew whenever the connection fails. url must lead to Postgres
// itself: a transaction-pooling proxy drops LISTEN.
func Listen(ctx context.Context, url string, l Listener, log *slog.Logger) {
	for ctx.Err() == nil {
		if err := listenOnce(ctx, url, l); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "listening for notifications; polls are matched less promptly meanwhile", "error", err)
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
