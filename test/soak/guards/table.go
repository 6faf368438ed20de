package guards

import (
	"slices"

	"github.com/bullpen-ci/bullpen/test/soak/check"
)

// Table lists the guards.
func Table() []Guard {
	return slices.Concat(fenceGuards(), runnerGuards(), poolGuards(), limitGuards(), claimGuards(), recoveryGuards(), otherGuards())
}

// Unguarded are rows that no guard of the product protects, and why.
func Unguarded() map[string]string {
	return map[string]string{
		check.RowTwice: "GitHub gives a job to one runner, and a runner that was registered for one job no second one: it is its rule, " +
			"not ours, and the stand-in keeps it. The row is proven by a changed ledger (TestChecker_FindsEveryHarmDoneToARunningSystem).",
	}
}

// The texts that several guards replace.
const (
	admission     = "charts/rendered/20-admission.yaml"
	recoveryTable = "internal/server/recovery/table.go"
)

// Edits that several guards need.
var (
	anyoneMayDelete = Edit{
		File: admission,
		Old:  "    - expression: variables.work == '' || variables.ended || variables.finishing || variables.reason != ''\n",
		New:  "    - expression: 'true || variables.ended'\n",
	}
	noRequeue = Edit{
		File: recoveryTable,
		Old:  "{claim: over, job: in(Bound), do: Requeue, kind: UnclaimedJob,",
		New:  "{claim: over, job: in(Bound), do: Leave, kind: UnclaimedJob,",
	}
)

func fenceGuards() []Guard {
	return []Guard{
		{
			Name: "fence", Invariant: "EXCL-1, EXCL-4, EXCL-7",
			Off: "the server grants what it has claimed, the controller sees no work, and the API server lets it delete",
			Edits: []Edit{
				{File: "internal/server/dispatch/retire.go", Old: "return runnerapi.Busy // EXCL-5: a claimed pod is never retired", New: "return runnerapi.Granted"},
				{
					File: "internal/controller/pool/plan-input.go", Old: "	v.signs = signsOfWork(pod, poller, runner)\n",
					New: "	_ = signsOfWork(pod, poller, runner)\n",
				},
				anyoneMayDelete,
			},
			Covers:   "each of the three keeps a busy runner alone",
			Scenario: renames(), Rows: []string{check.RowKilled},
		},
		{
			Name: "user-deletion", Invariant: "EXCL-7", Off: "the API server lets any user delete a busy runner",
			Edits: []Edit{anyoneMayDelete}, Scenario: visits(), Rows: []string{check.RowDeletions, check.RowKilled},
		},
		{
			Name: "eviction", Invariant: "EXCL-7, POOL-9", Off: "the disruption budget of busy runners allows evictions",
			Edits: []Edit{{
				File: admission, // the budget of busy runners, and not that of self-registering ones
				Old: `minAvailable: 2147483647
  unhealthyPodEvictionPolicy: IfHealthyBudget
  selector:
    matchLabels:
      bullpen.dev/runner: "true"
    matchExpressions:
`,
				New: `minAvailable: 0
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      bullpen.dev/runner: "true"
    matchExpressions:
`,
			}},
			Scenario: visits(), Rows: []string{check.RowDeletions},
		},
	}
}

