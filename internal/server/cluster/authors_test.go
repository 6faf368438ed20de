package cluster_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/cluster"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const adminAccount = "system:serviceaccount:bullpen-system:bullpen-admin"

// vouching is an API server: it accepts one token, and has the policy on authors, or not.
type vouching struct {
	user      string
	audiences []string // of the token, as the API server verifies them
	created   time.Time
	missing   string // part of the path of what is not found
	broken    bool
	binding   map[string]any // spec of the binding
	reads     int
}

func (v *vouching) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	write := func(status int, body any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	if strings.Contains(r.URL.Path, "tokenreviews") {
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		for _, asked := range review.Spec.Audiences {
			if slices.Contains(v.audiences, asked) {
				review.Status.Audiences = append(review.Status.Audiences, asked)
			}
		}
		review.Status.Authenticated = len(review.Spec.Audiences) == 0 || len(review.Status.Audiences) > 0
		review.Status.User.Username = v.user
		write(http.StatusCreated, review)
		return
	}
	v.reads++
	kind := "ValidatingAdmissionPolicy"
	spec := map[string]any{"failurePolicy": "Fail"}
	if strings.Contains(r.URL.Path, "policybindings") {
		kind, spec = "ValidatingAdmissionPolicyBinding", v.binding
	}
	switch {
	case v.broken:
		write(http.StatusInternalServerError, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500})
	case v.missing != "" && strings.Contains(r.URL.Path, v.missing):
		write(http.StatusNotFound, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})
	default:
		write(http.StatusOK, map[string]any{
			"kind": kind, "apiVersion": "admissionregistration.k8s.io/v1", "spec": spec,
			"metadata": map[string]any{"name": "bullpen-authors", "creationTimestamp": v.created.UTC().Format(time.RFC3339)},
		})
	}
}

// unsigned is a token with these claims. Only the API server verifies signatures.
func unsigned(t *testing.T, issued time.Time, audiences ...string) string {
	t.Helper()
	claims, err := json.Marshal(map[string]any{"aud": audiences, "iat": issued.Unix()})
	require.NoError(t, err)
	return "e30." + base64.RawURLEncoding.EncodeToString(claims) + ".c2ln"
}

func deny() map[string]any {
	return map[string]any{"policyName": "bullpen-authors", "validationActions": []string{"Deny", "Audit"}}
}

// NET-5: the name of a user counts as verified only if the API server issued the token for that audience, in the server's namespace, while
// the policy denied others. In all other cases it is what the client stated.
func TestIdentify_NET5_AUserIsNamedByTheClusterOnly(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	both := []string{adminapi.Audience, adminapi.AudienceUser + "ada"}
	for name, c := range map[string]struct {
		change            func(v *vouching)
		claimed           []string
		issued            time.Time
		requester, stated string
	}{
		"the policy is enforced":            {requester: "ada"},
		"issued before the policy":          {issued: now.Add(-2 * time.Hour), stated: "ada"},
		"issued just after it was created":  {issued: now.Add(-time.Hour + time.Second), stated: "ada"},
		"no policy":                         {change: func(v *vouching) { v.missing = "validatingadmissionpolicies/" }, stated: "ada"},
		"no binding":                        {change: func(v *vouching) { v.missing = "validatingadmissionpolicybindings" }, stated: "ada"},
		"a binding that audits only":        {change: func(v *vouching) { v.binding["validationActions"] = []string{"Audit"} }, stated: "ada"},
		"a binding of another policy":       {change: func(v *vouching) { v.binding["policyName"] = "other" }, stated: "ada"},
		"a binding for some namespaces":     {change: func(v *vouching) { v.binding["matchResources"] = map[string]any{} }, stated: "ada"},
		"a ServiceAccount elsewhere":        {change: func(v *vouching) { v.user = "system:serviceaccount:elsewhere:x" }, stated: "ada"},
		"a user's own token":                {change: func(v *vouching) { v.user = "grace" }},
		"an audience that is not confirmed": {change: func(v *vouching) { v.audiences = both[:1] }},
		"no name":                           {change: func(v *vouching) { v.audiences = both[:1] }, claimed: both[:1]},
		"two names":                         {claimed: append(slices.Clone(both), adminapi.AudienceUser+"grace")},
		"an empty name":                     {claimed: []string{adminapi.Audience, adminapi.AudienceUser}},
	} {
		t.Run(name, func(t *testing.T) {
			v := &vouching{user: adminAccount, audiences: both, created: now.Add(-time.Hour), binding: deny()}
			if c.change != nil {
				c.change(v)
			}
			server := httptest.NewServer(v)
			t.Cleanup(server.Close)
			if c.claimed == nil {
				c.claimed = both
			}
			if c.issued.IsZero() {
				c.issued = now.Add(-time.Minute)
			}
			user := identify(t, server.URL, now, unsigned(t, c.issued, c.claimed...))
			require.Equal(t, v.user, user.Name)
			require.Equal(t, []string{c.requester, c.stated}, []string{user.Requester, user.Stated})
		})
	}
}

func admins(t *testing.T, url string, now func() time.Time) *cluster.Admins {
	t.Helper()
	authors, err := cluster.NewAuthors(cluster.AuthorsOptions{Config: jsonConfig(url), Policy: "bullpen-authors", Now: now})
	require.NoError(t, err)
	o, err := cluster.NewAdmins(cluster.AdminsOptions{
		Config: jsonConfig(url), RunnerNamespace: "runners", Namespace: "bullpen-system", Authors: authors, Now: now,
	})
	require.NoError(t, err)
	return o
}

