// Command devcluster (in scripts) downloads or compiles the development control plane once, and prints the directory it is in.
//
// `make devcluster` runs it. With -node it is the programs of a Kubernetes node (`make node`). With -ldflags it prints only what the Makefile stamps into the product, so that an installed
// `bullpen up` finds the same directory.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane/assets"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "devcluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	source := flag.String("source", "devcluster", "directory of the devcluster module")
	flagsOnly := flag.Bool("ldflags", false, "print the linker flags by which bullpen finds the directory, and make nothing")
	node := flag.Bool("node", false, "compile the programs of a Kubernetes node instead, and print their directory")
	flag.Parse()
	if *flagsOnly {
		flags, err := assets.LinkerFlags(*source)
		if err != nil {
			return err
		}
		fmt.Println(flags)
		return nil
	}
	build := assets.Build
	if *node {
		build = assets.BuildNode
	}
	dir, err := build(ctx, assets.BuildOptions{
		Options: assets.Options{SourceDir: *source}, Log: os.Stderr,
		Terminal: term.IsTerminal(int(os.Stderr.Fd())) && os.Getenv("TERM") != "dumb",
	})
	if err != nil {
		return err
	}
	fmt.Println(dir)
	return nil
}
