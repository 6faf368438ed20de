package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

// dialTimeout bounds a connection's start.
const dialTimeout = 10 * time.Second

// Serve passes connections to listener on to the address to (host:port), until ctx ends. Then it closes all, and returns when it serves none.
// The end of one direction is passed on, and the other one continues.
func Serve(ctx context.Context, listener net.Listener, to string, log *slog.Logger) error {
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		client, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accepting connections: %w", err)
		case err != nil:
			log.Warn("a connection was not accepted", "error", err)
			continue
		}
		conns.Go(func() {
			defer client.Close()
			server, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", to)
			if err != nil {
				log.Info("a connection was not passed on", "to", to, "error", err)
				return
			}
			defer server.Close()
			join(ctx, client, server)
		})
	}
}

// join copies both ways until both have ended, or ctx.
func join(ctx context.Context, client, server net.Conn) {
	closeBoth := func() {
		_ = client.Close()
		_ = server.Close()
	}
	defer context.AfterFunc(ctx, closeBoth)()
	var ways sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		ways.Go(func() {
			_, err := io.Copy(way[1], way[0])
			half, can := way[1].(interface{ CloseWrite() error })
			if err != nil || !can || half.CloseWrite() != nil {
				closeBoth()
			}
		})
	}
	ways.Wait()
}
