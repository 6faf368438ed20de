package ledger_test

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// seldom is what a ledger has some of, however large it is, and Fill makes none of. All of it is account 1's.
var seldom = []string{
	`INSERT INTO label_sets VALUES ('["nobody-asks"]', '{nobody-asks}')`,
	// The jobs of Fill's live claims: one of them runs, one is not minted yet.
	`INSERT INTO workflow_jobs (id, account_id, repository, repository_id, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state, runner_name, queued_at, started_at, updated_at)
	 SELECT 3000000000 + n, 1, 'org-1/app-0', 2, 900000000 + n, 1, 'build', 'ci', 'main', 'abc', '["linux-4cpu"]', CASE n WHEN 99 THEN 'executing' WHEN 100 THEN 'claimed' ELSE 'minted' END,
	   CASE n WHEN 99 THEN 'live-99' ELSE '' END, now(), CASE n WHEN 99 THEN now() END, now() FROM generate_series(1, 100) n`,
	`UPDATE runner_claims SET state = 'executing', executing_at = now() WHERE pod_uid = 'live-99'`,
	`UPDATE runner_claims SET state = 'claimed', minted_at = NULL WHERE pod_uid = 'live-100'`,
	`UPDATE runner_claims SET missing_since = now() WHERE pod_uid = 'live-98'`,
	`UPDATE runner_registrations SET state = 'intended' WHERE runner_name = 'live-100'`,
	`UPDATE runner_registrations SET repository_id = 2, scope = 'org-1/app-0' WHERE runner_name IN ('live-97', 'live-98')`,
	`UPDATE runner_registrations SET state = 'gone', gone_at = now() WHERE runner_name = 'live-96'`,
	`UPDATE runner_sessions SET executed_job_id = 3000000099, job_started_at = now() WHERE pod_uid = 'live-99'`,
	// Jobs that are blocked, and jobs that wait for an approval.
	`INSERT INTO workflow_jobs (id, account_id, repository, repository_id, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state, held, queued_at, updated_at)
	 SELECT 3100000000 + n, 1, 'org-1/app-1', 12, 910000000 + n, 1, 'build', 'ci', 'main', 'abc', '["linux-4cpu"]', 'queued', 'repository_limit', now(), now() FROM generate_series(1, 100) n`,
	`INSERT INTO workflow_jobs (id, account_id, repository, repository_id, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state, queued_at, updated_at)
	 SELECT 3200000000 + n, 1, 'org-1/app-0', 2, 920000000 + n, 1, 'build', 'ci', 'main', 'abc', '["linux-4cpu"]', 'waiting', now(), now() FROM generate_series(1, 100) n`,
	// What GitHub refuses, and the jobs that wait for it. Some are held for what is not refused any more.
	`INSERT INTO refusals (account_id, repository, job_id, namespace, pool, reason, status, message, failures, waits, since, next_at)
	 SELECT 1, CASE n WHEN 1 THEN 'org-1/app-1' ELSE 'org-1/refused-' || n END, CASE n WHEN 3 THEN 3500000001 ELSE 0 END, 'runners', 'linux', 'refused', 403, 'x', 1, true, now(), now() FROM generate_series(1, 40) n`,
	`INSERT INTO refusals (account_id, repository, job_id, namespace, pool, reason, status, message, failures, waits, since, next_at)
	 VALUES (1, '', 0, 'runners', 'linux', 'refused', 403, 'x', 1, true, now(), now())`,
	`INSERT INTO workflow_jobs (id, account_id, repository, repository_id, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state, held, queued_at, updated_at)
	 SELECT 3500000000 + n, 1, CASE n WHEN 1 THEN 'org-1/refused-3' WHEN 2 THEN 'org-1/forgotten' ELSE 'org-1/refused-2' END, 13, 950000000 + n, 1, 'build', 'ci', 'main', 'abc', '["linux-4cpu"]', 'queued',
	 CASE n WHEN 1 THEN 'refused_job' ELSE 'refused' END, now(), now() FROM generate_series(1, 20) n`,
	// Jobs that no claim has.
	`INSERT INTO workflow_jobs (id, account_id, repository, repository_id, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state, queued_at, updated_at)
	 SELECT 3400000000 + n, 1, 'org-1/app-0', 2, 940000000 + n, 1, 'build', 'ci', 'main', 'abc', '["linux-4cpu"]', 'claimed', now(), now() FROM generate_series(1, 20) n`,
	// Jobs that were lost with their pods, and such that were run again after that.
	`INSERT INTO workflow_jobs (id, account_id, repository, repository_id, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state, conclusion, runner_name, rerun, queued_at, started_at, completed_at, updated_at)
	 SELECT 3300000000 + n, 1, 'org-1/app-0', 2, 930000000, 1, 'build', 'ci', 'main', 'abc', '["linux-4cpu"]', 'completed', 'failure', 'lost-' || n, CASE WHEN n > 10 THEN 'asked' ELSE '' END, now(), now(), now(), now()
	 FROM generate_series(1, 20) n`,
	`INSERT INTO runner_sessions (pod_uid, namespace, pod_name, pool, account_id, platform, milli_cpu, memory_mb, runner_name, job_id, executed_job_id, repository, started_at, job_started_at, lost_at)
	 SELECT 'lost-' || n, 'runners', 'lost-' || n, 'linux', 1, 'linux', 4000, 16384, 'lost-' || n, 3300000000 + n, 3300000000 + n, 'org-1/app-0', now(), now(), now() - interval '1 minute' FROM generate_series(1, 20) n`,
	// Deliveries that GitHub was asked for. One has come.
	`INSERT INTO delivery_asks (guid, delivery_id, event, delivered_at, next_at) SELECT 'open-' || n, 9000000 + n, 'workflow_job', now(), now() - interval '1 minute' FROM generate_series(1, 100) n`,
	`INSERT INTO delivery_asks (guid, delivery_id, event, delivered_at, next_at) SELECT 'old-' || n, 8000000 + n, 'workflow_job', now() - interval '4 days', now() FROM generate_series(1, 20) n`,
	`INSERT INTO webhook_deliveries VALUES ('open-1', 'workflow_job', now())`,
	`INSERT INTO runner_tails SELECT 'tail-' || n, 'runners', 'tail-' || n, 'linux', now(), 1, 'Error', 'x', false FROM generate_series(1, 100) n`,
	// Deleted pods: nothing is proven of some, of others there is no row any more.
	`INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, claimed_at, ended_at) SELECT 'unproven-' || n, 'runners', 'unproven-' || n, 'linux', 'spent', 1, now(), now() FROM generate_series(1, 20) n`,
	`INSERT INTO runner_registrations (runner_name, pod_uid, account_id, scope, generation, state, created_at) SELECT 'stray-' || n, 'stray-' || n, 1, 'org-1', 1, 'alive', now() - interval '1 day' FROM generate_series(1, 20) n`,
	`INSERT INTO runner_registrations (runner_name, pod_uid, account_id, scope, generation, state, created_at, gone_at, doubtful)
	 SELECT 'doubtful-' || n, 'doubtful-' || n, 1, 'org-1', 1, 'gone', now(), now(), true FROM generate_series(1, 20) n`,
	`INSERT INTO runner_sessions (pod_uid, namespace, pod_name, pool, account_id, platform, milli_cpu, memory_mb, runner_name, started_at)
	 SELECT 'stray-' || n, 'runners', 'stray-' || n, 'linux', 1, 'linux', 4000, 16384, 'stray-' || n, now() FROM generate_series(1, 20) n`,
	`INSERT INTO repositories (name, account_id, seen_at, swept_at) SELECT 'org-1/old-' || n, 1, now() - interval '100 days', now() FROM generate_series(1, 20) n`,
	`INSERT INTO uninstalled_owners SELECT 850000000 + n, 'stranger-' || n, 'stranger/app', now() - interval '8 days' * (n % 2) FROM generate_series(1, 20) n`,
	// Samples of pools: minutes of whole quarters of an hour, and quarters of an hour.
	`INSERT INTO pool_samples SELECT 'runners', 'linux', date_bin('15 minutes', now(), 'epoch') - n * interval '1 minute', 1, 1, 1, 1, 1, 1, 1, 1, 1, '{1,2}' FROM generate_series(1, 90) n`,
	`INSERT INTO pool_samples SELECT 'runners', 'linux', date_bin('15 minutes', now(), 'epoch') - interval '1 day' - n * interval '15 minutes', 15, 15, 1, 1, 1, 1, 1, 1, 1, '{1,2}' FROM generate_series(1, 100) n`,
	`INSERT INTO audit_events (at, actor, manager, action, subject, pool_namespace, pool) SELECT now(), 'kubernetes', 'kubectl-edit', 'pool_scale', '', 'runners', 'linux' FROM generate_series(1, 20) n`,
	`INSERT INTO audited_pools SELECT 'pool-' || n, 'runners', 'linux', 1, '{}', now() FROM generate_series(1, 20) n`,
	`UPDATE repositories SET missing_at = now() WHERE name = 'org-1/app-6'`,
	`UPDATE accounts SET installation_missing_at = now() WHERE id = 1`,
	`INSERT INTO accounts (id, login, kind, created_at, updated_at, deleted_at) SELECT 800000000 + n, 'gone-' || n, 'Organization', now(), now(), now() FROM generate_series(1, 20) n`,
}

