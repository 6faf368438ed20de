package release

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

const (
	patience = 5 * time.Minute // bounds what a loaded machine with two cores may take
	interval = 200 * time.Millisecond
)

func TestMain(m *testing.M) {
	os.Exit(postgrestest.Run(func() int { return kit.Main(m) }))
}

// files is where everything of a world is: a directory of the file system of /, which runners have as theirs, and open to
// their user.
func files() (string, error) {
	for _, parent := range []string{os.TempDir(), "/var/tmp", "/opt"} {
		var here, root unix.Stat_t
		if unix.Stat(parent, &here) != nil || unix.Stat("/", &root) != nil || here.Dev != root.Dev {
			continue
		}
		dir, err := os.MkdirTemp(parent, "bullpen-release-")
		if err != nil {
			return "", err
		}
		return dir, os.Chmod(dir, 0o755) //nolint:gosec // runners are another user
	}
	return "", errors.New("neither the directory for temporary files nor /var/tmp nor /opt is on the file system of /")
}

// build compiles what runs: an image for each version of the product, as `make images` does, and beside them the binary with
// the development runner, and Helm.
func build(ctx context.Context, dir string, versions ...string) error {
	if err := compile(ctx, filepath.Join(dir, "bin", "bullpen"), ".", "-ldflags=-X main.version=development", "./cmd/bullpen"); err != nil {
		return err
	}
	for _, version := range versions {
		target := filepath.Join(dir, "images", filepath.FromSlash(repository), version, "usr", "local", "bin")
		for _, program := range []string{"bullpen", "bullpen-agent"} {
			err := compile(ctx, filepath.Join(target, program), ".", "-tags=production", "-ldflags=-X main.version="+version, "./cmd/"+program)
			if err != nil {
				return err
			}
		}
	}
	return compile(ctx, filepath.Join(dir, "bin", "helm"), "tools", "helm.sh/helm/v4/cmd/helm")
}

func compile(ctx context.Context, target, module string, args ...string) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil { //nolint:gosec // containers are other users
		return err
	}
	command := exec.CommandContext(ctx, "go", append([]string{"build", "-C", filepath.Join(root, module), "-trimpath", "-o", target}, args...)...)
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", filepath.Base(target), err, output)
	}
	return nil
}
