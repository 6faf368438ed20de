package soak

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/charts"
	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
	"github.com/bullpen-ci/bullpen/test/rights"
	"github.com/bullpen-ci/bullpen/test/soak/check"
	"github.com/bullpen-ci/bullpen/test/soak/schedule"
)

// everythingOnce is what happens to a fleet sooner or later, each fault at its time. Runners get no job and are recovered, while servers
// die in the middle of it. The leading controller dies, and then its successor. The database's disk is full, where that can be done. Pods
// get SIGTERM (EXCL-8). An administrator rolls, empties and renames a pool, and cordons, drains and deletes nodes.
func everythingOnce(disk bool) schedule.Schedule {
	at := func(seconds int) schedule.Duration { return schedule.Duration(time.Duration(seconds) * time.Second) }
	batch := func(when, account, jobs int) schedule.Batch {
		return schedule.Batch{At: at(when), Account: account, Pool: schedule.PoolBulk, Jobs: jobs, Each: at(1)}
	}
	plan := schedule.Schedule{
		Options: schedule.Options{Jobs: 34, Length: at(45)},
		Load:    []schedule.Batch{batch(1, 1, 6), batch(8, 2, 6), batch(16, 3, 4), batch(22, 1, 4), batch(28, 2, 6), batch(36, 3, 6), batch(43, 1, 2)},
		Steps: []schedule.Step{
			// Recovery ends runners that get no job; its patience is five seconds here.
			{At: at(0), Kind: schedule.GitHub, Target: schedule.GitHubItself, Fault: "runner-starved", Percent: 100, For: at(18)},
			{At: at(1), Kind: schedule.DieAt, Target: string(faultpoint.ClaimTaken), Value: 1, For: at(120)},
			{At: at(1), Kind: schedule.DieAt, Target: string(faultpoint.ClaimEnded), Value: 1, For: at(120)},
			{At: at(0), Kind: schedule.PodStop, Target: schedule.PoolBulk, Fault: schedule.AfterClaim, Value: 200, For: at(15)},
			{At: at(18), Kind: schedule.ControllerKill, Target: schedule.Controller, For: at(20)}, // longer than its lease
			{At: at(30), Kind: schedule.PoolRoll, Target: schedule.PoolBulk},
			{At: at(31), Kind: schedule.NodeCordon, Target: schedule.Node1, For: at(2)},
			{At: at(33), Kind: schedule.NodeDelete, Target: schedule.Node2},
			{At: at(34), Kind: schedule.PoolZero, Target: schedule.PoolBulk, For: at(3)},
			{At: at(36), Kind: schedule.NodeDrain, Target: schedule.Node1, For: at(2)},
			{At: at(38), Kind: schedule.PoolRename, Target: schedule.PoolBulk},
			{At: at(39), Kind: schedule.PodStop, Target: schedule.PoolBulk, Fault: schedule.AfterStart, For: at(30)},
			{At: at(40), Kind: schedule.NodeTerminate, Target: schedule.Node2},
			{At: at(42), Kind: schedule.ControllerKill, Target: schedule.Controller2, For: at(20)},
			{At: at(43), Kind: schedule.ServerKill, Target: schedule.Server1, For: at(1)},
		},
	}
	if disk {
		plan.Steps = append(plan.Steps, schedule.Step{At: at(17), Kind: schedule.PostgresFull, Target: schedule.Postgres, For: at(4)})
	}
	slices.SortStableFunc(plan.Steps, func(a, b schedule.Step) int { return cmp.Compare(a.At, b.At) })
	for n := range plan.Steps {
		plan.Steps[n].Number = n + 1
	}
	plan.Options.Faults = len(plan.Steps)
	return plan
}

