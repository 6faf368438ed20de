package e2e

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const chattyJob = `
on: workflow_dispatch
jobs:
  chatty:
    runs-on: bullpen
    steps:
      - run: echo "it begins"; until [ -e FILE ]; do sleep 0.05; done; echo "it ends"
      - if: always()
        run: echo "swept up"
`

// runFollowCancel does with commands what a user of the one-machine mode does with GitHub's pages: runs workflows, follows and reads the logs
// of their jobs, and cancels them.
func runFollowCancel(t *testing.T, dir string) {
	workflow := func(content, name string) string {
		return writeFile(t, "ci.yaml", strings.ReplaceAll(content, "again", name))
	}

	stdout, stderr, code := run(t, "run", workflow(shortJob, "watched"), "--watch", "--repo", "globex/site", "--state-dir", dir)
	require.Zero(t, code, "%s\n%s", stdout, stderr)
	require.Contains(t, stdout, "added repository globex/site")
	require.Regexp(t, `(?m)^Submitted ci.yaml to globex/site as run \d+\.$`, stdout)
	require.Regexp(t, `(?m)^  job \d+  watched +success after `, stdout)
	require.Regexp(t, `(?m)^Run \d+ completed: success\.$`, stdout)

	stdout, stderr, code = run(t, "run", workflow(strings.ReplaceAll(failingJob, "broken", "unhappy"), ""), "--watch", "--state-dir", dir)
	require.Equal(t, 2, code, "%s", stderr)
	require.Contains(t, stderr, "): failure\n")
	require.Regexp(t, `job \d+  unhappy +failure after \S+\. Log: .bullpen job \d+ --log --state-dir `, stdout)
	id := strings.Fields(stdout[strings.Index(stdout, "`bullpen job ")+1:])[2]
	stdout, stderr, code = run(t, "job", id, "--log", "--state-dir", dir)
	require.Zero(t, code, "%s", stderr)
	require.Regexp(t, `(?s)==> Set up job\n.*==> Run exit 3\n.*Process completed with exit code 3\.\n==> Run exit 3: failure\n`, stdout)

	bad := workflow("on: push\njobs:\n  a:\n    runs-on: bullpen\n    steps:\n      - uses: actions/checkout@v4\n", "")
	refused(t, bad+":6:", "run", bad, "--state-dir", dir)
	end := filepath.Join(t.TempDir(), "end")
	followToTheEnd(t, dir, workflow(strings.ReplaceAll(chattyJob, "FILE", end), ""), end)
	cancelARunningJob(t, dir, workflow(strings.ReplaceAll(strings.ReplaceAll(chattyJob, "FILE", end+"less"), "chatty", "endless"), ""))
}

// submitted runs a workflow of one job, and returns the run's ID and the job's.
func submitted(t *testing.T, dir, file string) (runID, job string) {
	t.Helper()
	stdout, stderr, code := run(t, "run", file, "--json", "--state-dir", dir)
	require.Zero(t, code, "%s", stderr)
	for line := range strings.Lines(stdout) {
		var e struct{ Run, Job *struct{ ID int64 } }
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		if e.Run != nil {
			runID = strconv.FormatInt(e.Run.ID, 10)
		}
		if e.Job != nil {
			job = strconv.FormatInt(e.Job.ID, 10)
		}
	}
	require.NotEmpty(t, runID)
	require.NotEmpty(t, job)
	return runID, job
}

// followToTheEnd reads the log of a job that ends when the file is there.
func followToTheEnd(t *testing.T, dir, file, end string) {
	t.Helper()
	_, job := submitted(t, dir, file)
	log := follow(t, dir, job)
	log.awaitLine(t, "it begins")
	require.NoError(t, os.WriteFile(end, nil, 0o600))
	rest := log.rest(t)
	require.Contains(t, strings.Join(rest, "\n"), "it ends\n==> ")
	require.Contains(t, rest, "swept up")
}

// cancelARunningJob also leaves its log by Ctrl-C.
func cancelARunningJob(t *testing.T, dir, file string) {
	t.Helper()
	runID, job := submitted(t, dir, file)
	log := follow(t, dir, job)
	log.awaitLine(t, "it begins")
	stdout, stderr, code := run(t, "cancel", "--run", runID, "--state-dir", dir)
	require.Zero(t, code, "%s", stderr)
	require.Contains(t, []string{
		"Cancelling job " + job + " (endless): its runner stops the current step, and runs steps with always() or cancelled().\n",
		"Cancelled job " + job + " (endless).\n", // the command was the slower one: the runner had done all that when it read the job again
	}, stdout)
	rest := log.rest(t)
	require.Contains(t, rest, "swept up", "steps with always() run")
	refused(t, "job "+job+" (endless) was not cancelled: it has completed with conclusion cancelled", "cancel", job, "--state-dir", dir)

	// The workflow's second run is left by Ctrl-C, which cancels nothing.
	_, job = submitted(t, dir, file)
	log = follow(t, dir, job)
	log.awaitLine(t, "it begins")
	require.NoError(t, log.command.Process.Signal(syscall.SIGINT))
	log.rest(t)
	_, stderr, code = run(t, "cancel", job, "--state-dir", dir)
	require.Zero(t, code, "%s", stderr)
	stdout, stderr, code = run(t, "job", job, "--log", "--follow", "--state-dir", dir)
	require.Zero(t, code, "%s", stderr)
	require.Contains(t, stdout, "swept up\n")
	require.Contains(t, stderr, "(endless) completed: cancelled")
}

// following is a bullpen job --log --follow.
type following struct {
	command *exec.Cmd
	lines   chan string // closed at its end
	exited  chan error
}

// follow starts one, which is killed if it takes too long.
func follow(t *testing.T, dir, job string) *following {
	t.Helper()
	f := &following{command: bullpen(t, "job", job, "--log", "--follow", "--state-dir", dir), lines: make(chan string, 1000), exited: make(chan error, 1)}
	out, err := f.command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, f.command.Start())
	limit := time.AfterFunc(patience, func() { _ = f.command.Process.Kill() })
	go func() {
		defer close(f.lines)
		defer limit.Stop()
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			f.lines <- scanner.Text()
		}
		f.exited <- f.command.Wait()
	}()
	return f
}

func (f *following) awaitLine(t *testing.T, want string) {
	t.Helper()
	for line := range f.lines { // bounded: limit kills the command
		if line == want {
			return
		}
	}
	require.FailNow(t, "the log ended", "before %q", want)
}

// rest is what follows, until the command exits without an error.
func (f *following) rest(t *testing.T) (rest []string) {
	t.Helper()
	for line := range f.lines { // bounded: limit kills the command
		rest = append(rest, line)
	}
	require.NoError(t, await.Receive(t, f.exited, "the end of the log"))
	return rest
}
