package check_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/soak/check"
)

var zero = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(time.Second))) }
func ptr[T any](v T) *T            { return &v }
func raw(v any) json.RawMessage    { data, _ := json.Marshal(v); return data }
func bounds() check.Bounds         { return check.Bounds{Pod: 30 * time.Second, Wait: 5 * time.Second} }
func uid(n int) string             { return fmt.Sprintf("00000000-0000-0000-0000-%012d", n) }
func pod(n int) string             { return fmt.Sprintf("bulk-%d", n) }
func runner(n int) string          { return fmt.Sprintf("runner-%d", n) }
func claim(n int, state string) check.Claim {
	return check.Claim{
		PodUID: uid(n), PodName: pod(n), State: state, Account: ptr(int64(1)), Platform: "linux", MilliCPU: 500, MemoryMB: 256,
		JobID: ptr(int64(n)), RunnerName: runner(n),
	}
}

// deletion is an entry of the audit log.
func deletion(user, name string, when float64) check.AuditEvent {
	var a check.AuditEvent
	a.Verb, a.User.Username, a.At = "delete", user, at(when)
	a.ObjectRef.Resource, a.ObjectRef.Namespace, a.ObjectRef.Name = "pods", "bullpen-runners", name
	a.ResponseStatus.Code = 200
	return a
}

const (
	controller = "system:serviceaccount:bullpen-system:bullpen-controller"
	node       = "system:node:node-1"
)

// healthy is what the witnesses say of three jobs that ran well, side by side, at the limit of their account.
func healthy() *check.Evidence {
	e := &check.Evidence{Rows: map[string][]json.RawMessage{}}
	e.Changes = append(e.Changes,
		check.Change{ID: "s", At: at(0), Op: "SNAPSHOT"},
		check.Change{ID: "l", At: at(0), Table: "account_limits", Op: "ROW", New: raw(map[string]any{
			"account_id": 1, "platform": "linux", "jobs": 3, "milli_cpu": 1500, "memory_mb": 768,
		})})
	e.Machines = append(e.Machines, check.MachineRecord{At: at(0), Machine: "node-1", Event: "on"})
	e.Final.At = at(30)
	for n := 1; n <= 3; n++ {
		s := float64(n)
		e.GitHub.Jobs = append(e.GitHub.Jobs, check.Job{
			ID: int64(n), Name: "soak", Repo: "org-1/app", Status: "completed", Conclusion: "success",
			QueuedAt: ptr(at(s)), StartedAt: ptr(at(s + 1)), CompletedAt: ptr(at(s + 10)), RunnerName: runner(n), Acquisitions: 1, AcquiredBy: []string{runner(n)},
		})
		e.GitHub.Runners = append(e.GitHub.Runners, check.Runner{Name: runner(n), RegisteredAt: at(s), RemovedAt: ptr(at(s + 10)), Ran: []int64{int64(n)}})
		add := func(when float64, op, old, state string) {
			c := check.Change{ID: fmt.Sprint(n, op, state), At: at(when), Table: "runner_claims", Op: op}
			if old != "" {
				c.Old = raw(claim(n, old))
			}
			if state != "" {
				c.New = raw(claim(n, state))
			}
			e.Changes = append(e.Changes, c)
		}
		add(s+0.1, "INSERT", "", "claimed")
		add(s+0.2, "UPDATE", "claimed", "minted")
		add(s+1, "UPDATE", "minted", "executing")
		add(s+10, "UPDATE", "executing", "spent")
		add(s+12, "DELETE", "spent", "")
		e.Machines = append(e.Machines,
			check.MachineRecord{At: at(s - 0.5), Machine: "node-1", Event: "start", Pod: pod(n), UID: uid(n)},
			check.MachineRecord{At: at(s + 10.1), Machine: "node-1", Event: "end", Pod: pod(n), UID: uid(n)})
		e.Audit = append(e.Audit, deletion(controller, pod(n), s+11), deletion(node, pod(n), s+11.5))
		e.Rows["workflow_jobs"] = append(e.Rows["workflow_jobs"], raw(map[string]any{"id": n, "state": "completed"}))
	}
	return e
}

func examine(t *testing.T, e *check.Evidence) *check.Report {
	t.Helper()
	report, err := check.Examine(e, bounds())
	require.NoError(t, err)
	return report
}

