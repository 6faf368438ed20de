package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"

	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/gobuild"
)

const (
	patience = 90 * time.Second // bounds what a loaded machine with two cores may take
	interval = 50 * time.Millisecond
)

// binary is the product, built once by TestMain; bullpen-agent is beside it.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "bullpen-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "bullpen")
	if err := gobuild.Product(binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := endMacs(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// bullpen makes a command of the binary. It does not see a database of the user's: each `bullpen up` has a private one.
func bullpen(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	command := exec.Command(binary, args...)
	command.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "BULLPEN_DATABASE_URL=") || strings.HasPrefix(entry, "BULLPEN_LISTEN_DATABASE_URL=")
	})
	command.Env = append(command.Env, "BULLPEN_ASSETS="+kit.AssetsOrFail(t))
	return command
}

// run runs a command to its end, bounded, and returns its output and exit code.
func run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	command := bullpen(t, args...)
	command.Stdout, command.Stderr = &out, &errs
	require.NoError(t, command.Start())
	limit := time.AfterFunc(2*patience, func() { _ = command.Process.Signal(syscall.SIGTERM) })
	defer limit.Stop()
	var exit *exec.ExitError
	if err := command.Wait(); err != nil && !errors.As(err, &exit) { // bounded: limit ends it
		require.NoError(t, err)
	}
	return out.String(), errs.String(), command.ProcessState.ExitCode()
}

// refused runs a command that must fail with one sentence.
func refused(t *testing.T, says string, args ...string) {
	t.Helper()
	_, stderr, code := run(t, args...)
	require.Equal(t, 1, code, "%s", stderr)
	require.Contains(t, stderr, says)
	require.Equal(t, 1, strings.Count(strings.TrimSpace(stderr), "\n")+1, "one line: %s", stderr)
}

// stateDir is a short directory that root's PostgreSQL user may pass through. Nothing of it is left when the test ends.
func stateDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bullpen-e2e-")
	require.NoError(t, err)
	t.Cleanup(func() { deleteState(t, dir) })
	return dir
}

func deleteState(t *testing.T, dir string) {
	t.Helper()
	_, stderr, code := run(t, "down", "--delete", "--yes", "--state-dir", dir)
	require.Zero(t, code, "%s", stderr)
	require.Empty(t, processesOf(t, dir))
}

// event is a line of `bullpen up --json`.
type event struct {
	Event   string
	Part    string
	PID     int
	Message string
	Job     *struct{ Name, Status, Conclusion, Runner string }
	Where   *where
}

type where struct {
	PID, NodeInit        int
	GitHub, Kubectl      string
	Kubeconfig, Webhooks string
	Dispatch             string
	Metrics              map[string]string
	Processes            map[string]int

	client dynamic.Interface // see api
}

// running is a `bullpen up` under way.
type running struct {
	command *exec.Cmd
	ended   chan struct{}
	err     error
	stderr  bytes.Buffer

	mu     sync.Mutex
	events []event
}

// up starts `bullpen up` and waits until it is up.
func up(t *testing.T, dir string, args ...string) (*running, *where) {
	t.Helper()
	return upAs(t, bullpen(t, append([]string{"up", "--json", "--state-dir", dir}, args...)...))
}

// upAs is up as a command that was prepared.
func upAs(t *testing.T, command *exec.Cmd) (*running, *where) {
	t.Helper()
	r := begin(t, command)
	t.Cleanup(func() { r.end(t) })
	return r, r.ready(t)
}

// begin starts `bullpen up`. The caller ends it.
func begin(t *testing.T, command *exec.Cmd) *running {
	t.Helper()
	r := &running{command: command, ended: make(chan struct{})}
	r.command.Stderr = &r.stderr
	stdout, err := r.command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, r.command.Start())
	go func() {
		defer close(r.ended)
		lines := bufio.NewScanner(stdout)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var e event
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				r.mu.Lock()
				r.events = append(r.events, e)
				r.mu.Unlock()
			}
		}
		r.err = r.command.Wait()
	}()
	return r
}

