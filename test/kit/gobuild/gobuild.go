package gobuild

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// EnvPrograms names a directory in which the test binaries of one run share the programs that they compile: linking the product
// takes seconds, and a dozen packages need it. Without it, each package compiles its own. The sources must not change while it
// exists; scripts/test.sh makes one for each run.
const EnvPrograms = "BULLPEN_TEST_PROGRAMS"

// Command is `go build` of a package into a file, to be run in the directory dir ("" for the caller's). Flags are more of go
// build's, such as -tags. The program has no symbol table, which stack traces do without.
func Command(ctx context.Context, dir, path, pkg string, flags ...string) *exec.Cmd {
	args := append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", path}, flags...)
	command := exec.CommandContext(ctx, "go", append(args, pkg)...) //nolint:gosec // the arguments are a test's own
	command.Dir = dir
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	return command
}

const module = "github.com/bullpen-ci/bullpen"

// Product compiles bullpen into a file and bullpen-agent beside it, as the one-machine mode needs them.
func Product(path string) error {
	if err := Build(path, module+"/cmd/bullpen"); err != nil {
		return err
	}
	return Build(filepath.Join(filepath.Dir(path), "bullpen-agent"), module+"/cmd/bullpen-agent")
}

// Build compiles a package into a file, or returns the compiler's output as an error. With EnvPrograms set, a package that is named by
// its import path is compiled once for the whole run. TestMain may call Build, which has no context: the timeout of the package's tests
// bounds it.
func Build(path, pkg string, flags ...string) error {
	if strings.HasPrefix(pkg, ".") { // a test's own, made in its directory
		return build("", path, pkg, flags)
	}
	return BuildIn("", path, pkg, flags...)
}

// BuildIn is Build of a package, named by its import path, in another module of the repository, whose directory is dir.
func BuildIn(dir, path, pkg string, flags ...string) error {
	shared := os.Getenv(EnvPrograms)
	if shared == "" {
		return build(dir, path, pkg, flags)
	}
	sum := sha256.Sum256([]byte(strings.Join(append([]string{pkg}, flags...), "\x00")))
	program := filepath.Join(shared, filepath.Base(pkg)+"-"+hex.EncodeToString(sum[:6]))
	unlock, err := lock(program + ".lock")
	if err != nil {
		return fmt.Errorf("locking %s for %s: %w", program, pkg, err)
	}
	defer unlock()
	if _, err := os.Stat(program); errors.Is(err, os.ErrNotExist) {
		if err := buildWhole(dir, program, pkg, flags); err != nil {
			return err
		}
	}
	return link(program, path)
}

// buildWhole renames the program when it is whole: the next package must not take what a killed compiler left.
func buildWhole(dir, program, pkg string, flags []string) error {
	if err := build(dir, program+".part", pkg, flags); err != nil {
		return err
	}
	return os.Rename(program+".part", program)
}

func build(dir, path, pkg string, flags []string) error {
	if output, err := Command(context.Background(), dir, path, pkg, flags...).CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", pkg, err, output)
	}
	return nil
}

// lock waits for an exclusive lock on the file, which is created, and returns its release. A lock ends with its process.
func lock(path string) (release func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // in a directory of the run's own
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX) //nolint:gosec // a file descriptor is small
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { file.Close() }, nil
}

// link gives the program another name, or copies it to another file system.
func link(program, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if os.Link(program, path) == nil {
		return nil
	}
	in, err := os.Open(program) //nolint:gosec // just built
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755) //nolint:gosec // a program is executable
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
