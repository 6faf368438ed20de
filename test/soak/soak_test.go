package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/deep"
	"github.com/bullpen-ci/bullpen/test/kit/gobuild"
	"github.com/bullpen-ci/bullpen/test/soak/check"
	"github.com/bullpen-ci/bullpen/test/soak/schedule"
)

// binary is the product and self the soak's command, with fault points in both; built once by TestMain.
var binary, self string

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	flag.Parse()
	ctrllog.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "bullpen-soak-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary, self = filepath.Join(dir, "bullpen"), filepath.Join(dir, "soak")
	for path, pkg := range map[string]string{binary: "cmd/bullpen", self: "test/soak/run"} {
		if err := gobuild.Build(path, "github.com/bullpen-ci/bullpen/"+pkg, "-tags", "faultpoints"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if err := gobuild.Build(filepath.Join(dir, "bullpen-agent"), "github.com/bullpen-ci/bullpen/cmd/bullpen-agent"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// shortSeed is the seed of the short soak.
const shortSeed = 20

// stateDir is a directory that PostgreSQL's user may pass through. It is kept when the test fails and kit.EnvKeep is set.
func stateDir(t *testing.T) string {
	t.Helper()
	kit.AssetsOrFail(t)
	dir, err := os.MkdirTemp("", "bullpen-soak-")
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() && os.Getenv(kit.EnvKeep) != "" {
			t.Logf("everything that was seen is in %s", dir)
			return
		}
		require.NoError(t, os.RemoveAll(dir))
	})
	return dir
}

// lines has every line that is printed appear in the test's log.
type lines struct{ t *testing.T }

func (l lines) Write(text []byte) (int, error) {
	l.t.Log(strings.TrimRight(string(text), "\n"))
	return len(text), nil
}

// The kinds that GitHub's faults are dealt from are those that the stand-in has.
func TestSchedule_GitHubFaultsExist(t *testing.T) {
	for _, name := range schedule.GitHubFaults() {
		require.Contains(t, standin.FaultKinds(), standin.FaultKind(name))
	}
}

// The points at which processes die are all that there are.
func TestSchedule_HasEveryFaultPoint(t *testing.T) {
	var all []string
	for _, point := range faultpoint.Points() {
		all = append(all, string(point))
	}
	require.ElementsMatch(t, all, schedule.Points())
}

// A schedule that fills the database's disk is not played on a disk that others use.
func TestRun_RefusesToFillADiskThatIsNotTheDatabasesOwn(t *testing.T) {
	dir := t.TempDir()
	plan := schedule.Schedule{Options: schedule.Options{Length: 1}, Steps: []schedule.Step{{Kind: schedule.PostgresFull}}}
	_, err := Run(t.Context(), Options{Dir: dir, Binary: binary, Self: self, Rounds: []schedule.Schedule{plan}})
	require.ErrorContains(t, err, "-disk")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "nothing was started")
}

// The short soak: some two minutes with a fixed seed.
func TestSoak_TheWholeSystemUnderFaults(t *testing.T) {
	deep.Only(t, "TestSoak_RECV5_NET8_EverythingOnce, which has each fault once")
	plan, err := schedule.Make(schedule.Options{
		Seed: shortSeed, Jobs: 60, Faults: 20, Length: schedule.Duration(50 * time.Second), Without: []string{schedule.PostgresFull},
	})
	require.NoError(t, err)
	report, err := Run(t.Context(), Options{
		Dir: stateDir(t), Binary: binary, Self: self, Rounds: []schedule.Schedule{plan}, Runners: 6, RealRunners: 1, Patience: 2 * time.Minute, Out: lines{t},
	})
	require.NoError(t, err)
	require.False(t, report.Failed(), "seed %d", shortSeed)
	require.Equal(t, 60, report.Jobs)
	require.Greater(t, report.Deeds, 20)
}