func identify(t *testing.T, url string, now time.Time, token string) admin.User {
	t.Helper()
	user, err := admins(t, url, func() time.Time { return now }).Identify(t.Context(), token)
	require.NoError(t, err)
	return user
}

// A policy that is enforced is read once in a while, one that is not each time; an API server that fails verifies nothing.
func TestIdentify_NET5_ThePolicyIsCachedForAWhile(t *testing.T) {
	clock := newTestClock()
	v := &vouching{
		user: adminAccount, audiences: []string{adminapi.Audience, adminapi.AudienceUser + "ada"}, created: clock.now().Add(-time.Hour),
		binding: deny(), missing: "validatingadmissionpolicybindings",
	}
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	o := admins(t, server.URL, clock.now)
	token := unsigned(t, clock.now(), v.audiences...)
	ask := func() (admin.User, error) {
		clock.advance(3 * time.Second) // users are cached, too
		return o.Identify(t.Context(), token)
	}
	user, err := ask()
	require.NoError(t, err)
	require.Equal(t, "ada", user.Stated)
	v.missing = ""
	user, err = ask()
	require.NoError(t, err)
	require.Equal(t, "ada", user.Requester, "a policy that was missing is looked for again")
	reads := v.reads
	_, err = ask()
	require.NoError(t, err)
	require.Equal(t, reads, v.reads)
	v.broken = true
	clock.advance(time.Minute)
	_, err = ask()
	require.ErrorContains(t, err, "reading the admission policy bullpen-authors")
	require.NotErrorIs(t, err, admin.ErrRejected)
}

// NET-5: the API server issues a token with a user's name to that user only, and accepts it in a pool from that user only, for the
// generation that the change makes.
func TestAuthors_NET5_TheClusterVerifiesNames(t *testing.T) {
	env := kit.Cluster(t)
	namespace := env.Namespace(t)
	env.ShippedRoles(t, namespace)
	for _, user := range []string{"ada", "grace"} {
		_, err := env.Kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "authors-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	ada := env.As(t, "ada", "system:authenticated")
	kube, err := kubernetes.NewForConfig(ada)
	require.NoError(t, err)
	request := func(audiences ...string) error {
		_, err := kube.CoreV1().ServiceAccounts("bullpen-system").CreateToken(t.Context(), "bullpen-admin",
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
		return err
	}
	require.Eventually(t, func() bool { return request(adminapi.Audience) == nil }, 20*time.Second, 50*time.Millisecond, "the role takes effect")
	require.NoError(t, request(), "tokens for the cluster are not concerned")
	require.NoError(t, request(adminapi.Audience, adminapi.AudienceUser+"ada"))
	require.True(t, apierrors.IsForbidden(request(adminapi.Audience, adminapi.AudienceUser+"grace")))
	require.True(t, apierrors.IsForbidden(request(adminapi.AudienceUser+"ada", adminapi.AudienceUser+"grace")))

	// The server, with its own role, reads that the policy is enforced.
	authors, err := cluster.NewAuthors(cluster.AuthorsOptions{Config: env.As(t, serverUser, "system:serviceaccounts", "system:authenticated"), Policy: "bullpen-authors"})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		enforced, err := authors.Enforced(t.Context(), time.Now().Add(time.Hour))
		return err == nil && enforced
	}, 20*time.Second, 50*time.Millisecond)
	early, err := authors.Enforced(t.Context(), time.Unix(0, 0))
	require.NoError(t, err)
	require.False(t, early)

	admins := env.Client(t, v1alpha1.AddToScheme)
	pool := &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "linux"},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform: v1alpha1.PlatformLinux, Labels: []string{"linux-4"}, Template: v1alpha1.RunnerTemplate{Image: "none"},
			Resources: v1alpha1.RunnerResources{CPU: resource.MustParse("1"), Memory: resource.MustParse("1Gi")},
		},
	}
	require.NoError(t, admins.Create(t.Context(), pool))
	clients := map[string]client.Client{}
	for _, user := range []string{"ada", "grace"} {
		clients[user] = env.ClientAs(t, env.As(t, user, "system:authenticated"), v1alpha1.AddToScheme)
	}
	change := func(by string, intake v1alpha1.Intake, generation int64, name string) error {
		current := &v1alpha1.RunnerPool{}
		require.NoError(t, admins.Get(t.Context(), client.ObjectKeyFromObject(pool), current))
		next := current.DeepCopy()
		next.Spec.Intake = intake
		if name != "" {
			if next.Annotations == nil {
				next.Annotations = map[string]string{}
			}
			next.Annotations[v1alpha1.AnnotationChangedBy] = v1alpha1.ChangedBy(current.UID, current.Generation+generation, name)
		}
		return clients[by].Patch(await.Context(t), next, client.MergeFrom(current))
	}
	require.NoError(t, change("ada", v1alpha1.IntakePaused, 1, "ada"))
	require.NoError(t, change("grace", v1alpha1.IntakeOpen, 0, ""), "no name is needed, and an old one may stay")
	require.True(t, apierrors.IsForbidden(change("grace", v1alpha1.IntakePaused, 1, "ada")), "of another user")
	require.True(t, apierrors.IsForbidden(change("grace", v1alpha1.IntakePaused, 2, "grace")), "of a later change")
	require.True(t, apierrors.IsForbidden(change("grace", v1alpha1.IntakeOpen, 0, "ada")), "of the change that was")
	require.NoError(t, change("grace", v1alpha1.IntakePaused, 1, "grace"))
}
