package e2e

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/deep"
	"github.com/bullpen-ci/bullpen/test/kit/tracingtest"
)

const oneJob = `
on: push
jobs:
  hello:
    runs-on: bullpen
    steps:
      - run: echo hello
  long:
    runs-on: bullpen
    steps:
      - run: sleep 600
`

const shortJob = `
on: push
jobs:
  again:
    runs-on: bullpen
    steps:
      - run: echo again
`

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// One life of a state directory: up, a dead server, a second up, kill -9 with a job under way, up again, down.
func TestUp(t *testing.T) {
	dir := stateDir(t)
	collector := tracingtest.New(t)
	first, w := up(t, dir, "--runners", "2", "--workflow", writeFile(t, "one.yaml", oneJob),
		"--trace-endpoint", collector.URL, "--trace-link", "https://traces.example.com/{trace_id}")
	first.await(t, "the job's end", jobEnded("hello", "success"))

	t.Run("a second up in the folder is refused", func(t *testing.T) {
		refused(t, "(pid "+strconv.Itoa(w.PID)+")", "up", "--state-dir", dir)
	})
	t.Run("NET8_each part may do what its role says and no more", func(t *testing.T) { checkIdentities(t, dir, w) })
	t.Run("kubectl logs and exec work as of any node", func(t *testing.T) { logsAndCommands(t, dir, w) })
	t.Run("the folder is private", func(t *testing.T) { checkPrivate(t, dir) })
	t.Run("CLAIM5_a suspended account's jobs wait, and go on at once", func(t *testing.T) { suspendAndResume(t, dir, w, first) })
	t.Run("a pool is resized, and what another client applies is not overwritten", func(t *testing.T) { resizePool(t, dir) })
	t.Run("EXCL2_a paused and a drained pool hand out no job, and leave whoever works alone", func(t *testing.T) { pauseAndDrain(t, dir, w, first) })
	t.Run("CLAIM21_a job that no pool serves is named everywhere", func(t *testing.T) { jobsThatNoPoolServes(t, dir, w, first) })
	t.Run("workflows are run, followed and cancelled by commands", func(t *testing.T) { runFollowCancel(t, dir) })
	t.Run("the commands of the pages work", func(t *testing.T) { documented(t, dir) })
	t.Run("NET5_the console's link logs in, and its pages show the fleet", func(t *testing.T) { consoleOpens(t, dir) })
	t.Run("CLAIM6_NET2_the owner label cuts a runner off, and costs no job", func(t *testing.T) { theLabelCutsTheRunnerOff(t, dir, w, first) })
	t.Run("CLAIM6_control: a label before the answer costs the job", func(t *testing.T) { aLabelBeforeTheAnswer(t, dir, w, first) })
	t.Run("what a runner that died had said is kept", func(t *testing.T) { lastWords(t, dir, w) })
	t.Run("a job's trace leads from GitHub's event to its end", func(t *testing.T) { traced(t, dir, collector) })
	t.Run("Prometheus answers what the dashboard asks", func(t *testing.T) { monitoring(t, w) })
	t.Run("a process that dies is started again", func(t *testing.T) {
		require.NoError(t, syscall.Kill(w.Processes["server"], syscall.SIGKILL))
		first.await(t, "the end of the server", func(e event) bool { return e.Event == "ended" && e.Part == "server" })
		first.await(t, "another server", func(e event) bool {
			return e.Event == "started" && e.Part == "server" && e.PID != w.Processes["server"]
		})
	})

	t.Run("the control plane and the database are kept running, too", func(t *testing.T) {
		for _, part := range []string{"etcd", "kube-apiserver", "postgres"} {
			require.NoError(t, syscall.Kill(w.Processes[part], syscall.SIGKILL))
			first.await(t, "another "+part, func(e event) bool {
				return e.Event == "started" && e.Part == part && e.PID != w.Processes[part]
			})
		}
		// A server that has no database exits, and is restarted; a webhook sent in between would be lost, as at GitHub.
		awaitReady(t, w)
		submit(t, dir, w, shortJob)
		first.await(t, "a job after the outage", jobEnded("again", "success"))
	})

	// The long job runs; its processes survive everything that is killed now, and are ended by the next start.
	require.NoError(t, first.command.Process.Kill())
	first.exited(t)
	require.True(t, longJobRuns(t, dir), "a runner outlives everything else")
	refused(t, "`bullpen up` was killed", "status", "--state-dir", dir)
	second, w := up(t, dir, "--runners", "2", "--webhooks=poll", "--workflow", writeFile(t, "two.yaml", shortJob))
	second.await(t, "the report about leftovers", func(e event) bool { return strings.Contains(e.Message, "the last run was killed") })
	require.False(t, longJobRuns(t, dir), "what a killed up left behind is ended")
	second.await(t, "the job's end", jobEnded("again", "success"))
	t.Run("RECV8_a server that receives no webhooks runs workflows", func(t *testing.T) { withoutWebhooks(t, dir, w, second) })

	eachJobOnce(t, dir)
	theFleetAtAGlance(t, dir)
	stdout, stderr, code := run(t, "down", "--state-dir", dir)
	require.Zero(t, code, "%s", stderr)
	require.Contains(t, stdout, "(pid "+strconv.Itoa(w.PID)+")")
	require.Zero(t, second.exited(t), second.stderr.String())
	require.Empty(t, processesOf(t, dir))

	_, _, code = run(t, "down", "--state-dir", dir)
	require.Zero(t, code, "nothing to do is no error")
}

