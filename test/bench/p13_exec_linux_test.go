package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/stats"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/volume"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/gobuild"
)

const (
	p13Samples    = 200
	p13ExecBudget = 3 * time.Millisecond
	p13Output     = 512 << 20
	p13Rate       = 200.0 // MB/s
)

// BenchmarkP13Exec runs a step in a job's container, whose first process is a real guard in namespaces of its own: what a process costs
// more than one that this process starts itself, and how fast its output arrives.
func BenchmarkP13Exec(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("a PID namespace needs root")
	}
	guard := startGuard(b)
	for b.Loop() {
		p13Overhead(b, guard)
		p13Throughput(b, guard)
	}
}

// startGuard starts a container's guard and the runner that it belongs to.
func startGuard(b *testing.B) *client.Client {
	b.Helper()
	dir, err := os.MkdirTemp("", "p13") // short: a socket's path has at most 107 bytes
	require.NoError(b, err)
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	agent := filepath.Join(dir, filepath.Base(jobcontainer.Binary))
	require.NoError(b, gobuild.Build(agent, "github.com/bullpen-ci/bullpen/cmd/bullpen-agent"))
	hold, err := volume.Take(dir)
	require.NoError(b, err)
	require.NoError(b, volume.Want(dir, "job"))
	command := exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", agent, "guard", "--name", "job", "--dir", dir) //nolint:gosec // our program
	command.Stderr = os.Stderr
	require.NoError(b, command.Start())
	b.Cleanup(func() {
		hold.Release()
		await.Return(b, func() { _ = command.Wait() }, "the guard ends with its runner")
	})
	guard := client.New(filepath.Join(dir, "job", filepath.Base(jobcontainer.Socket("job"))))
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	require.NoError(b, guard.Wait(ctx))
	return guard
}

func p13Overhead(b *testing.B, guard *client.Client) {
	b.Helper()
	var bare, guarded []time.Duration
	for range p13Samples {
		start := time.Now()
		require.NoError(b, exec.Command("/bin/true").Run()) // bounded: it only exits
		bare = append(bare, time.Since(start))
		start = time.Now()
		exit, err := guard.Exec(context.Background(), client.Process{Argv: []string{"/bin/true"}}, client.Streams{})
		guarded = append(guarded, time.Since(start))
		require.NoError(b, err)
		require.Zero(b, exit.Code)
	}
	limit, measured := stats.Median(bare), stats.Median(guarded)
	more := measured - limit
	b.ReportMetric(float64(more.Microseconds()), "µs/exec")
	report(row{
		id: "P13", what: "a process in a job's container", measured: ms(measured), limit: "started without a guard: " + ms(limit),
		result: "+" + ms(more), value: more.Seconds(), samples: p13Samples, spread: quartiles(guarded), budget: "≤ +" + ms(p13ExecBudget), kept: more <= p13ExecBudget,
	})
}

func p13Throughput(b *testing.B, guard *client.Client) {
	b.Helper()
	argv := []string{"head", "-c", fmt.Sprint(p13Output), "/dev/zero"}
	var count counter
	start := time.Now()
	direct := exec.CommandContext(await.Context(b), argv[0], argv[1:]...) //nolint:gosec // constants
	direct.Stdout = &count
	require.NoError(b, direct.Run())
	limit := float64(count.n) / 1e6 / time.Since(start).Seconds()
	count = counter{}
	start = time.Now()
	_, err := guard.Exec(context.Background(), client.Process{Argv: argv}, client.Streams{Stdout: &count})
	require.NoError(b, err)
	require.EqualValues(b, p13Output, count.n)
	rate := float64(count.n) / 1e6 / time.Since(start).Seconds()
	b.ReportMetric(rate, "MB/s")
	report(row{
		id: "P13", what: "output of a process in a job's container", measured: fmt.Sprintf("%.0f MB/s", rate), limit: fmt.Sprintf("through one pipe: %.0f MB/s", limit),
		result: fmt.Sprintf("%.0f MB/s", rate), value: rate, samples: 1, budget: fmt.Sprintf("≥ %.0f MB/s", p13Rate), kept: rate >= p13Rate,
	})
}

// counter counts bytes.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}
