package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/cluster"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/history"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/apicontract"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// desk is the administrators' API under the server's own role (NET-8), on a real cluster's word; the store is never asked for
// more than that it was reached.
type desk struct {
	t         *testing.T
	env       *kit.Env
	namespace string
	kube      kubernetes.Interface
	url       string
	reached   atomic.Int64
}

// reachedStore counts what passed the door.
type reachedStore struct{ *desk }

func (s reachedStore) Accounts(context.Context, admin.AccountQuery) ([]adminapi.Account, string, error) {
	s.reached.Add(1)
	return nil, "", nil
}

func (s reachedStore) Account(context.Context, string) (adminapi.Account, error) {
	s.reached.Add(1)
	return adminapi.Account{State: adminapi.AccountActive, Budgets: []adminapi.Budget{}}, nil
}

func (s reachedStore) ChangeLimits(context.Context, admin.Change, map[string]adminapi.LimitsChange) (adminapi.Account, error) {
	s.reached.Add(1)
	return adminapi.Account{State: adminapi.AccountActive, Budgets: []adminapi.Budget{}}, nil
}

func (s reachedStore) Pause(context.Context, admin.Change, bool) (adminapi.Account, error) {
	s.reached.Add(1)
	return adminapi.Account{State: adminapi.AccountActive, Budgets: []adminapi.Budget{}}, nil
}

func (s reachedStore) DeleteAccount(context.Context, admin.Change, bool) error {
	s.reached.Add(1)
	return nil
}

func (s reachedStore) Audit(context.Context, admin.AuditQuery) ([]adminapi.AuditEvent, error) {
	s.reached.Add(1)
	return nil, nil
}

func (s reachedStore) Jobs(context.Context, admin.JobQuery) ([]admin.StoredJob, error) {
	s.reached.Add(1)
	return nil, nil
}

func (s reachedStore) Job(context.Context, int64) (admin.StoredJob, error) {
	s.reached.Add(1)
	return admin.StoredJob{Job: adminapi.Job{Labels: []string{}}}, nil
}

func (s reachedStore) Usage(context.Context, admin.UsageQuery) ([]adminapi.MonthUsage, int64, error) {
	s.reached.Add(1)
	return nil, 0, nil
}

func (s reachedStore) SearchJobs(context.Context, admin.JobQuery) ([]admin.StoredJob, int64, error) {
	s.reached.Add(1)
	return nil, 0, nil
}

func (s reachedStore) Conclusions(context.Context, time.Time, int) (map[string]int64, error) {
	s.reached.Add(1)
	return map[string]int64{}, nil
}

func (s reachedStore) UsageByDay(context.Context, admin.UsageQuery) ([]adminapi.DayUsage, error) {
	s.reached.Add(1)
	return nil, nil
}

func (s reachedStore) Samples(context.Context, history.Pool, time.Time, time.Time) ([]history.Sample, error) {
	s.reached.Add(1)
	return nil, nil
}

func (s reachedStore) Claim(context.Context, string) (dispatch.Claim, error) {
	s.reached.Add(1)
	return dispatch.Claim{}, nil
}

func (s reachedStore) RunnerLog(context.Context, string, string) (adminapi.RunnerLog, error) {
	s.reached.Add(1)
	return adminapi.RunnerLog{}, nil
}

func (s reachedStore) RetireRunner(context.Context, admin.Change, dispatch.Pod) (dispatch.Claim, bool, error) {
	s.reached.Add(1)
	return dispatch.Claim{State: fleet.ClaimRetired}, true, nil
}

func (s reachedStore) RunnerClaims(context.Context, []string) (map[string]admin.RunnerClaim, error) {
	s.reached.Add(1)
	return nil, nil
}

func (s reachedStore) JobEvidence(context.Context, int64) (admin.JobEvidence, error) {
	s.reached.Add(1)
	return admin.JobEvidence{}, nil
}

// oneFleet has one pool and one runner, and counts what passed the door as the store does.
type oneFleet struct {
	admin.Fleet
	desk *desk
}

func (f oneFleet) DescribePools() []adminapi.Pool {
	f.desk.reached.Add(1)
	return []adminapi.Pool{{Namespace: "runners", Name: "linux"}}
}

func (f oneFleet) PodsOfPool(dispatch.PoolRef) []admin.RunnerPod {
	f.desk.reached.Add(1)
	return nil
}

func (f oneFleet) Hosts() ([]adminapi.Host, bool) {
	f.desk.reached.Add(1)
	return nil, true
}

func (oneFleet) Demand(context.Context) ([]runnerapi.PoolSignals, error) { return nil, nil }

func (oneFleet) Lanes(context.Context) (map[dispatch.LaneRef]dispatch.LaneDemand, error) {
	return nil, nil
}

func (oneFleet) Pools() []dispatch.Pool { return nil }

func (oneFleet) Outside([]string) fleet.Outside { return fleet.OutsideNone }

func (oneFleet) Unserved(context.Context) (dispatch.Unserved, error) { return dispatch.Unserved{}, nil }

func (oneFleet) Frozen() (string, bool) { return "", false }