const failingJob = `
on: push
jobs:
  broken:
    runs-on: bullpen
    steps:
      - run: exit 3
`

// With --exit-when-done a script gets the workflows' result, and nothing is left running.
func TestUp_ExitsWithTheResultOfItsWorkflows(t *testing.T) {
	for name, c := range map[string]struct {
		workflow, says string
		code           int
	}{
		"success":             {shortJob, "", 0},
		"failure":             {failingJob, "): failure\n", 2},
		"labels without pool": {strings.Replace(failingJob, "runs-on: bullpen", "runs-on: bulpen", 1), "no pool has these labels", 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := stateDir(t)
			stdout, stderr, code := run(t, "up", "--state-dir", dir, "--runners", "1", "--exit-when-done", "--workflow", writeFile(t, "w.yaml", c.workflow))
			require.Equal(t, c.code, code, "%s\n%s", stdout, stderr)
			require.Contains(t, stderr, c.says)
			require.Equal(t, name == "failure", strings.Contains(stdout, "Process completed with exit code 3."), "the log of what failed: %s", stdout)
			require.Empty(t, processesOf(t, dir))
		})
	}
}

// withoutWebhooks has a server run workflows that reads its deliveries at GitHub and refuses webhooks.
func withoutWebhooks(t *testing.T, dir string, w *where, polling *running) {
	response, err := await.HTTP.Post(w.Webhooks, "application/json", strings.NewReader("{}"))
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusNotFound, response.StatusCode)
	submit(t, dir, w, strings.ReplaceAll(shortJob, "again", "later"))
	polling.await(t, "the next job's end", jobEnded("later", "success"))
	refused(t, "--webhooks must be push", "up", "--state-dir", dir, "--webhooks=never")
}

func longJobRuns(t *testing.T, dir string) bool {
	t.Helper()
	return slices.ContainsFunc(processesOf(t, dir), func(line string) bool { return strings.Contains(line, "sleep 600") })
}