func TestExamine_FindsNothingWhereNothingIs(t *testing.T) {
	report := examine(t, healthy())
	require.Empty(t, report.Findings)
	require.Equal(t, 3, report.Jobs)
	require.Equal(t, time.Second, report.Waits.Most)
}

// Each harm is found in its row, and nowhere else.
func TestExamine_FindsEachHarm(t *testing.T) {
	for name, test := range map[string]struct {
		row  string
		harm func(e *check.Evidence)
		says string
	}{
		"a job that waits for ever": {check.RowLost, func(e *check.Evidence) {
			j := &e.GitHub.Jobs[0]
			j.Status, j.Conclusion, j.CompletedAt, j.StartedAt, j.RunnerName, j.AcquiredBy, j.Acquisitions = "queued", "", nil, nil, "", nil, 0
			e.Rows["workflow_jobs"] = e.Rows["workflow_jobs"][1:]
		}, "still queued"},
		"a job that GitHub gave up": {check.RowLost, func(e *check.Evidence) {
			j := &e.GitHub.Jobs[0]
			j.Conclusion, j.StartedAt, j.RunnerName, j.AcquiredBy, j.Acquisitions = "cancelled", nil, "", nil, 0
		}, "never ran"},
		"a job that two runners took": {check.RowTwice, func(e *check.Evidence) {
			j := &e.GitHub.Jobs[0]
			j.Acquisitions, j.AcquiredBy = 2, []string{runner(1), runner(2)}
		}, "taken 2 times"},
		"a runner that took two jobs": {check.RowTwice, func(e *check.Evidence) { e.GitHub.Runners[0].Ran = []int64{1, 2} }, "one shot"},
		"a job whose runner fell silent": {check.RowKilled, func(e *check.Evidence) {
			e.GitHub.Jobs[0].Conclusion, e.GitHub.Jobs[0].Reason = "failure", "the runner has stopped renewing it"
		}, "failure on runner-1"},
		"a pod that was deleted while its job ran": {check.RowKilled, func(e *check.Evidence) {
			e.Audit[0].At = at(5)
		}, "deleted at 12:00:05"},
		"a stopped pod that the controller deleted while its job ran": {check.RowKilled, func(e *check.Evidence) {
			e.Audit[0].At = at(6)
			e.Audit = append(e.Audit, deletion("admin", pod(1), 5))
			e.Deeds = []check.Deed{{At: at(5), Until: at(5), Pods: []string{pod(1)}}}
		}, "deleted at 12:00:06"},
		"a stopped pod whose job was lost": {check.RowKilled, func(e *check.Evidence) {
			e.GitHub.Jobs[0].Conclusion, e.GitHub.Jobs[0].Lost = "failure", true
			e.Audit = append(e.Audit, deletion("admin", pod(1), 3.1))
			e.Deeds = []check.Deed{{At: at(3.1), Until: at(3.1), Pods: []string{pod(1)}}}
		}, "failure on runner-1"},
		"a runner that was killed while its job ran": {check.RowKilled, func(e *check.Evidence) {
			e.Machines[2].At, e.Machines[2].Killed = at(5), true
		}, "killed at 12:00:05"},
		"a claim beyond the number of jobs": {check.RowBudget, func(e *check.Evidence) {
			e.Changes[1].New = raw(map[string]any{"account_id": 1, "platform": "linux", "jobs": 2, "milli_cpu": 1500, "memory_mb": 768})
		}, "to 3 jobs"},
		"a claim beyond the CPUs": {check.RowBudget, func(e *check.Evidence) {
			e.Changes[1].New = raw(map[string]any{"account_id": 1, "platform": "linux", "jobs": 9, "milli_cpu": 1499, "memory_mb": 768})
		}, "1500 mCPU"},
		"a claim beyond the memory": {check.RowBudget, func(e *check.Evidence) {
			e.Changes[1].New = raw(map[string]any{"account_id": 1, "platform": "linux", "jobs": 9, "milli_cpu": 9999, "memory_mb": 767})
		}, "768 MB"},
		"a claim that ends before its job": {check.RowBudget, func(e *check.Evidence) {
			e.Changes[5].At = at(5)
		}, "ended at 12:00:05.000 while its job 1"},
		"a pod that stays after its job": {check.RowPods, func(e *check.Evidence) {
			e.Audit = e.Audit[2:]
			e.Final.At = at(60)
		}, "still there 49s after"},
		"a pod that stays although it was deleted": {check.RowPods, func(e *check.Evidence) {
			e.Pods = []check.PodRecord{{At: at(1), Event: "there", UID: uid(1)}, {At: at(60), Event: "gone", UID: uid(1)}}
		}, "still there 49s after"},
		"a pod that stays, but for a pause, after its job": {check.RowPods, func(e *check.Evidence) {
			e.Audit = e.Audit[2:]
			e.Pods = []check.PodRecord{{At: at(1), Event: "there", UID: uid(1)}, {At: at(14.5), Event: "there", UID: uid(9)}}
			e.Final.At = at(60)
			e.Deeds = []check.Deed{{At: at(16), Until: at(25), Kind: check.DeedStart}, {At: at(16), Until: at(25), Kind: check.DeedStart}}
		}, "still there 39s after"},
		"a pod that is deleted and never goes": {check.RowPods, func(e *check.Evidence) {
			e.Pods = []check.PodRecord{{At: at(1), Event: "there", UID: uid(1)}, {At: at(20), Event: "all", There: []string{uid(1)}}}
			e.Final.At = at(60)
		}, "still there 49s after"},
		"a pod that is left":            {check.RowPods, func(e *check.Evidence) { e.Final.Pods = []check.Left{{Name: pod(9)}} }, "bulk-9"},
		"a ServiceAccount that is left": {check.RowPods, func(e *check.Evidence) { e.Final.ServiceAccounts = []check.Left{{Name: pod(9)}} }, "bulk-9"},
		"a pool that does not go":       {check.RowPods, func(e *check.Evidence) { e.Final.Pools = []check.Left{{Name: "bulk"}} }, "bulk"},
		"a registration that is left":   {check.RowRegistrations, func(e *check.Evidence) { e.GitHub.Runners[1].RemovedAt = nil }, "runner-2"},
		"a claim that is left":          {check.RowClaims, func(e *check.Evidence) { e.Rows["runner_claims"] = []json.RawMessage{raw(claim(1, "minted"))} }, "still minted"},
		"a lane that counts wrongly":    {check.RowClaims, func(e *check.Evidence) { e.Rows["job_lanes"] = []json.RawMessage{raw(map[string]any{"running": 1})} }, "1 running"},
		"a job that only the ledger runs": {check.RowLedger, func(e *check.Evidence) {
			e.Rows["workflow_jobs"][0] = raw(map[string]any{"id": 1, "state": "executing"})
		}, "GitHub said success"},
		"a deletion by a person":     {check.RowDeletions, func(e *check.Evidence) { e.Audit = append(e.Audit, deletion("eve", pod(7), 20)) }, "by eve"},
		"a deletion by a node alone": {check.RowDeletions, func(e *check.Evidence) { e.Audit = append(e.Audit, deletion(node, pod(7), 20)) }, node},
		"an eviction": {check.RowDeletions, func(e *check.Evidence) {
			a := deletion("eve", pod(7), 20)
			a.Verb, a.ObjectRef.Subresource = "create", "eviction"
			e.Audit = append(e.Audit, a)
		}, "create pods/eviction"},
		"a deletion of all": {check.RowDeletions, func(e *check.Evidence) {
			a := deletion("system:serviceaccount:kube-system:namespace-controller", "", 20)
			a.Verb = "deletecollection"
			e.Audit = append(e.Audit, a)
		}, "deletecollection"},
		"a job that waits too long": {check.RowLate, func(e *check.Evidence) { e.GitHub.Jobs[0].QueuedAt = ptr(at(-3.5)) }, "waited 5.5s"},
		"a process":                 {check.RowProcesses, func(e *check.Evidence) { e.Final.Processes = []string{"7: bullpen server"} }, "7: bullpen"},
	} {
		t.Run(name, func(t *testing.T) {
			e := healthy()
			test.harm(e)
			report := examine(t, e)
			require.Len(t, report.Findings, 1, "%+v", report.Findings)
			require.Equal(t, test.row, report.Findings[0].Row)
			require.Contains(t, report.Findings[0].What, test.says)
			require.Equal(t, 1, report.Count(test.row))
			require.True(t, report.Failed())
			var text strings.Builder
			report.Print(&text)
			require.Contains(t, text.String(), test.row)
			require.Contains(t, text.String(), test.says)
		})
	}
}