// variant is how a query is asked, where what most are asked with does not fit or does not find anything.
type variant struct {
	how    string         // of several of one query
	before string         // a statement that comes first, in the same transaction
	with   map[string]any // parameters by their names, in lower case
}

// sample is one run of a query.
type sample struct {
	name string
	variant
	most map[string][]any
}

// value of a parameter: the variant's, or the first of what most have whose type fits.
func (s sample) value(t *testing.T, name string, typ reflect.Type) reflect.Value {
	t.Helper()
	candidates := s.most[strings.ToLower(name)]
	if own, ok := s.with[strings.ToLower(name)]; ok {
		candidates = []any{own}
	}
	for _, candidate := range candidates {
		value := reflect.ValueOf(candidate)
		if value.Type() == typ {
			return value
		}
		if typ.Kind() == reflect.Pointer && value.Type() == typ.Elem() {
			pointer := reflect.New(typ.Elem())
			pointer.Elem().Set(value)
			return pointer
		}
	}
	require.FailNow(t, "no value", "%s has a parameter %s (%s): say in parameters what it may be", s.name, name, typ)
	return reflect.Value{}
}

type sampler struct {
	most     map[string][]any
	variants map[string][]variant
}

func (s sampler) of(query string) []sample {
	variants := s.variants[query]
	if len(variants) == 0 {
		variants = []variant{{}}
	}
	var all []sample
	for _, v := range variants {
		all = append(all, sample{name: strings.TrimSpace(query + " " + v.how), variant: v, most: s.most})
	}
	return all
}