func checkIdentities(t *testing.T, dir string, w *where) {
	for _, test := range []struct {
		identity, verb, resource string
		allowed                  bool
		namespace                string // that of the runners where empty
	}{
		{"server", "patch", "pods", true, ""}, {"server", "delete", "pods", false, ""}, {"server", "create", "pods", false, ""}, {"server", "get", "secrets", false, ""},
		{"controller", "delete", "pods", true, ""}, {"controller", "patch", "pods", true, ""}, {"controller", "update", "pods", false, ""},
		// What runners register with, and nothing of the installation's own.
		{"controller", "get", "secrets", true, ""}, {"controller", "get", "secrets", false, "bullpen-system"}, {"controller", "delete", "statefulsets.apps", false, "bullpen-system"},
		{"node-bootstrap", "list", "pods", false, ""}, {"node", "delete", "runnerpools.bullpen.dev", false, ""},
	} {
		may := allowed(t, filepath.Join(dir, "identities", test.identity+".kubeconfig"), test.verb, test.resource, cmp.Or(test.namespace, runnerNamespace))
		require.Equal(t, test.allowed, may, "%s: %s %s in %q", test.identity, test.verb, test.resource, test.namespace)
	}
	who, err := kubectl(t, w, filepath.Join(dir, "identities", "node.kubeconfig"), "auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}")
	require.NoError(t, err, who)
	require.Contains(t, who, "system:node:this-machine")
	require.Contains(t, who, "system:nodes")
	require.NotContains(t, who, "system:masters")
}

const heldJob = `
on: push
jobs:
  held:
    runs-on: bullpen
    steps:
      - run: echo held
`

// suspendAndResume is what an administrator does with the commands, under the roles that are shipped.
func suspendAndResume(t *testing.T, dir string, w *where, up *running) {
	account := func(args ...string) adminapi.Account {
		t.Helper()
		stdout, stderr, code := run(t, append(append([]string{"accounts"}, args...), "--state-dir", dir, "-o", "json")...)
		require.Zero(t, code, "%s", stderr)
		var a adminapi.Account
		require.NoError(t, json.Unmarshal([]byte(stdout), &a))
		return a
	}
	require.Equal(t, adminapi.AccountSuspended, account("suspend", "acme", "--reason", "a test").State)
	submit(t, dir, w, heldJob)
	require.Eventually(t, func() bool { return account("get", "acme").Blocked == 1 }, patience, commandInterval)

	// GitHub's own suspension stands beside the administrator's.
	installation := strconv.FormatInt(account("get", "acme").InstallationID, 10)
	admin(t, dir, w, "/_standin/installations/"+installation+"/suspend")
	require.Eventually(t, func() bool { return account("get", "acme").SuspendedByGitHub }, patience, commandInterval)
	require.Equal(t, adminapi.AccountSuspended, account("resume", "acme").State, "GitHub has it suspended still")
	require.EqualValues(t, 1, account("get", "acme").Blocked, "blocked, not lost")
	id := whyTheJobWaits(t, dir, "acme", "suspended-by-github")
	admin(t, dir, w, "/_standin/installations/"+installation+"/unsuspend")
	up.await(t, "the job that was blocked", jobEnded("held", "success"))
	require.Eventually(t, func() bool { // the stand-in's webhook follows
		stdout, _, code := run(t, "why", id, "--state-dir", dir)
		return code == 0 && strings.Contains(stdout, "Succeeded on runner ")
	}, patience, commandInterval)

	require.EqualValues(t, 30, account("set-limits", "acme", "--jobs", "30").Budgets[0].Limits.Jobs)
	stdout, stderr, code := run(t, "audit", "--account", "acme", "--state-dir", dir)
	require.Zero(t, code, "%s", stderr)
	for _, action := range []string{"set_limits", "resume", "suspend", "gh_suspend", "gh_resume", "install"} {
		require.Contains(t, stdout, action)
	}
	for _, part := range []string{"server", "controller"} { // NET-5
		_, stderr, code = run(t, "accounts", "list", "--state-dir", dir, "--kubeconfig", filepath.Join(dir, "identities", part+".kubeconfig"))
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "may not list accounts.bullpen.dev")
	}
}