// The soak's own actions, and changes that need no excuse, are no finding.
func TestExamine_KnowsWhatIsNoHarm(t *testing.T) {
	for name, test := range map[string]struct {
		onPurpose int
		change    func(e *check.Evidence)
	}{
		"a deletion whose controller was killed in the middle of it": {0, func(e *check.Evidence) {
			for i, a := range e.Audit {
				if a.User.Username == controller && a.ObjectRef.Name == pod(1) {
					e.Audit[i].ResponseStatus.Code = 504
				}
			}
		}},
		"a job that the soak cancelled": {1, func(e *check.Evidence) {
			e.GitHub.Jobs[0].Conclusion = "cancelled"
			e.Deeds = []check.Deed{{At: at(4), Until: at(4), Jobs: []int64{1}}}
		}},
		"a machine that the soak switched off": {1, func(e *check.Evidence) {
			e.GitHub.Jobs[0].Conclusion = "failure"
			e.Machines = append(e.Machines[:2], e.Machines[3:]...) // its end was not observed
			e.Machines = append(e.Machines, check.MachineRecord{At: at(6), Machine: "node-1", Event: "on"})
			e.Deeds = []check.Deed{{At: at(5), Until: at(6), Machine: "node-1"}}
			e.Audit[0].At = at(8) // GitHub still shows it as running
		}},
		"a limit that is lowered below what runs": {0, func(e *check.Evidence) {
			e.Changes = append(e.Changes, check.Change{ID: "lower", At: at(12.5), Table: "account_limits", Op: "UPDATE", New: raw(map[string]any{
				"account_id": 1, "platform": "linux", "jobs": 0,
			})})
		}},
		"a runner that GitHub put to work": {0, func(e *check.Evidence) {
			c := claim(4, "executing")
			e.Changes = append(e.Changes, check.Change{ID: "adopted", At: at(12.5), Table: "runner_claims", Op: "INSERT", New: raw(c)})
		}},
		"a pod that ended before GitHub knew": {0, func(e *check.Evidence) {
			e.Machines[2].At, e.Audit[0].At = at(5), at(6)
		}},
		"a claim that ends when its runner has": {0, func(e *check.Evidence) {
			e.Machines[2].At, e.Changes[5].At = at(5), at(6)
		}},
		"a database that was put back": {0, func(e *check.Evidence) {
			e.Changes = append(e.Changes, check.Change{ID: "back", At: at(13), Op: "SNAPSHOT"})
		}},
		"a deletion by a person that is a deed": {0, func(e *check.Evidence) {
			e.Audit = append(e.Audit, deletion("admin", pod(7), 20), deletion(node, pod(7), 21))
			e.Deeds = []check.Deed{{At: at(20), Until: at(20), Pods: []string{pod(7)}}}
		}},
		"a pod that the soak stopped while its job ran": {0, func(e *check.Evidence) {
			e.Audit = append(e.Audit, deletion("admin", pod(1), 5))
			e.Deeds = []check.Deed{{At: at(5), Until: at(5), Pods: []string{pod(1)}}}
		}},
		"a deletion that is not in the audit log": {0, func(e *check.Evidence) {
			e.Audit = e.Audit[2:]
			e.Pods = []check.PodRecord{{At: at(1), Event: "there", UID: uid(1)}, {At: at(12), Event: "gone", UID: uid(1)}}
			e.Final.At = at(60)
		}},
		"a pod that disappeared between two readings": {0, func(e *check.Evidence) {
			e.Audit = e.Audit[2:]
			e.Pods = []check.PodRecord{{At: at(1), Event: "there", UID: uid(1)}, {At: at(20), Event: "all"}}
			e.Final.At = at(60)
		}},
		"a soak that was interrupted": {0, func(e *check.Evidence) {
			e.Audit = e.Audit[2:]
			e.Pods = []check.PodRecord{{At: at(1), Event: "there", UID: uid(1)}, {At: at(14.5), Event: "there", UID: uid(9)}}
			e.Final.At = at(100)
			e.Deeds = []check.Deed{{At: at(-101), Until: at(-100.5), Kind: check.DeedStart}, {At: at(16), Until: at(75), Kind: check.DeedStart}}
		}},
		"a deletion that was refused": {0, func(e *check.Evidence) {
			a := deletion("eve", pod(1), 5)
			a.ResponseStatus.Code = 403
			e.Audit = append(e.Audit, a)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := healthy()
			test.change(e)
			report := examine(t, e)
			require.Empty(t, report.Findings)
			require.Equal(t, test.onPurpose, report.OnPurpose)
		})
	}
}

