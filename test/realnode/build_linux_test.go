package realnode

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
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

// build compiles what runs: the programs of an image for each version of the product, and beside them the binary with the
// development runner, and Helm.
func build(ctx context.Context, dir string, versions ...string) error {
	if err := compile(ctx, filepath.Join(dir, "bin", "bullpen"), ".", "-ldflags=-X main.version=development", "./cmd/bullpen"); err != nil {
		return err
	}
	for _, version := range versions {
		target := filepath.Join(dir, "images", version)
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

// productImage has the layout of those that `make images` builds.
func productImage(dir, version string) realnode.Image {
	const programs = "/usr/local/bin/"
	image := realnode.Image{
		Ref: repository + ":" + version, User: "65532:65532", Entrypoint: []string{programs + "bullpen"}, Env: []string{"PATH=/usr/local/bin"},
		Files: []realnode.File{
			{Path: "/etc/group", Content: []byte("root:x:0:\nbullpen:x:65532:\n"), Mode: 0o644},
			{Path: "/etc/passwd", Content: []byte("root:x:0:0:root:/:/nonexistent\nbullpen:x:65532:65532:bullpen:/:/nonexistent\n"), Mode: 0o644},
		},
	}
	for _, program := range []string{"bullpen", "bullpen-agent"} {
		image.Files = append(image.Files, realnode.File{Path: programs + program, From: filepath.Join(dir, "images", version, program)})
	}
	return image
}

const runnerRef = "registry.test/runner:v1"

// runnerImage has the development runner and what the jobs' steps call.
func runnerImage(t *testing.T, dir string) realnode.Image {
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