// Everything once, by the whole system under the roles that the chart renders. No job is lost or killed. A server that dies
// between the writes with which recovery ends a claim leaves nothing behind. Of two controllers another one leads when the
// leader is gone. Each part has used every right that it has, and was refused nothing.
func TestSoak_RECV5_NET8_EverythingOnce(t *testing.T) {
	disk := os.Geteuid() == 0 && runtime.GOOS == "linux"
	dir := stateDir(t)
	var control window
	report, err := Run(t.Context(), Options{
		Dir: dir, Binary: binary, Self: self, Rounds: []schedule.Schedule{everythingOnce(disk)}, Runners: 6, Patience: 2 * time.Minute,
		Disk: disk, TwoControllers: true, Requests: true, Out: lines{t},
		Then: func(ctx context.Context, s *System) error {
			leadershipHasMoved(ctx, t, s, 2)
			control = revokeRight(ctx, t, s)
			return nil
		},
	})
	require.NoError(t, err)
	require.False(t, report.Failed())
	t.Run("RECV5_each deed was done", func(t *testing.T) {
		deeds, err := os.ReadFile(filepath.Join(dir, "evidence", check.FileDeeds))
		require.NoError(t, err)
		require.NotContains(t, string(deeds), "not reached")
		require.NotContains(t, string(deeds), `"error"`)
		require.NotContains(t, string(deeds), "no job was", "EXCL-8: each stop is of a pod that has one")
		require.FileExists(t, filepath.Join(dir, "postgres", "postgres.log"), "the disk's content is back in its directory")
		require.NoDirExists(t, filepath.Join(dir, "postgres.kept"))
	})
	log, err := os.ReadFile(filepath.Join(dir, "evidence", check.FileAudit))
	require.NoError(t, err)
	uses, err := rights.ReadLog(bytes.NewReader(log))
	require.NoError(t, err)
	var ordinary, provoked []rights.Use
	for _, use := range uses {
		if control.provoked(use) {
			provoked = append(provoked, use)
		} else {
			ordinary = append(ordinary, use)
		}
	}
	granted, err := rights.Granted(rendered(t))
	require.NoError(t, err)
	t.Run("NET8_each right is used and each request is allowed", func(t *testing.T) {
		// Nodes hold no role of the chart's, and are refused at times: the Node authorizer learns of a pod a moment after its node.
		for _, found := range rights.Compare(granted, ordinary, unusedRights) {
			t.Error(found)
		}
	})
	t.Run("NET8_control: a right too many is found", func(t *testing.T) {
		more, err := rights.Granted(oneVerbMore(rendered(t)))
		require.NoError(t, err)
		require.Len(t, more, len(granted)+1)
		found := rights.Compare(more, ordinary, unusedRights)
		require.Len(t, found, 1)
		require.Equal(t, rights.Unused, found[0].Kind)
		require.Equal(t, "update", found[0].Right.Verb)
	})
	t.Run("NET8_control: a right too few is refused", func(t *testing.T) {
		require.NotEmpty(t, provoked)
		for _, found := range rights.Compare(granted, append(ordinary, provoked...), unusedRights) {
			require.Equal(t, rights.Refused, found.Kind)
			require.Equal(t, "subjectaccessreviews", found.Right.Resource)
		}
	})
}

// leadershipHasMoved waits until the lease has passed from one controller to another that many times.
func leadershipHasMoved(ctx context.Context, t *testing.T, s *System, times int32) {
	t.Helper()
	require.Eventually(t, func() bool {
		lease, err := s.leader(ctx)
		return err == nil && lease.Spec.LeaseTransitions != nil && *lease.Spec.LeaseTransitions >= times
	}, time.Minute, 200*time.Millisecond, "no other controller leads")
}

// window is the time during which a right was revoked.
type window struct{ from, until time.Time }

func (w window) provoked(use rights.Use) bool {
	return use.Resource == "subjectaccessreviews" && use.Refused() && use.At.After(w.from) && use.At.Before(w.until)
}

// revokeRight has an administrator send a request to the server, and repeats it while the server may not ask the cluster for rights.
func revokeRight(ctx context.Context, t *testing.T, s *System) window {
	t.Helper()
	token, err := s.token(ctx, "bullpen-admin", adminapi.Audience)
	require.NoError(t, err)
	ask := func() int {
		bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(bounded, http.MethodGet, "http://"+s.adminURL+adminapi.PathAccounts, nil)
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := await.HTTP.Do(request)
		if err != nil {
			return 0 // the server was killed a moment ago
		}
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	answers := func(want func(status int) bool) {
		t.Helper()
		require.Eventually(t, func() bool { return want(ask()) }, time.Minute, 200*time.Millisecond)
	}
	answers(func(status int) bool { return status == http.StatusOK })

	roles := s.kube.RbacV1().ClusterRoles()
	role, err := roles.Get(ctx, "bullpen-server", metav1.GetOptions{})
	require.NoError(t, err)
	whole := role.DeepCopy()
	role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Resources, "subjectaccessreviews")
	})
	require.Len(t, role.Rules, len(whole.Rules)-1)
	w := window{from: time.Now()}
	role, err = roles.Update(ctx, role, metav1.UpdateOptions{})
	require.NoError(t, err)
	answers(func(status int) bool { return status >= 500 })
	role.Rules = whole.Rules
	_, err = roles.Update(ctx, role, metav1.UpdateOptions{})
	require.NoError(t, err)
	answers(func(status int) bool { return status == http.StatusOK })
	w.until = time.Now()
	return w
}

// rendered is what onebox.Install installs, the chart's roles included, except that of self-registering runners, of which
// the soak has none: test/e2e compares that one.
func rendered(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	files, err := charts.Rendered()
	require.NoError(t, err)
	var manifests []helmchart.Manifest
	for _, file := range files {
		manifests = append(manifests, helmchart.Manifest{Path: file.Name, Content: string(file.Content)})
	}
	objects, err := helmchart.Objects(manifests)
	require.NoError(t, err)
	all := len(objects)
	objects = slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		return object.GetName() == "bullpen-self-registering"
	})
	require.Len(t, objects, all-2, "its Role and its RoleBinding")
	return objects
}

// oneVerbMore lets the controller update pools, which it never does.
func oneVerbMore(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	for _, object := range objects {
		if object.GetKind() != "Role" || object.GetName() != "bullpen-controller" || object.GetNamespace() != runnerNamespace {
			continue
		}
		rules, _, _ := unstructured.NestedSlice(object.Object, "rules")
		rule := rules[0].(map[string]any)
		rule["verbs"] = append(rule["verbs"].([]any), "update")
		_ = unstructured.SetNestedSlice(object.Object, rules, "rules")
	}
	return objects
}