func (oneFleet) Runner(namespace, name string) (dispatch.Pod, bool) {
	return dispatch.Pod{Namespace: namespace, Name: name, UID: "u", Pool: dispatch.PoolRef{Namespace: namespace, Name: "linux"}}, true
}

func (oneFleet) ClaimChanged(string) {}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t, env: kit.Cluster(t)}
	d.namespace = d.env.Namespace(t)
	d.env.ShippedRoles(t, d.namespace)
	d.kube = d.env.Kube
	access, err := cluster.NewAdmins(cluster.AdminsOptions{
		Config:          d.env.As(t, serverUser, "system:serviceaccounts", "system:authenticated"), // NET-8
		RunnerNamespace: d.namespace,
	})
	require.NoError(t, err)
	var asked atomic.Int64 // each request comes a minute after the one before it: a history is kept for seconds
	now := func() time.Time { return time.Now().Add(time.Duration(asked.Add(1)) * time.Minute) }
	api, err := admin.New(admin.Options{Store: reachedStore{d}, Access: access, Fleet: oneFleet{desk: d}, Now: now})
	require.NoError(t, err)
	server := httptest.NewServer(apicontract.Checked(t, api.Handler()))
	t.Cleanup(server.Close)
	d.url = server.URL
	return d
}

// token is one of a ServiceAccount that is made when it is missing.
func (d *desk) token(namespace, name, audience string) string {
	d.t.Helper()
	_, _ = d.kube.CoreV1().ServiceAccounts(namespace).Create(d.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](600)}}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	issued, err := d.kube.CoreV1().ServiceAccounts(namespace).CreateToken(d.t.Context(), name, request, metav1.CreateOptions{})
	require.NoError(d.t, err)
	return issued.Status.Token
}

func (d *desk) bind(role, namespace, name string) {
	d.t.Helper()
	_, err := d.kube.RbacV1().ClusterRoleBindings().Create(d.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}, metav1.CreateOptions{})
	require.NoError(d.t, err)
}

// endpoint is one thing that can be asked.
type endpoint struct{ method, path, body string }

func endpoints() (reads, writes []endpoint) {
	return []endpoint{
			{"GET", "/api/v1/accounts", ""}, {"GET", "/api/v1/accounts/acme", ""}, {"GET", "/api/v1/audit", ""},
			{"GET", "/api/v1/jobs", ""}, {"GET", "/api/v1/jobs?name=build", ""}, {"GET", "/api/v1/conclusions", ""}, {"GET", "/api/v1/jobs/7", ""}, {"GET", "/api/v1/jobs/7/why", ""}, {"GET", "/api/v1/usage", ""},
			{"GET", "/api/v1/usage/days", ""}, {"GET", "/api/v1/history", ""}, {"GET", "/api/v1/pools/runners/linux/history?window=14d", ""},
			{"GET", "/api/v1/pools", ""}, {"GET", "/api/v1/pools/runners/linux", ""}, {"GET", "/api/v1/runners", ""}, {"GET", "/api/v1/hosts", ""},
		}, []endpoint{
			{"PATCH", "/api/v1/accounts/acme/limits", `{"platforms":{"linux":{"jobs":1}}}`},
			{"POST", "/api/v1/runners/bullpen-runners/linux-1/retire", ""},
			{"GET", "/api/v1/runners/bullpen-runners/linux-1/log", ""}, // what jobs print is not for every viewer
			{"POST", "/api/v1/accounts/acme:suspend", ""}, {"POST", "/api/v1/accounts/acme:resume", ""},
			{"DELETE", "/api/v1/accounts/acme", ""},
		}
}

// ask returns the status and whether the store was reached.
func (d *desk) ask(e endpoint, token string) (int, bool) {
	d.t.Helper()
	before := d.reached.Load()
	req, err := http.NewRequestWithContext(d.t.Context(), e.method, d.url+e.path, strings.NewReader(e.body))
	require.NoError(d.t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("If-Match", "*")
	resp, err := await.HTTP.Do(req)
	require.NoError(d.t, err)
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		var refusal adminapi.Error
		require.NoError(d.t, json.NewDecoder(resp.Body).Decode(&refusal))
		require.NotEmpty(d.t, refusal.Error)
	}
	return resp.StatusCode, d.reached.Load() > before
}