func runnerGuards() []Guard {
	return []Guard{
		{
			Name: "runner-signal", Invariant: "EXCL-8", Off: "the agent signals a runner that shows no job",
			Edits: []Edit{{
				File: "internal/agent/supervise.go",
				Old:  "				s.Log.Info(\"asked to stop: the runner exits when its registration is removed, or after its assigned job\")\n",
				New:  "				_ = syscall.Kill(-group, syscall.SIGTERM)\n",
			}},
			Scenario: stops(), Rows: []string{check.RowKilled},
		},
		{
			Name: "pool-finalizer", Invariant: "POOL-2, EXCL-2",
			Off: "a deleted pool's finalizer is removed at once, and the garbage collector may delete its runners",
			Edits: []Edit{
				{File: "internal/controller/pool/controller.go", Old: "	state.refer(pool)\n", New: `	state.refer(pool)
	if pool.DeletionTimestamp != nil {
		return reconcile.Result{}, client.IgnoreNotFound(r.patchFinalizer(ctx, pool, controllerutil.RemoveFinalizer))
	}
`},
				{
					File: admission,
					// The policy on runners, and not the one on the StatefulSets of those that register themselves.
					Old: `'system:serviceaccount:kube-system:generic-garbage-collector'
  validations:
    - expression: oldObject.metadata.?annotations[?'bullpen.dev/allow-deletion'].orValue('') != ''
      reason: Forbidden
      messageExpression: >-
        'runners are removed by the controller, which first checks whether they have just received a job: ' +`, New: `'nobody'
  validations:
    - expression: oldObject.metadata.?annotations[?'bullpen.dev/allow-deletion'].orValue('') != ''
      reason: Forbidden
      messageExpression: >-
        'runners are removed by the controller, which first checks whether they have just received a job: ' +`,
				},
			},
			Covers:   "the policy alone keeps the garbage collector away",
			Scenario: renames(), Rows: []string{check.RowDeletions},
		},
	}
}

func poolGuards() []Guard {
	return []Guard{
		{
			Name: "account-removal", Invariant: "POOL-1", Off: "a runner's ServiceAccount stays when its pod goes",
			Edits: []Edit{{
				File: "internal/controller/pool/children.go",
				Old:  "	if err := c.Delete(ctx, account); err != nil && !apierrors.IsNotFound(err) {\n",
				New:  "	if account.Name == \"\" {\n		var err error\n",
			}},
			Scenario: calm(), Rows: []string{check.RowPods},
		},
		{
			Name: "ended-removal", Invariant: "POOL-4", Off: "pods that have ended are not removed",
			Edits:    []Edit{{File: "internal/plan/lifecycle/plan.go", Old: "	p.removeEnded()\n"}},
			Scenario: calm(), Rows: []string{check.RowPods},
		},
		{
			Name: "left-processes", Invariant: "NODE-2", Off: "a container's end ends nothing that it left running, and the clean-up looks for no marks",
			Edits: []Edit{
				{File: "internal/node/sandbox/process/shim.go", Old: "	main.reapRest()\n"},
				{
					File: "internal/node/sandbox/process/remove.go", Old: "	if err := killAllMarked(ctx, envMark+\"=\"+s.owner); err != nil {\n",
					New: "	if false {\n		_ = killAllMarked\n		_ = envMark\n",
				},
			},
			Covers:   "the clean-up alone finds every process by its mark",
			Scenario: daemons(), Rows: []string{check.RowProcesses},
		},
	}
}

func limitGuards() []Guard {
	return []Guard{
		{
			Name: "limit-lock", Invariant: "CLAIM-5", Off: "two batches of one account may read its budget at the same time",
			Edits: []Edit{{
				File: "internal/server/ledger/sqlcgen/lanes.sql.go",
				Old:  "WHERE platform = $1 AND account_id = ANY ($2::bigint[])\nORDER BY account_id FOR UPDATE\n",
				New:  "WHERE platform = $1 AND account_id = ANY ($2::bigint[])\nORDER BY account_id\n",
			}},
			Scenario: limits(), Rows: []string{check.RowBudget},
		},
		{
			Name: "limit-usage", Invariant: "CLAIM-5", Off: "what an account has running is not taken off its budget",
			Edits: []Edit{{
				File: "internal/server/dispatch/admit.go", Old: "limits[lane.Account.ID].Room(usage[lane.Account.ID], shape)",
				New: "limits[lane.Account.ID].Room(fleet.Usage{}, shape)",
			}},
			Scenario: limits(), Rows: []string{check.RowBudget},
		},
		{
			Name: "unparking", Invariant: "CLAIM-5, RECV-7, TEN-4", Off: "a pod's end gives its account's waiting lanes no sign, and no pass does",
			Edits: []Edit{{
				File: "internal/server/ledger/sqlcgen/lanes.sql.go",
				Old:  "UPDATE job_lanes l SET parked = CASE WHEN l.parked = 'limit' AND $1::boolean THEN '' ELSE l.parked END, version = l.version + 1,\n    running",
				New:  "UPDATE job_lanes l SET version = l.version + 1,\n    running",
			}, {
				File: "internal/server/ledger/sqlcgen/lanes.sql.go",
				Old:  "WHERE p.parked = 'limit' AND (SELECT c.pod_uid",
				New:  "WHERE p.parked = 'never' AND (SELECT c.pod_uid",
			}},
			Covers:   "once nothing is charged to the account, the pass over lanes at their limit finds them within a minute",
			Scenario: limits(), Rows: []string{check.RowLost},
		},
	}
}

