// Command bullpen-agent is what runs inside a runner pod: poller, supervisor, readiness probe and installer, and the guest's part of a
// virtual machine. Every runner pod has a copy of it and every probe starts it, so it holds nothing else.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/bullpen-ci/bullpen/internal/agent/agentcmd"
)

// version is stamped by the build (-ldflags "-X main.version=…").
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := agentcmd.Main(ctx, agentcmd.Program{Name: "bullpen-agent"}, version, os.Args[1:])
	stop()
	os.Exit(code)
}
