// Command devcluster (in scripts) builds the development control plane once, and prints the folder it is in.
//
// `make devcluster` runs it. With -key it prints only the key of the sources, which the Makefile stamps into the
// product so that an installed `bullpen up` finds the same folder.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

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
	source := flag.String("source", "devcluster", "folder of the devcluster module")
	keyOnly := flag.Bool("key", false, "print the key of the sources, and build nothing")
	flag.Parse()
	if *keyOnly {
		key, err := assets.Key(*source)
		if err != nil {
			return err
		}
		fmt.Println(key)
		return nil
	}
	dir, err := assets.Build(ctx, assets.BuildOptions{Options: assets.Options{SourceDir: *source}, Log: os.Stderr})
	if err != nil {
		return err
	}
	fmt.Println(dir)
	return nil
}