// theFleetAtAGlance asks for what administrators check first.
func theFleetAtAGlance(t *testing.T, dir string) {
	t.Helper()
	show := func(args ...string) string {
		stdout, stderr, code := run(t, append(args, "--state-dir", dir)...)
		require.Zero(t, code, "%s", stderr)
		return stdout
	}
	// The scaled pool keeps none, and the other one two. A status is a moment old and a job may have come and gone since,
	// so all must agree in one reading. The sums alone would not do: a runner of the scaled pool that is on its way out may
	// stand in them for one of the other pool's.
	two := regexp.MustCompile(`(?m)^default +bullpen +2 +2 +0 +0 +0 +0 +- +`)
	none := regexp.MustCompile(`(?m)^scaled +scaled +0 +0 +0 +0 +0 +0 +- +`)
	idle := regexp.MustCompile(`(?m)^\S+ +default +idle +- +- +- +this-machine +`)
	require.Eventually(t, func() bool {
		pools, runners := show("pools"), show("runners", "--pool", "default", "--stage", "idle")
		return two.MatchString(pools) && none.MatchString(pools) && len(idle.FindAllString(runners, -1)) == 2 &&
			strings.Contains(show("status"), "2 idle, 0 busy, 0 starting, 2 desired")
	}, patience, commandInterval)
}

// eachJobOnce compares what is counted as used with the jobs that ran, after everything was killed several times. The last one's events may
// be on their way.
func eachJobOnce(t *testing.T, dir string) {
	t.Helper()
	var ran, counted int
	defer func() {
		if t.Failed() { // what differs, to read
			for _, args := range [][]string{{"jobs", "--ended", "--limit", "1000"}, {"usage"}, {"runners"}} {
				stdout, _, _ := run(t, append(args, "--state-dir", dir, "-o", "json")...)
				t.Logf("%v:\n%s", args, stdout)
			}
		}
	}()
	require.Eventually(t, func() bool {
		ran, counted = jobsThatRan(t, dir), jobsCounted(t, dir)
		return ran == counted
	}, patience, commandInterval, "jobs and what is counted of them differ")
	require.GreaterOrEqual(t, ran, 5)
}

func jobsThatRan(t *testing.T, dir string) (ran int) {
	t.Helper()
	stdout, stderr, code := run(t, "jobs", "--ended", "--limit", "1000", "--state-dir", dir, "-o", "json")
	require.Zero(t, code, "%s", stderr)
	var jobs []adminapi.Job
	require.NoError(t, json.Unmarshal([]byte(stdout), &jobs))
	for _, j := range jobs {
		if j.RunnerName != "" && j.StartedAt != nil {
			ran++
		}
	}
	return ran
}

func jobsCounted(t *testing.T, dir string) (counted int) {
	t.Helper()
	now := time.Now().UTC()
	stdout, stderr, code := run(t, "usage", "--from", now.Add(-time.Hour).Format(adminapi.MonthFormat), "--to", now.Format(adminapi.MonthFormat),
		"--state-dir", dir, "-o", "csv")
	require.Zero(t, code, "%s", stderr)
	rows, err := csv.NewReader(strings.NewReader(stdout)).ReadAll()
	require.NoError(t, err)
	at := slices.Index(rows[0], "jobs")
	for _, row := range rows[1:] {
		n, err := strconv.Atoi(row[at])
		require.NoError(t, err)
		counted += n
	}
	return counted
}

// whyTheJobWaits asks for the one job that waits, and why it does; it returns the job's id.
func whyTheJobWaits(t *testing.T, dir, account, code string) string {
	t.Helper()
	stdout, stderr, exit := run(t, "jobs", "--state", "queued,blocked,no-pool", "--account", account, "--state-dir", dir, "-o", "json")
	require.Zero(t, exit, "%s", stderr)
	var jobs []adminapi.Job
	require.NoError(t, json.Unmarshal([]byte(stdout), &jobs))
	require.Len(t, jobs, 1)
	require.Equal(t, account+"/app", jobs[0].Repository)
	id := strconv.FormatInt(jobs[0].ID, 10)
	stdout, stderr, exit = run(t, "why", id, "--state-dir", dir, "-o", "json")
	require.Zero(t, exit, "%s", stderr)
	var answer adminapi.Why
	require.NoError(t, json.Unmarshal([]byte(stdout), &answer))
	require.Equal(t, code, answer.Reasons[0].Code, "%v", answer.Reasons)
	return id
}