// Each row of the table is violated deliberately, with the fleet running, and the checker finds each: the victim, and no other. Only "jobs
// run twice" cannot be produced against this GitHub, which gives no job to two: there its ledger is changed.
func TestChecker_FindsEveryHarmDoneToARunningSystem(t *testing.T) {
	deep.Only(t, "TestExamine_FindsEachHarm of test/soak/check")
	opts, err := Options{
		Dir: stateDir(t), Binary: binary, Self: self, Rounds: make([]schedule.Schedule, 1), Runners: 3, Patience: 10 * time.Second, LostAfter: 8 * time.Second, RecoveryPatience: time.Hour, CatchUpEvery: time.Hour, Out: lines{t},
	}.withDefaults()
	require.NoError(t, err)
	s, err := Start(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	h := &harm{T: t, s: s}

	h.job(schedule.PoolBulk, 1, 0) // one that succeeds
	lost := h.job("nobody", 1, 0)
	killed := h.job(schedule.PoolBulk, 2, time.Hour)
	h.eventually("both jobs are over or run", func() bool {
		jobs := s.github.server.State().Jobs
		return jobs["completed"] == 1 && jobs["in_progress"] == 1
	})
	pod := h.deleteBusyPod(killed)
	claim := h.spendMoreThanThereIs()
	registration := h.register()
	stray := h.strayPod()
	secret := h.printSecret()
	open := h.forgetAnEnd()
	process := h.leaveProcess()
	h.eventually("GitHub has given up the job that was killed", func() bool { return s.github.server.State().Jobs["in_progress"] == 0 })

	require.NoError(t, s.settle(t.Context(), true))
	twice := h.pretendTwice(lost)
	evidence, err := check.Load(s.evidenceDir(), s.path("logs", "*.log"))
	require.NoError(t, err)
	report, err := check.Examine(evidence, check.Bounds{Pod: opts.Patience, Wait: time.Nanosecond})
	require.NoError(t, err)
	for row, subject := range map[string]string{
		check.RowLost: fmt.Sprint(lost), check.RowTwice: fmt.Sprint(twice), check.RowKilled: fmt.Sprint(killed), check.RowBudget: claim, check.RowPods: stray,
		check.RowRegistrations: registration, check.RowClaims: claim, check.RowLedger: fmt.Sprint(open), check.RowSecrets: secret,
		check.RowDeletions: pod, check.RowProcesses: process, check.RowLate: fmt.Sprint(killed),
	} {
		found := ""
		for _, f := range report.Findings {
			if f.Row == row {
				found += f.What + "\n"
			}
		}
		require.Contains(t, found, subject, "row %q", row)
		h.subjects = append(h.subjects, subject)
	}
	for _, f := range report.Findings {
		require.True(t, h.meant(f.What), "this was not violated: %s: %s\n%s", f.Row, f.What, strings.Join(f.Timeline, "\n"))
	}
	require.Len(t, check.Rows(), 12, "a row without a harm proves nothing")
}

// harm does harm.
type harm struct {
	*testing.T
	s        *System
	subjects []string
}

func (h *harm) meant(what string) bool {
	for _, subject := range h.subjects {
		if strings.Contains(what, subject) {
			return true
		}
	}
	return false
}

func (h *harm) eventually(what string, holds func() bool) {
	h.Helper()
	require.Eventually(h, holds, 2*time.Minute, 100*time.Millisecond, what)
}

// job submits one job and returns its id.
func (h *harm) job(pool string, account int, each time.Duration) int64 {
	h.Helper()
	before := h.s.github.server.Jobs()
	require.NoError(h, h.s.submit(schedule.Batch{Account: account, Pool: pool, Jobs: 1, Each: schedule.Duration(each)}))
	return h.s.github.server.Jobs()[len(before)].ID
}

// deleteBusyPod breaks the glass, and leaves the job no time.
func (h *harm) deleteBusyPod(job int64) string {
	h.Helper()
	pods := h.s.kube.CoreV1().Pods(runnerNamespace)
	runner := ""
	for _, j := range h.s.github.server.Jobs() {
		if j.ID == job {
			runner = j.RunnerName
		}
	}
	var name string
	require.NoError(h, h.s.database.text(h.Context(), &name, "SELECT pod_name FROM runner_claims WHERE runner_name = $1", runner))
	glass := []byte(`{"metadata":{"annotations":{"bullpen.dev/allow-deletion":"to be found"}}}`)
	_, err := pods.Patch(h.Context(), name, types.MergePatchType, glass, metav1.PatchOptions{})
	require.NoError(h, err)
	require.NoError(h, pods.Delete(h.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](1)}))
	return name
}