func (r *running) end(t *testing.T) {
	t.Helper()
	_ = r.command.Process.Signal(syscall.SIGTERM)
	await.ReceiveWithin(t, 5*time.Minute, r.ended, "the command exits after SIGTERM")
}

func (r *running) ready(t *testing.T) *where {
	t.Helper()
	return r.await(t, "ready", func(e event) bool { return e.Event == "ready" }).Where
}

// await waits for an event.
func (r *running) await(t *testing.T, what string, wanted func(event) bool) event {
	t.Helper()
	return r.awaitWithin(t, patience, what, wanted)
}

func (r *running) awaitWithin(t *testing.T, limit time.Duration, what string, wanted func(event) bool) event {
	t.Helper()
	var found event
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		at := slices.IndexFunc(r.events, wanted)
		if at >= 0 {
			found = r.events[at]
			return true
		}
		select {
		case <-r.ended:
			require.FailNow(t, "bullpen up has ended", "waiting for %s: %s", what, r.stderr.String())
		default:
		}
		return false
	}, limit, interval, "%s never came", what)
	return found
}

func jobEnded(name, conclusion string) func(event) bool {
	return func(e event) bool { return e.Job != nil && e.Job.Name == name && e.Job.Conclusion == conclusion }
}

// awaitReady waits until the server takes webhooks.
func awaitReady(t *testing.T, w *where) {
	t.Helper()
	ready := strings.TrimSuffix(w.Webhooks, "/webhooks/github") + "/readyz"
	require.Eventually(t, func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, ready, nil)
		if err != nil {
			return false
		}
		response, err := await.HTTP.Do(request)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, patience, interval, "the server never became ready again")
}

// submit queues a workflow at the stand-in, as a user with curl would.
func submit(t *testing.T, dir string, w *where, content string) {
	t.Helper()
	submitTo(t, dir, w, "acme/app", content)
}

func submitTo(t *testing.T, dir string, w *where, repository, content string) {
	t.Helper()
	body, err := json.Marshal(map[string]string{"file_name": "later.yaml", "content": content, "repo": repository})
	require.NoError(t, err)
	post(t, dir, w, "/_standin/workflows", body)
}

// admin tells the stand-in to do something.
func admin(t *testing.T, dir string, w *where, path string) {
	t.Helper()
	post(t, dir, w, path, nil)
}

func post(t *testing.T, dir string, w *where, path string, body []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.GitHub+path, bytes.NewReader(body))
	require.NoError(t, err)
	ask(t, dir, request)
}

// ask sends the stand-in a request of its administrator's.
func ask(t *testing.T, dir string, request *http.Request) {
	t.Helper()
	token, err := os.ReadFile(filepath.Join(dir, "secrets", "admin-token"))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	request.Header.Set("Content-Type", "application/json")
	response, err := await.HTTP.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Less(t, response.StatusCode, 300, "%s", answer)
}

// exited waits for the end and returns the exit code.
func (r *running) exited(t *testing.T) int {
	t.Helper()
	select {
	case <-r.ended:
	case <-time.After(patience):
		require.FailNow(t, "bullpen up does not end")
	}
	return r.command.ProcessState.ExitCode()
}

// kubectl runs the control plane's own kubectl with a kubeconfig.
func kubectl(t *testing.T, w *where, kubeconfig string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	output, err := exec.CommandContext(ctx, w.Kubectl, append([]string{"--kubeconfig", kubeconfig}, args...)...).CombinedOutput()
	return strings.TrimSpace(string(output)), err
}

// processesOf are the processes, other than this one, that have the directory in their arguments or environment.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		output, err := exec.CommandContext(await.Context(t), "ps", "-axEww", "-o", "pid=,command=").Output()
		require.NoError(t, err)
		return slices.DeleteFunc(strings.Split(string(output), "\n"), func(line string) bool { return !strings.Contains(line, dir) })
	}
	entries, err := os.ReadDir("/proc")
	require.NoError(t, err)
	var found []string
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		args, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		environ, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if bytes.Contains(args, []byte(dir)) || bytes.Contains(environ, []byte(dir)) {
			found = append(found, entry.Name()+": "+strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return found
}
