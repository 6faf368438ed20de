package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/bullpen-ci/bullpen/internal/lib/httpserver"
)

// onlyKnown is for listeners that only the fleet and its administrators reach: runners hold a connection each, so their number has no bound.
func onlyKnown(handler http.Handler, listener net.Listener) (*http.Server, net.Listener, error) {
	return httpserver.New(handler), listener, nil
}

// listenAndServe serves until ctx ends, then lets requests that are under way finish.
func listenAndServe(ctx context.Context, flag, address string, handler http.Handler,
	bound func(http.Handler, net.Listener) (*http.Server, net.Listener, error), log *slog.Logger,
) error {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening on %s: %w. Choose another address with %s", address, err, flag)
	}
	srv, listener, err := bound(handler, listener)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	srv.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	log.InfoContext(ctx, "listening", "address", listener.Addr().String(), "for", flag)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		// Waiting polls are answered as soon as the dispatcher stops; mints under way have their time-out.
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		_ = srv.Shutdown(grace)
	}()
	if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", address, err)
	}
	<-stopped
	return nil
}