func claimGuards() []Guard {
	return []Guard{
		{
			Name: "requeue", Invariant: "CLAIM-2, CLAIM-8, RECV-5", Off: "a job whose mint was refused does not go back to the queue, and recovery does not look for it",
			Edits: []Edit{
				{File: "internal/server/ledger/claims.go", Old: `		n, err := q.DropClaim(ctx, podUID, generation)
		if err != nil || n == 0 {
			return err
		}
		done = true
		return giveBack(ctx, q, claim, true, now)
`, New: `		n, err := q.DropClaim(ctx, podUID, generation)
		if err != nil || n == 0 {
			return err
		}
		done = true
		return leaveLane(ctx, q, claim, true)
`},
				noRequeue,
			},
			Covers: "recovery finds a job that no claim has at once; and while others follow, a runner that was registered for one of those is " +
				"given it, and re-binding queues the other",
			Scenario: refusedMints(), Rows: []string{check.RowLost},
		},
		{
			Name: "rebinding", Invariant: "CLAIM-9, RECV-5", Off: "a job whose runner was given another is forgotten, by recovery too",
			Edits: []Edit{
				{File: "internal/server/dispatch/resolve.go", Old: "		change.Requeue = runner.JobID // CLAIM-9: re-bind first, then take effect\n", New: "		change.Requeue = 0\n"},
				noRequeue,
			},
			Covers:   "recovery finds a job that no claim has at once",
			Scenario: crowds(), Rows: []string{check.RowLost},
		},
		{
			Name: "registration-removal", Invariant: "EXCL-6", Off: "claims are ended without removing what was registered for them",
			Edits: []Edit{{
				File: "internal/server/dispatch/takeover.go", Old: "	for _, r := range registrations {\n",
				New: "	for _, r := range registrations[:0] {\n",
			}},
			Scenario: dyingMints(), Rows: []string{check.RowRegistrations},
		},
		{
			Name: "takeover", Invariant: "CLAIM-16", Off: "no server continues the claim of a server that died",
			Edits:    []Edit{{File: "internal/server/dispatch/decide.go", Old: "		return StepTakeOver // CLAIM-7, CLAIM-16\n", New: "		return StepAwait\n"}},
			Scenario: stuckMints(), Rows: []string{check.RowLate},
		},
	}
}