func samples(size ledgertest.Size, lineage string) sampler {
	now := time.Now()
	return sampler{most: parameters(size, lineage, now), variants: variants(size, now)}
}

// parameters are what most queries are asked with, by their names in lower case; of one name there may be several types.
func parameters(size ledgertest.Size, lineage string, now time.Time) map[string][]any {
	later := now.Add(time.Hour)
	queued := int64(size.Accounts) // the oldest job of account 1
	return map[string][]any{
		"account": {int64(1)}, "accountid": {int64(1), "1"}, "accounts": {[]int64{1}}, "acknowledgedat": {now}, "action": {"set_limits"}, "actor": {"ada"},
		"after": {"", int64(0), []byte(`{}`)}, "afterid": {int64(0)}, "afterlogin": {"org-1"}, "ages": {[]int64{10}}, "lasts": {[]int64{10}}, "anylabels": {true}, "held": {"refused"}, "message": {"x"}, "status": {int32(403)}, "trying": {int64(0)}, "waits": {true}, "allowed": {[]int64{10}},
		"at": {now}, "attempt": {int64(1)}, "before": {later, int64(math.MaxInt64), []byte(`{}`)}, "beforeid": {int64(math.MaxInt64)}, "began": {now}, "beyond": {later},
		"ats": {[]time.Time{now}}, "bounds": {[]float64{1, 2}}, "busy": {[]int64{1}}, "capacity": {[]int64{1}}, "claimed": {[]int64{1}}, "completedat": {now}, "conclusion": {"success"}, "conclusions": {[]string{}}, "counts": {[]int64{100}}, "credential": {""}, "cursor": {""}, "cut": {false},
		"deleted": {false}, "delivered": {[]time.Time{now}}, "deliveryids": {[]int64{1}}, "doubts": {int64(0)},
		"endedat": {now}, "stoppedat": {now}, "gone": {true}, "epoch": {int64(1)}, "etag": {""}, "event": {"workflow_job"}, "events": {[]string{"workflow_job"}}, "every": {float64(0)}, "everythingsince": {now},
		"excluded": {[]int64{}}, "exitcode": {int32(0)}, "expected": {"minted", int64(1)}, "firsts": {[]time.Time{now.AddDate(0, 0, -30)}}, "floor": {now},
		"former": {[]string{"org-1/app-6"}}, "generation": {int64(1)}, "generations": {[]int64{1}}, "guid": {"open-2"}, "guids": {[]string{"open-2"}},
		"headbranch": {"main"}, "headsha": {"abc"}, "hold": {float64(60)}, "id": {mintedJob}, "ids": {[]int64{queued}}, "installationid": {int64(100001)},
		"jobendedat": {now}, "jobid": {mintedJob}, "jobids": {[]int64{queued}}, "jobs": {int64(10)}, "jobstartedat": {now}, "keys": {[]string{"live-100 1"}}, "kind": {"Organization"},
		"known": {[]string{"u-1"}}, "knownepoch": {int64(1)}, "knownlineage": {lineage}, "labelkey": {ledgertest.LabelKey}, "labelkeys": {[]string{ledgertest.LabelKey}},
		"labels": {[]string{ledgertest.Labels}}, "later": {later}, "lease": {float64(60)}, "leaseuntil": {now}, "lineage": {lineage}, "listed": {[]string{"live-1"}},
		"login": {"org-1"}, "logins": {[]string{"org-1"}}, "longago": {later}, "lookat": {later}, "lostsince": {now}, "maxlanes": {int32(32)}, "memorymb": {int64(16384)},
		"millicpu": {int64(4000)}, "minutes": {int64(60)}, "most": {int32(100), int64(100), []int64{100}}, "name": {"org-1/app-0"}, "named": {[]string{"live-1"}, []bool{true}},
		"namedat": {now}, "names": {[]string{"org-1/app-0"}}, "namespace": {"runners"}, "namespaces": {[]string{"runners"}}, "next": {"executing", int64(2)}, "nextat": {now},
		"now": {now}, "overepoch": {int64(1)}, "overlineage": {lineage}, "pasts": {[]time.Time{now}}, "paused": {true}, "platform": {"linux"}, "podname": {"live-1"},
		"podnames": {[]string{"new"}}, "poduid": {"live-1"}, "poduids": {[]string{"live-1"}}, "pool": {"linux"}, "pools": {[]string{"linux"}}, "proof": {"x"},
		"idle": {[]int64{1}}, "peakbusy": {[]int64{1}}, "peakqueued": {[]int64{1}}, "queued": {[]int64{1}}, "queuetimes": {[]string{"{1}"}}, "samples": {[]int64{1}}, "spans": {[]int64{1}}, "starting": {[]int64{1}},
		"queuedat": {now}, "readuntil": {now}, "reason": {"repository_limit"}, "reasons": {[]string{""}}, "repositories": {[]string{"org-1/app-0"}}, "repository": {"org-1/app-1"},
		"repositoryid": {int64(2)}, "repositoryids": {[]int64{0}}, "repositoryjobs": {int64(0)}, "rerun": {"refused"}, "resumerun": {int64(1)}, "resumestatus": {"queued"},
		"runattempt": {int64(1)}, "runid": {lostRun}, "runnerid": {int64(9000001)}, "runnerids": {[]int64{9000001}}, "runnername": {"live-1"}, "runnernames": {[]string{"live-1"}},
		"part": {""}, "scan": {int32(1000)}, "scope": {"org-1"}, "scopes": {[]int64{0}, []string{"org-1"}}, "seensince": {now.AddDate(0, 0, -30)}, "sequence": {int64(1)}, "sequences": {[]int64{1}}, "shown": {[]string{"Running"}},
		"since": {now.Add(-time.Hour)}, "startedat": {now}, "state": {"queued"}, "states": {[]string{}}, "subject": {"org-1"}, "suspended": {false}, "sweep": {true},
		"sweptat": {now}, "sweptbefore": {later}, "tail": {"x"}, "top": {now}, "turn": {"mine"}, "unaskedbefore": {later}, "version": {int64(0)}, "versions": {[]int64{1}},
		"without": {[]int64{}}, "workflow": {"ci"},
		"changedat": {now}, "manager": {"kubectl-edit"}, "poolnamespace": {"runners"}, "requester": {"ada"}, "spec": {[]byte(`{}`)}, "stated": {""}, "uid": {"pool-1"},
		"uids": {[]string{"pool-1"}},
	}
}

