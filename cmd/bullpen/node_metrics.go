package main

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/bullpen-ci/bullpen/internal/lib/httpserver"
	"github.com/bullpen-ci/bullpen/internal/node"
)

// nodeMetrics are the agent's, and its process's.
func nodeMetrics(agent *node.Agent) (*prometheus.Registry, error) {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{agent.Collector(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return registry, nil
}

// serveNodeMetrics serves the agent's metrics at an address until stop is called; at none when it is empty.
func serveNodeMetrics(ctx context.Context, address string, agent *node.Agent) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	registry, err := nodeMetrics(agent)
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen %s: %w", address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := httpserver.New(mux)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // until it is closed
	}()
	return func() {
		_ = server.Close()
		<-done
	}, nil
}
