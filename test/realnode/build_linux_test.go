package realnode

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
	"github.com/bullpen-ci/bullpen/test/kit/registrytest"
)

const (
	patience = 5 * time.Minute // bounds what a loaded machine with two cores may take
	interval = 200 * time.Millisecond
)

func TestMain(m *testing.M) {
	os.Exit(registrytest.Run(func() int { return postgrestest.Run(func() int { return kit.Main(m) }) }))
}

// build compiles what runs: the product's images for each version, as `make images` does, and beside them the binary with the development runner,
// and Helm.
func build(ctx context.Context, dir string, versions ...string) error {
	if err := compile(ctx, filepath.Join(dir, "bin", "bullpen"), ".", "-ldflags=-X main.version=development", "./cmd/bullpen"); err != nil {
		return err
	}
	packer := filepath.Join(dir, "bin", "images")
	if err := compile(ctx, packer, "images", "."); err != nil {
		return err
	}
	for _, version := range versions {
		command := exec.CommandContext(ctx, packer, "-source", root, "-dist", filepath.Join(dir, "images"), "-version", version, "-name", repository, "-platforms", "linux/"+runtime.GOARCH)
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("building the image of %s: %w\n%s", version, err, output)
		}
		archive := "bullpen-" + version + ".oci.tar"
		if err := os.Rename(filepath.Join(dir, "images", archive), filepath.Join(dir, archive)); err != nil { // the next build removes it there
			return fmt.Errorf("building the image of %s: %w", version, err)
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

const runnerRef = "registry.test/runner:v1"

// runnerImage has the development runner and what the jobs' steps call.
func runnerImage(t testing.TB, dir string) realnode.Image {
	files, err := realnode.HostPrograms(strings.Fields(`bash sh grep sed tar gzip timeout getent
		basename cat chmod cksum cp date dirname env false head id ls mkdir mktemp mv nproc printf pwd rm seq sha256sum sleep sort stat tail tee test touch tr true uname wc`)...)
	require.NoError(t, err)
	files = append(files,
		realnode.File{Path: "/usr/local/bin/bullpen", From: filepath.Join(dir, "bin", "bullpen")},
		realnode.File{Path: "/etc/passwd", Content: []byte("root:x:0:0:root:/root:/bin/bash\nrunner:x:1001:1001:runner:/home/runner:/bin/bash\n"), Mode: 0o644},
		realnode.File{Path: "/tmp", Mode: 0o777 | fs.ModeSticky},
		realnode.File{Path: "/home/runner", Owner: 1001},
	)
	return realnode.Image{Ref: runnerRef, Files: files, User: "1001:1001", Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/runner"}}
}