const (
	mintedJob    = int64(3000000001)
	executingJob = int64(3000000099)
	blockedJob   = int64(3100000001)
	waitingJob   = int64(3200000001)
	refusedJob   = int64(3500000001)
	lostJob      = int64(3300000001)
	lostRun      = int64(930000000)
	newID        = int64(3900000000)
	goneAccount  = int64(800000001)
)

// limitedLane parks a lane at the limit of an account whose pods have all stopped.
const limitedLane = `WITH over AS (UPDATE runner_claims SET state = 'spent', stopped_at = now(), ended_at = now() WHERE account_id = 1 AND state IN ('claimed', 'minted', 'executing'))
	UPDATE job_lanes SET parked = 'limit' WHERE account_id = 1 AND label_key = '["linux-4cpu"]'`

// leakedLane is a lane whose last job no batch has missed.
const leakedLane = `INSERT INTO job_lanes (label_key, account_id, head_at) VALUES ('["nobody-asks"]', 1, now() - interval '1 day')`

// emptyLane is a lane without a job.
const emptyLane = `INSERT INTO job_lanes (label_key, account_id, head_at, parked) VALUES ('["nobody-asks"]', 1, now(), 'empty')`

// heldForLabels holds some jobs of an account for their label sets.
const heldForLabels = `UPDATE workflow_jobs SET held = 'label_sets' WHERE id IN (
	SELECT id FROM workflow_jobs WHERE account_id = 1 AND state = 'queued' AND held = '' ORDER BY queued_at LIMIT 20)`

