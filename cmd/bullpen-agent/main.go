// Command bullpen-agent is what runs inside a runner pod: poller, supervisor, readiness probe and installer, and the guest's part of a
// virtual machine. Every runner pod has a copy of it and every probe starts it, so it holds nothing else.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/bullpen-ci/bullpen/internal/agent/agentcmd"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/buildkit"
)

// version is stamped by the build (-ldflags "-X main.version=…").
var version = "dev"

func main() {
	if filepath.Base(os.Args[0]) == buildkit.RuncName {
		fmt.Fprintln(os.Stderr, buildkit.Runc(os.Args[1:]))
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := agentcmd.Main(ctx, agentcmd.Program{Name: "bullpen-agent"}, version, os.Args[1:])
	stop()
	os.Exit(code)
}