func checkPrivate(t *testing.T, dir string) {
	info, err := os.Stat(dir)
	require.NoError(t, err)
	want := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		want = 0o711 // the user that root lends to PostgreSQL passes through
	}
	require.Equal(t, want, info.Mode().Perm())
	for _, directory := range []string{"secrets", "identities", "logs"} {
		entries, err := os.ReadDir(filepath.Join(dir, directory))
		require.NoError(t, err)
		require.NotEmpty(t, entries, directory)
		for _, entry := range entries {
			info, err := entry.Info()
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), entry.Name())
		}
	}
}

const badPool = `
apiVersion: bullpen.dev/v1alpha1
kind: RunnerPool
metadata: {name: linux}
spec: {labels: [linux], platform: linux, replica: 1}
`

func TestBadInputIsOneSentenceBeforeAnythingStarts(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	foreign := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(foreign, "thesis.txt"), nil, 0o600))
	stale := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(stale, "bullpen-onebox.json"), []byte(`{"format":99}`), 0o600))
	for name, test := range map[string]struct {
		says string
		args []string
	}{
		"missing assets":        {"lacks etcd", []string{"up", "--assets", t.TempDir()}},
		"a taken port":          {"choose another port", []string{"up", "--listen", taken.Addr().String()}},
		"a bad address":         {"such as 127.0.0.1:8080", []string{"up", "--github-listen", "8080"}},
		"somebody's folder":     {"Choose an empty directory", []string{"up", "--state-dir", foreign}},
		"a stale state folder":  {"bullpen down --delete", []string{"up", "--state-dir", stale}},
		"an unreadable file":    {"--workflow: reading the workflow file", []string{"up", "--workflow", "/no/such/file.yaml"}},
		"an unsupported step":   {"uses", []string{"up", "--workflow", writeFile(t, "w.yaml", "on: push\njobs:\n  a:\n    runs-on: bullpen\n    steps:\n      - uses: actions/checkout@v4\n")}},
		"a file without a pool": {"has no RunnerPool", []string{"up", "--pool-file", writeFile(t, "p.yaml", "# nothing\n")}},
		"a pool with a mistake": {"unknown field", []string{"up", "--pool-file", writeFile(t, "m.yaml", badPool)}},
		"half an App":           {"--github-private-key-file", []string{"up", "--github-app", "42"}},
		"down, elsewhere":       {"is not a state directory", []string{"down", "--delete", "--state-dir", foreign}},
	} {
		t.Run(name, func(t *testing.T) {
			args := test.args
			if !strings.Contains(strings.Join(args, " "), "--state-dir") {
				args = append(args, "--state-dir", stateDir(t))
			}
			refused(t, test.says, args...)
		})
	}
	require.FileExists(t, filepath.Join(foreign, "thesis.txt"))
}

// A start that is called off stops what it had started.
func TestAStartThatIsCalledOff(t *testing.T) {
	dir := stateDir(t)
	starting := begin(t, bullpen(t, "up", "--json", "--state-dir", dir))
	t.Cleanup(func() { starting.end(t) })
	starting.await(t, "a part that runs", func(e event) bool { return e.Event == "started" })
	starting.end(t)
	require.Contains(t, starting.stderr.String(), "interrupted; nothing is left running")
	require.Empty(t, processesOf(t, dir))
}

// What only the API server can refuse is refused by its own sentence, and everything that had been started is stopped.
func TestAPoolThatTheAPIServerRefuses(t *testing.T) {
	deep.Only(t, "TestAStartThatIsCalledOff, after which nothing is left either")
	dir := stateDir(t)
	pool := writeFile(t, "pool.yaml", `
apiVersion: bullpen.dev/v1alpha1
kind: RunnerPool
metadata: {name: bad}
spec:
  platform: linux
  labels: [linux]
  resources: {cpu: 500m, memory: 256Mi}
  template: {image: bullpen}
`)
	refused(t, "must be unique to this pool", "up", "--state-dir", dir, "--pool-file", pool)
	require.Empty(t, processesOf(t, dir))
}
