package architecture

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// Bounds of cmd/bullpen-agent: each runner pod has a copy, and each readiness probe starts it (docs/adr/0038).
const (
	agentPackages = 225 // with those for containers of jobs; 223 on linux/amd64
	agentBytes    = 15 << 20
)

// agentPlatforms are those that a release has, as images/ builds them.
var agentPlatforms = [][2]string{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "arm64"}}

// agentDenies are libraries that would bring hundreds of packages, or work at package level, into every probe.
var agentDenies = []string{
	"k8s.io", "sigs.k8s.io", "github.com/jackc", "golang.org/x/crypto", "charm.land", "github.com/charmbracelet", "github.com/prometheus",
	"go.opentelemetry.io", "github.com/google/go-github", "github.com/spf13/cobra", "github.com/spf13/viper", "text/template", "regexp", module + "/api/v1alpha1", module + "/api/adminapi", module + "/internal/server",
}

func TestAgent_IsSmall(t *testing.T) {
	noticeChanges(t)
	for _, platform := range agentPlatforms {
		t.Run(platform[0]+"-"+platform[1], func(t *testing.T) {
			environment := append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS="+platform[0], "GOARCH="+platform[1])
			list := exec.CommandContext(await.Context(t), "go", "list", "-deps", "-tags=production", module+"/cmd/bullpen-agent")
			list.Env = environment
			output, err := list.Output()
			require.NoError(t, err)
			dependencies := strings.Fields(string(output))
			require.Greater(t, len(dependencies), 50, "the list is read")
			require.LessOrEqual(t, len(dependencies), agentPackages, "packages of cmd/bullpen-agent")
			for _, dependency := range dependencies {
				require.False(t, withinAny(dependency, agentDenies), "cmd/bullpen-agent depends on %s: each runner pod has a copy, and each probe starts it", dependency)
			}

			file := filepath.Join(t.TempDir(), "bullpen-agent")
			build := exec.CommandContext(await.ContextWithin(t, 10*time.Minute), "go", "build", "-trimpath", "-buildvcs=false", "-tags=production", //nolint:gosec // constants
				"-ldflags=-s -w -buildid=", "-o", file, module+"/cmd/bullpen-agent")
			build.Env = environment
			output, err = build.CombinedOutput()
			require.NoError(t, err, string(output))
			info, err := os.Stat(file)
			require.NoError(t, err)
			require.LessOrEqual(t, info.Size(), int64(agentBytes), "size of cmd/bullpen-agent")
			t.Logf("%d packages, %d bytes", len(dependencies), info.Size())
		})
	}
}