// NET-5, NET-8: every endpoint refuses principals without the role for it, and accepts those with it.
func TestAdmins_NET5_NET8_EveryEndpointAsksTheCluster(t *testing.T) {
	d := newDesk(t)
	people := d.env.Namespace(t)
	d.bind("bullpen-viewer", people, "viewer")
	// A role for a ServiceAccount of the runners' namespace, by mistake or by malice, makes no administrator of it.
	d.bind("bullpen-admin", d.namespace, "runner-x")
	viewer, admins := d.token(people, "viewer", adminapi.Audience), d.token("bullpen-system", "bullpen-admin", adminapi.Audience)
	reads, writes := endpoints()
	require.Eventually(t, func() bool { // roles take effect in a moment
		status, _ := d.ask(reads[0], viewer)
		other, _ := d.ask(reads[0], admins)
		return status == http.StatusOK && other == http.StatusOK
	}, 20*time.Second, 50*time.Millisecond)

	refused := map[string]struct {
		token string
		says  int
	}{
		"nobody":                                    {"", http.StatusUnauthorized},
		"nonsense":                                  {"nonsense", http.StatusUnauthorized},
		"the controller, for the cluster":           {d.token("bullpen-system", "bullpen-controller", ""), http.StatusForbidden},
		"the controller, for the server":            {d.token("bullpen-system", "bullpen-controller", runnerapi.AudienceServer), http.StatusUnauthorized},
		"the controller, for administrators":        {d.token("bullpen-system", "bullpen-controller", adminapi.Audience), http.StatusForbidden},
		"the server":                                {d.token("bullpen-system", "bullpen-server", ""), http.StatusForbidden},
		"a runner's dispatch token":                 {d.token(d.namespace, "runner-x", runnerapi.AudienceDispatch), http.StatusUnauthorized},
		"a runner, for administrators, with a role": {d.token(d.namespace, "runner-x", adminapi.Audience), http.StatusForbidden},
		"a runner, for the cluster, and a role":     {d.token(d.namespace, "runner-x", ""), http.StatusForbidden},
		"somebody without a role":                   {d.token(people, "somebody", adminapi.Audience), http.StatusForbidden},
		"a viewer for another audience":             {d.token(people, "viewer", "elsewhere"), http.StatusUnauthorized},
	}
	for who, r := range refused {
		for _, e := range append(reads, writes...) {
			status, reached := d.ask(e, r.token)
			require.Equal(t, r.says, status, "%s: %s %s", who, e.method, e.path)
			require.False(t, reached, "%s: %s %s", who, e.method, e.path)
		}
	}
	for _, token := range []string{viewer, d.token(people, "viewer", "")} {
		for _, e := range reads {
			status, reached := d.ask(e, token)
			require.Equal(t, http.StatusOK, status, e.path)
			require.True(t, reached)
		}
		for _, e := range writes {
			status, reached := d.ask(e, token)
			require.Equal(t, http.StatusForbidden, status, "a viewer changes nothing: %s %s", e.method, e.path)
			require.False(t, reached)
		}
	}
	for _, e := range append(reads, writes...) {
		status, reached := d.ask(e, admins)
		require.Less(t, status, 300, "%s %s", e.method, e.path)
		require.True(t, reached)
	}
}

// A yes is remembered for seconds, a no never; and an API server that does not answer is no yes.
func TestAdmins_NET5_YesIsShortAndNoIsNever(t *testing.T) {
	var allowed, authenticated, away atomic.Bool
	var reviews atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reviews.Add(1)
		if away.Load() {
			http.Error(w, "away", http.StatusInternalServerError)
			return
		}
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		if strings.Contains(r.URL.Path, "tokenreviews") {
			body["status"] = map[string]any{"authenticated": authenticated.Load(), "user": map[string]any{"username": "ada"}, "audiences": []string{adminapi.Audience}}
		} else {
			body["status"] = map[string]any{"allowed": allowed.Load()}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	}))
	t.Cleanup(server.Close)
	clock := newTestClock()
	o, err := cluster.NewAdmins(cluster.AdminsOptions{Config: jsonConfig(server.URL), RunnerNamespace: "runners", Now: clock.now})
	require.NoError(t, err)
	right := admin.Right{Verb: "list", Resource: "accounts"}
	may := func() bool {
		yes, err := o.Allowed(t.Context(), admin.User{Name: "ada"}, right)
		require.NoError(t, err)
		return yes
	}
	require.False(t, may())
	require.False(t, may(), "asking twice makes no yes")
	allowed.Store(true)
	require.True(t, may(), "a no is asked about again")
	allowed.Store(false)
	require.True(t, may(), "an allowed result is cached for a moment")
	clock.advance(3 * time.Second)
	require.False(t, may(), "and no longer")

	_, err = o.Identify(t.Context(), "t")
	require.ErrorIs(t, err, admin.ErrRejected)
	authenticated.Store(true)
	user, err := o.Identify(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, "ada", user.Name)
	asked := reviews.Load()
	authenticated.Store(false)
	_, err = o.Identify(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, asked, reviews.Load())
	clock.advance(3 * time.Second)
	_, err = o.Identify(t.Context(), "t")
	require.ErrorIs(t, err, admin.ErrRejected)
	away.Store(true)
	_, err = o.Identify(t.Context(), "t")
	require.Error(t, err)
	require.False(t, errors.Is(err, admin.ErrRejected))
	_, err = o.Allowed(t.Context(), admin.User{Name: "ada"}, right)
	require.Error(t, err)
}

type testClock struct{ at atomic.Int64 }

func newTestClock() *testClock {
	c := &testClock{}
	c.at.Store(time.Now().UnixNano())
	return c
}

func (c *testClock) now() time.Time          { return time.Unix(0, c.at.Load()) }
func (c *testClock) advance(d time.Duration) { c.at.Add(int64(d)) }

func jsonConfig(host string) *rest.Config {
	return &rest.Config{Host: host, ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}}
}