// frozenLedger freezes a ledger whose claims are being rebuilt.
const frozenLedger = "UPDATE ledger_epoch SET hold_until = now(), over_lineage = lineage, over_epoch = 1, rebuilt_at = now(), rebuild_turn = 'mine'"

// variants are how queries are asked that need something else than most.
func variants(size ledgertest.Size, now time.Time) map[string][]variant {
	queued := int64(size.Accounts)
	ended := int64(size.Queued + size.Accounts)
	all := map[string][]variant{
		"PurgeAccount":      {{with: map[string]any{"id": goneAccount}}},
		"SeeInstallations":  {{with: map[string]any{"ids": []int64{1}}}},
		"InstallationEnded": {{with: map[string]any{"id": int64(500001)}}},
		"RestoreRepository": {{with: map[string]any{"repository": "org-1/old"}}},
		"RepositoriesTaken": {{with: map[string]any{"repositories": []string{"org-1/old"}}}},
		"SeeRepositories":   {{with: map[string]any{"names": []string{"org-1/app-6"}}}},
		"InsertAudit":       {{with: map[string]any{"before": []byte(`{}`)}}},
		"AuditTime":         {{with: map[string]any{"id": int64(1)}}},
		"InsertAuditedPool": {{with: map[string]any{"uid": "new"}}},

		"InsertJob":           {{with: map[string]any{"id": newID, "name": "build", "startedat": (*time.Time)(nil), "completedat": (*time.Time)(nil)}}},
		"IdentifyJob":         {{before: fmt.Sprintf("UPDATE workflow_jobs SET repository_id = 0 WHERE id = %d", mintedJob)}},
		"LockJob":             {{with: map[string]any{"id": queued}}},
		"HoldForLabels":       {{with: map[string]any{"id": queued}}},
		"HoldForRefusal":      {{with: map[string]any{"id": queued}}},
		"HastenRefusals":      {{with: map[string]any{"now": now.Add(-time.Hour)}}},
		"UpsertRefusal":       {{with: map[string]any{"reason": "refused"}}},
		"ReturnRefused":       {{with: map[string]any{"repository": "org-1/refused-2"}}},
		"ReturnRefusedJob":    {{with: map[string]any{"id": refusedJob}}},
		"ReturnForgotten":     {{with: map[string]any{"repository": "org-1/forgotten"}}},
		"TriedJob":            {{with: map[string]any{"id": refusedJob}}},
		"RefusalsOfJob":       {{with: map[string]any{"repository": "org-1/refused-3", "jobid": refusedJob}}},
		"DropRefusal":         {{with: map[string]any{"jobid": int64(0)}}},
		"TryRefusal":          {{with: map[string]any{"jobid": int64(0)}}},
		"StandingRefusal":     {{with: map[string]any{"jobid": int64(0)}}},
		"ReturnForLabels":     {{before: heldForLabels}},
		"ReturnToLane":        {{before: heldForLabels}},
		"LanesWithHeld":       {{before: heldForLabels}},
		"ReturnJob":           {{with: map[string]any{"id": queued}}},
		"EndJob":              {{with: map[string]any{"id": executingJob, "expected": "executing", "next": "completed"}}},
		"ConfirmWaiting":      {{with: map[string]any{"id": waitingJob}}},
		"BookRerun":           {{with: map[string]any{"id": lostJob}}},
		"RerunLater":          {{with: map[string]any{"id": lostJob}}},
		"UnbookRerun":         {{with: map[string]any{"id": lostJob}}},
		"ReturnNext":          {{with: map[string]any{"jobid": blockedJob}}},
		"RenameJobs":          {{with: map[string]any{"name": "org-1/renamed"}}},
		"RenameRegistrations": {{with: map[string]any{"name": "org-1/renamed"}}},
		"RenameRemoved":       {{with: map[string]any{"name": "org-1/renamed", "former": []string{"org-1/old"}}}},
		"ForgetNames":         {{with: map[string]any{"repositoryid": 2 + 6*int64(size.Accounts)}}},
		"TombstoneExists":     {{with: map[string]any{"jobid": ended}}},
		"JobStates":           {{how: "that wait"}, {how: "that have ended", with: map[string]any{"ids": []int64{ended}}}},
		"JobsSeen":            {{how: "that wait"}, {how: "that have ended", with: map[string]any{"ids": []int64{ended}}}},
		"JobOfRunner":         {{with: map[string]any{"runnername": "live-99", "accountid": int64(1)}}},
		"RecordDelivery":      {{with: map[string]any{"guid": "new"}}},
		"DueAdoptions":        {{with: map[string]any{"now": now.Add(time.Hour)}}},
		"CloseAdoption":       {{with: map[string]any{"runnername": "a-1"}}},
		"TailOfPod":           {{with: map[string]any{"podname": "tail-1"}}},
		"KeepTail":            {{with: map[string]any{"most": int64(1000)}}},

		"EvictLanes":          {{before: emptyLane}},
		"LabelSetsFrom":       {{with: map[string]any{"start": "[", "most": int32(1000)}}},
		"UnservedLanes":       {{with: map[string]any{"served": []string{`["other"]`}, "mostsets": int32(100), "maxlanes": int32(20)}}},
		"RecentConclusions":   {{with: map[string]any{"since": now.AddDate(-10, 0, 0), "most": int32(1000)}}},
		"RunningOfRepository": {{with: map[string]any{"repository": "org-1/app-0"}}},
		"SessionChanges":      {{with: map[string]any{"since": now.Add(-30 * time.Minute)}}},
		"UsageByDay":          {{how: "of an account"}, {how: "of all", with: map[string]any{"accountid": int64(0)}}},

		"PruneRepositories": {{with: map[string]any{"before": now.AddDate(0, 0, -90)}}},
		"DropOldAsks":       {{with: map[string]any{"before": now.AddDate(0, 0, -3)}}},

		"InsertClaims":       {{with: map[string]any{"poduids": []string{"new"}, "runnernames": []string{"new"}}}},
		"InsertFound":        {{with: map[string]any{"poduid": "new", "podname": "new", "runnername": "new"}}},
		"RetirePods":         {{with: map[string]any{"poduids": []string{"new"}}}},
		"IntendRegistration": {{with: map[string]any{"runnername": "new"}}},
		"RecordMints":        {{with: map[string]any{"poduids": []string{"live-100"}}}},
		"DropClaim":          {{with: map[string]any{"poduid": "live-100"}}},
		"RegistrationAlive":  {{with: map[string]any{"runnername": "live-100"}}},
		"SessionReleased":    {{with: map[string]any{"poduid": "live-99"}}},
		"SessionsLost":       {{with: map[string]any{"poduids": []string{"live-99"}}}},
		"NotePodsSeen":       {{with: map[string]any{"poduids": []string{"live-98"}}}},
		"ReleaseClaim":       {{with: map[string]any{"poduid": "live-96"}}},
		"UnparkUncharged":    {{before: limitedLane}},
		"LeakedLanes":        {{before: leakedLane}},
		"ForgetPod":          {{with: map[string]any{"poduid": "u-1"}}},
		"ProveEnded":         {{with: map[string]any{"poduids": []string{"unproven-1"}}}},
		"CloseStraySession":  {{with: map[string]any{"poduid": "stray-1"}}},

		"LockRebuildTurn": {{before: frozenLedger}}, "BeginRebuild": {{before: frozenLedger}}, "RenewRebuild": {{before: frozenLedger}}, "EndRebuild": {{before: frozenLedger}}, "EndHold": {{before: frozenLedger}},
	}
	live := []string{"waiting", "queued", "claimed", "minted", "executing"}
	states := append([]string{"completed", "cancelled", "stale"}, live...)
	all["LiveJobIDs"] = []variant{
		{how: "of all", with: map[string]any{"repository": "", "states": live}},
		{how: "in a state that few are in", with: map[string]any{"repository": "", "states": []string{"executing"}}},
		{how: "of a repository of no account", with: map[string]any{"repository": "nobody/app", "states": live}},
	}
	all["JobIDs"] = []variant{
		{how: "of all", with: map[string]any{"repository": "", "states": states}},
		{how: "in a state that few are in", with: map[string]any{"repository": "", "states": []string{"cancelled"}}},
		{how: "of a repository of no account", with: map[string]any{"repository": "nobody/app", "states": states}},
	}
	all["JobIDsOfAccounts"] = []variant{
		{how: "of all states", with: map[string]any{"repository": "", "states": states}},
		{how: "of a repository", with: map[string]any{"repository": "ORG-1/app-0", "states": live}},
		{how: "of an account without any", with: map[string]any{"accounts": []int64{goneAccount}, "repository": "", "states": states}},
	}
	// Searches: whatever they find, they read no more than the newest jobs.
	all["SearchLiveJobs"] = []variant{
		{how: "by a part of a repository", with: map[string]any{"repository": "", "part": "APP-0", "name": "", "states": live}},
		{how: "for a name that no job has", with: map[string]any{"repository": "", "name": "no such job", "states": live}},
	}
	all["SearchJobs"] = []variant{
		{how: "by name and repository", with: map[string]any{"repository": "", "part": "app-", "name": "BUILD", "states": states}},
		{how: "for failures", with: map[string]any{"repository": "", "name": "", "conclusions": []string{"failure"}, "states": states}},
		{how: "for a name that no job has", with: map[string]any{"repository": "", "name": "no such job", "states": states}},
	}
	all["SearchJobsOfAccounts"] = []variant{
		{how: "for failures", with: map[string]any{"repository": "", "name": "", "conclusions": []string{"failure"}, "states": []string{"completed", "cancelled", "stale"}}},
		{how: "for a name that no job has", with: map[string]any{"repository": "", "name": "no such job", "states": states}},
	}
	page := make([]int64, 100)
	for i := range page {
		page[i] = int64((i + 1) * size.Accounts)
	}
	all["JobsInFull"] = []variant{{how: "of a page", with: map[string]any{"ids": page}}, {how: "that runs", with: map[string]any{"ids": []int64{executingJob}}}}
	all["Usage"] = []variant{{how: "of an account"}, {how: "of all", with: map[string]any{"accountid": int64(0)}}}
	for _, query := range []string{
		"AccountByID", "AccountIsKnown", "EnsureAccount", "LockAccount", "MarkAccountDeleted", "MissInstallation", "PauseAccount", "RemoveInstallation", "TouchAccount", "UpsertInstallation",
	} {
		all[query] = []variant{{with: map[string]any{"id": int64(1)}}}
	}
	return all
}