func recoveryGuards() []Guard {
	return []Guard{
		{
			Name: "busy-evidence", Invariant: "RECV-3, EXCL-6", Off: "recovery takes a runner that GitHub shows busy for an idle one, and trusts neither GitHub's word on its job nor the pod's own sign",
			Edits: []Edit{
				{File: "internal/server/recovery/ask.go", Old: "	case one.Busy:\n		return RunnerBusy\n", New: "	case one.Busy:\n		return RunnerIdle\n"},
				{File: "internal/server/recovery/ask.go", Old: "			return JobHere\n", New: "			return JobElsewhere\n"},
				{
					File: "internal/server/recovery/subject.go", Old: "		e.Poller, e.Runner = s.pod.Poller, s.pod.Runner\n",
					New: "		e.Poller, e.Runner = s.pod.Poller, Ready\n",
				},
			},
			Covers:   "GitHub's word on the runner, its word on the job, and the pod's sign (0016); and GitHub itself, which refuses to remove a busy runner (422), but for the fault that this schedule deals",
			Scenario: busyRemovals(), Rows: []string{check.RowBudget},
		},
		{
			Name: "idle-runner", Invariant: "RECV-5", Off: "recovery leaves runners that are online and get no job",
			Edits: []Edit{{
				File: recoveryTable, Old: "{claim: live, at: in(RunnerIdle), do: Unregister, kind: IdleRunner,",
				New: "{claim: live, at: in(RunnerIdle), do: Leave, kind: IdleRunner,",
			}},
			Scenario: starved(), Rows: []string{check.RowClaims, check.RowRegistrations, check.RowPods},
		},
		{
			Name: "ended-pods", Invariant: "RECV-2, RECV-5", Off: "recovery ends no claim of a pod that has ended or is gone",
			Edits: []Edit{
				{File: recoveryTable, Old: "{claim: live, pod: in(Gone), do: Release, kind: PodMissingClaim,", New: "{claim: live, pod: in(Gone), do: Leave, kind: PodMissingClaim,"},
				{File: recoveryTable, Old: "{claim: unproven, acked: no, pod: in(Terminal), do: Release, kind: StaleClaim,", New: "{claim: unproven, acked: no, pod: in(Terminal), do: Leave, kind: StaleClaim,"},
				{File: recoveryTable, Old: "{claim: live, pod: in(Terminal), do: Release, kind: OrphanedRunner,", New: "{claim: live, pod: in(Terminal), do: Leave, kind: OrphanedRunner,"},
			},
			Covers:   "a pod that has ended is soon gone, so that the rows make up for each other",
			Scenario: deadMachines(), Rows: []string{check.RowClaims},
		},
		{
			Name: "completions", Invariant: "RECV-3, RECV-5", Off: "recovery does not record that GitHub says a job has ended",
			Edits: []Edit{
				{
					File: recoveryTable, Old: "{claim: live, says: in(JobCompleted), do: Complete, kind: OrphanCompleted,",
					New: "{claim: live, says: in(JobCompleted), do: Leave, kind: OrphanCompleted,",
				},
				{
					File: recoveryTable, Old: "says: in(JobCompleted, JobGone), do: Complete, kind: OrphanCompleted,",
					New: "says: in(JobCompleted, JobGone), do: Leave, kind: OrphanCompleted,",
				},
			},
			Covers:   "without the first, the claim ends with its pod, and the second records the job",
			Scenario: lostHooks(), Rows: []string{check.RowLedger, check.RowClaims},
		},
		{
			Name: "catch-up", Invariant: "RECV-8", Off: "GitHub's list of deliveries and its queue are not read",
			Edits: []Edit{
				{File: "internal/server/events/catchup/passes.go", Old: "		add(recovery.Redelivered, 2*patience, c.Deliveries)\n"},
				{File: "internal/server/events/catchup/passes.go", Old: "	add(recovery.QueueSwept, patience, c.Sweep)\n"},
			},
			Covers:   "the queue is swept, so that jobs of which no delivery tells are found",
			Scenario: lostHooks(), Rows: []string{check.RowLost},
		},
	}
}

func otherGuards() []Guard {
	return []Guard{
		{
			Name: "redaction", Invariant: "NET-3", Off: "secrets print themselves, and a careless line logs one",
			Edits: []Edit{
				{File: "internal/fleet/account.go", Old: "func (Secret) MarshalText() ([]byte, error) { return []byte(\"[secret]\"), nil }", New: "func (s Secret) MarshalText() ([]byte, error) { return []byte(s.text), nil }"},
				{
					File: "internal/server/dispatch/poll.go", Old: "		d.metrics.mints.WithLabelValues(\"registered\").Inc()\n",
					New: "		d.metrics.mints.WithLabelValues(\"registered\").Inc()\n		d.opt.Log.InfoContext(ctx, \"minted\", \"jit\", jit)\n",
				},
			},
			Covers:   "no line of the product logs one; the redaction makes such a line harmless",
			Scenario: calm(), Rows: []string{check.RowSecrets},
		},
	}
}
