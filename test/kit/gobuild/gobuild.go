package gobuild

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// Command is `go build` of a package into a file, to be run in the folder dir ("" for the caller's). Flags are more of go
// build's, such as -tags. The program has no symbol table, which stack traces do without.
func Command(ctx context.Context, dir, path, pkg string, flags ...string) *exec.Cmd {
	args := append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", path}, flags...)
	command := exec.CommandContext(ctx, "go", append(args, pkg)...) //nolint:gosec // the arguments are a test's own
	command.Dir = dir
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	return command
}

// Build compiles a package into a file, or returns what the compiler said. TestMain may call it, which has no context: the time
// that a package's tests may take bounds it.
func Build(path, pkg string, flags ...string) error {
	if output, err := Command(context.Background(), "", path, pkg, flags...).CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", pkg, err, output)
	}
	return nil
}