// longer are the samples that read more in a large ledger, and why they may, beside those that read whole tables (wholeTables).
var longer = map[string]string{
	"DriftedLanes": "all lanes of all accounts are compared with the claims for them: in a pass of recovery",

	"LiveJobIDs of a repository of no account": "sought among all that wait and run: when a user asks for a repository whose owner is no account",
	"JobIDs of a repository of no account":     "sought among all: when a user asks for a repository whose owner is no account",
	"JobIDs in a state that few are in":        "sought among all: when a user asks for all jobs that were cancelled, of every account",
}

// ofOneAccount are those that read more where one account has all the jobs.
var ofOneAccount = map[string]string{
	"RenameJobs":           "the jobs of the repository that have not ended",
	"HoldRemoved":          "the jobs of the account that wait",
	"BuryJobsOfAccount":    "the jobs of the account that wait, when it is deleted",
	"BuryAllJobsOfAccount": "the jobs of the account, when it is purged",
	"PurgeSessions":        "the sessions of the account, when it is purged",
	"UnparkLabelSets":      "it has one lane, which is not parked",
}

// findsNothing are the samples that need not find anything, and why.
var findsNothing = map[string]string{
	"LiveJobIDs of a repository of no account": "there is none", "JobIDs of a repository of no account": "there is none", "JobIDs in a state that few are in": "there is none",
	"JobIDsOfAccounts of an account without any": "there is none",
	"ParkIfEmpty": "a lane that is empty is parked by whoever has taken its last job",
	"UnownedPods": "what it finds has no row that counts",
}