// A machine that failed is no excuse, nor one that the soak switched off at another time.
func TestExamine_ExcusesNoMachineThatFailedByItself(t *testing.T) {
	for _, deed := range []check.Deed{{At: at(5), Until: at(6), Machine: "node-2"}, {At: at(20), Until: at(21), Machine: "node-1"}} {
		e := healthy()
		e.GitHub.Jobs[0].Conclusion = "failure"
		e.Machines = append(e.Machines[:2], e.Machines[3:]...)
		e.Machines = append(e.Machines, check.MachineRecord{At: at(6), Machine: "node-1", Event: "on"})
		e.Deeds = []check.Deed{deed}
		require.Equal(t, 1, examine(t, e).Count(check.RowKilled))
	}
}

func TestExamine_FindsSecrets(t *testing.T) {
	const jit = "ZXlKeWRXNXVaWEl1WTI5dVptbG5JaXdpYzJWamNtVjBjeUk2SW5Wd2FXUWlmUT09"
	dir := t.TempDir()
	for name, test := range map[string]struct {
		text  string
		found int
	}{
		"whole":     {"level=info msg=\"" + jit + "\"\n", 1},
		"its half":  {jit[:len(jit)/2+8], 1},
		"its end":   {"…" + jit[len(jit)-24:], 1},
		"its form":  {"c2hhcmVkLWJ5LWFsbC1vZi10aGVtLQ==", 0},
		"twice":     {jit + "\n" + jit, 1},
		"something": {"nothing to see", 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			require.NoError(t, os.WriteFile(path, []byte(test.text), 0o600))
			e := healthy()
			shared := "c2hhcmVkLWJ5LWFsbC1vZi10aGVtLQ=="
			e.Secrets = []check.Secret{{Kind: "JIT", Text: jit}, {Kind: "a", Text: shared + "1"}, {Kind: "b", Text: shared + "2"}}
			e.Texts = []string{path, filepath.Join(dir, "there-is-none")}
			report := examine(t, e)
			require.Equal(t, test.found, report.Count(check.RowSecrets), "%v", report.Findings)
			for _, f := range report.Findings {
				require.NotContains(t, f.What, jit[:24], "the report repeats no secret")
			}
		})
	}
}