// spendMoreThanThereIs inserts a claim past admission, which never ends.
func (h *harm) spendMoreThanThereIs() string {
	h.Helper()
	const name = "beyond-the-budget"
	require.NoError(h, h.s.setLimit(h.Context(), "3", 0))
	require.NoError(h, h.s.database.exec(h.Context(), `
		INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, account_id, platform, milli_cpu, memory_mb, claimed_at)
		SELECT gen_random_uuid()::text, $1, $2, 'bulk', 'claimed', 1, id, 'linux', 500, 256, now() FROM accounts WHERE login = 'org-3'`,
		runnerNamespace, name))
	return name
}

// register has GitHub register an unexpected runner.
func (h *harm) register() string {
	h.Helper()
	key, err := os.ReadFile(h.s.secret("app.pem"))
	require.NoError(h, err)
	app, err := github.New(github.Options{BaseURL: h.s.github.url, AppID: 1, PrivateKey: key})
	require.NoError(h, err)
	const name = "unexpected"
	_, err = app.Mint(h.Context(), installation(1), fleet.MintRequest{Scope: fleet.Scope{Owner: "org-1"}, Name: name, Labels: []string{"soak-none"}, RunnerGroupID: 1})
	require.NoError(h, err)
	return name
}

func (h *harm) strayPod() string {
	h.Helper()
	const name = "stray"
	_, err := h.s.kube.CoreV1().Pods(runnerNamespace).Create(h.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: ptr.To(false), Containers: []corev1.Container{{Name: "c", Image: "none"}},
			SchedulingGates: []corev1.PodSchedulingGate{{Name: "bullpen.dev/never"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(h, err)
	return name
}

// printSecret writes half a JIT configuration into a log, as a careless message would.
func (h *harm) printSecret() string {
	h.Helper()
	data, err := os.ReadFile(h.s.evidence(check.FileSecrets))
	require.NoError(h, err)
	for line := range bytes.Lines(data) {
		var secret check.Secret
		require.NoError(h, json.Unmarshal(line, &secret))
		if secret.Kind == "JIT configuration" {
			log, err := os.OpenFile(h.s.logFile("careless"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			require.NoError(h, err)
			defer log.Close()
			_, err = fmt.Fprintf(log, "level=ERROR msg=%q\n", "cannot read "+secret.Text[:len(secret.Text)*2/3])
			require.NoError(h, err)
			return "careless.log"
		}
	}
	h.Fatal("nothing was minted")
	return ""
}

// forgetAnEnd makes the ledger show the job that succeeded as running.
func (h *harm) forgetAnEnd() int64 {
	h.Helper()
	for _, job := range h.s.github.server.Jobs() {
		if job.Conclusion == "success" {
			h.eventually("the ledger knows the end", func() bool {
				var state string
				return h.s.database.text(h.Context(), &state, "SELECT state FROM workflow_jobs WHERE id = $1", job.ID) == nil && state == "completed"
			})
			require.NoError(h, h.s.database.exec(h.Context(), "UPDATE workflow_jobs SET state = 'waiting', completed_at = NULL WHERE id = $1", job.ID))
			return job.ID
		}
	}
	h.Fatal("no job has ended well")
	return 0
}

func (h *harm) leaveProcess() string {
	h.Helper()
	ctx, stop := context.WithCancel(context.Background())
	left := exec.CommandContext(ctx, "sleep", "600")
	left.Dir = h.s.path("logs")
	require.NoError(h, left.Start())
	h.Cleanup(func() {
		stop()
		_ = left.Wait() // bounded: stop kills it
	})
	return fmt.Sprintf("process %d:", left.Process.Pid)
}

// pretendTwice changes GitHub's ledger.
func (h *harm) pretendTwice(job int64) int64 {
	h.Helper()
	path := h.s.evidence(check.FileGitHub)
	data, err := os.ReadFile(path)
	require.NoError(h, err)
	var ledger check.GitHub
	require.NoError(h, json.Unmarshal(data, &ledger))
	for i := range ledger.Jobs {
		if ledger.Jobs[i].ID == job {
			ledger.Jobs[i].AcquiredBy = []string{"one", "another"}
		}
	}
	require.NoError(h, writeJSON(path, ledger))
	return job
}