func TestLoad_ReadsWhatIsWrittenAndWhatWasCutOff(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	_, err := check.Load(dir)
	require.ErrorContains(t, err, check.FileGitHub)
	write(check.FileGitHub, `{"jobs":[{"id":7}]}`)
	write(check.FileRows, `{}`)
	write(check.FileFinal, `{}`)
	write(check.FileHistory, `{"id":"b","at":"2030-01-01T00:00:02Z"}`+"\n"+`{"id":"a","at":"2030-01-01T00:00:01Z"}`+"\n"+`{"id":"a","at":"2030-01-01T00:00:01Z"}`+"\n"+`{"id":`)
	event := `{"kind":"Event","verb":"delete","objectRef":{"resource":"pods","name":"p"},"responseStatus":{"code":200}}`
	write(check.FileAudit, event+"\n"+`{"kind":"Event","verb":"del`+event+"\n"+event[:20])
	e, err := check.Load(dir)
	require.NoError(t, err)
	require.Len(t, e.GitHub.Jobs, 1)
	_, err = check.Examine(e, bounds())
	require.NoError(t, err)
	require.Len(t, e.Changes, 2, "a row that was written twice counts once")
	require.Equal(t, "a", e.Changes[0].ID, "and they are in order")
	require.Len(t, e.Audit, 2, "an API server that was killed goes on in the same line")
	write(check.FileAudit, "nonsense\n"+event+"\n")
	_, err = check.Load(dir)
	require.ErrorContains(t, err, "cannot be read")
}
