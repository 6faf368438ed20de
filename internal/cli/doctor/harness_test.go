package doctor

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Run(func() int { return kit.Main(m) })) }

const secret = "the secret of the webhooks"

// patience bounds what is waited for, and each question, on a machine that has much else to do.
const patience = time.Minute

// site is a set-up that is as it should be, until a test breaks it: GitHub's stand-in, PostgreSQL, and a control plane under the
// chart's roles.
type site struct {
	t      *testing.T
	env    *kit.Env
	admin  client.WithWatch
	github *standin.Local
	hook   string
	look   Look
}

func newSite(t *testing.T) *site {
	env := kit.Cluster(t)
	s := &site{t: t, env: env, admin: env.Client(t, v1alpha1.AddToScheme)}
	namespace := env.Namespace(t)
	env.ShippedRoles(t, namespace)
	receiver := httptest.NewServer(http.HandlerFunc(receive))
	t.Cleanup(receiver.Close)
	s.hook = receiver.URL + "/webhooks/github"
	local, err := standin.Start(t.Context(), standin.Options{
		WebhookURL: s.hook, WebhookSecret: secret, WebhookTimeout: patience,
		Installations: []standin.Installation{{ID: 42, Account: "acme", Repositories: []string{"app"}}},
	})
	require.NoError(t, err)
	t.Cleanup(local.Close)
	s.github = local
	s.look = Look{
		Timeout:     patience,
		GitHub:      &GitHubAccess{URL: local.URL + "/api/v3", AppID: 1, Key: local.AppKeyPEM, Push: true},
		DatabaseURL: postgrestest.NewDatabase(t, ledger.Migrate),
		Kubernetes:  env.Config,
		Release:     Installation{SystemNamespace: kit.SystemNamespace, RunnerNamespace: namespace},
	}
	s.delivered(1)
	s.pool("linux", "linux-4", runnerpod.FinalizerPoolDrain)
	s.lease(time.Now().Add(patience)) // however long the test takes
	return s
}

// receive is what the server does with a webhook, as far as GitHub sees it.
func receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	switch {
	case r.URL.Path != "/webhooks/github":
		w.WriteHeader(http.StatusNotFound)
	case err != nil || github.VerifySignature(secret, r.Header.Get(github.HeaderSignature), body) != nil:
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// delivered waits until GitHub has attempted that many webhooks.
func (s *site) delivered(count int) {
	s.t.Helper()
	asApp, err := github.New(github.Options{BaseURL: s.github.URL + "/api/v3", AppID: 1, PrivateKey: s.github.AppKeyPEM})
	require.NoError(s.t, err)
	require.Eventually(s.t, func() bool {
		page, err := asApp.DeliveryPage(s.t.Context(), "", "")
		return err == nil && len(page.Deliveries) >= count
	}, patience, 20*time.Millisecond)
}

// tell has GitHub send one more webhook, to its configured URL.
func (s *site) tell(url, signedWith string) {
	s.t.Helper()
	require.NoError(s.t, s.github.SetWebhook(url, signedWith))
	_, err := s.github.Install(standin.Installation{Account: "beta", Repositories: []string{"lib"}})
	require.NoError(s.t, err)
	s.delivered(2)
}

// pool creates one with no replicas.
func (s *site) pool(name, label string, finalizers ...string) *v1alpha1.RunnerPool {
	s.t.Helper()
	pool := &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.look.Release.RunnerNamespace, Name: name, Finalizers: finalizers},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform: v1alpha1.PlatformLinux, Labels: []string{label}, Replicas: ptr.To[int32](1),
			Resources: v1alpha1.RunnerResources{CPU: resource.MustParse("1"), Memory: resource.MustParse("1Gi")},
			Template:  v1alpha1.RunnerTemplate{Image: "runner"},
		},
	}
	require.NoError(s.t, s.admin.Create(s.t.Context(), pool))
	ctx := context.WithoutCancel(s.t.Context())
	s.t.Cleanup(func() { // or the namespace would not go
		if s.admin.Get(ctx, client.ObjectKeyFromObject(pool), pool) == nil {
			pool.Finalizers = nil
			_ = s.admin.Update(ctx, pool) // it may be gone by now
		}
	})
	return pool
}

// change edits a pool.
func (s *site) change(name string, edit func(*v1alpha1.RunnerPool)) {
	s.t.Helper()
	pool := &v1alpha1.RunnerPool{}
	require.NoError(s.t, s.admin.Get(s.t.Context(), client.ObjectKey{Namespace: s.look.Release.RunnerNamespace, Name: name}, pool))
	base := pool.DeepCopy()
	edit(pool)
	require.NoError(s.t, s.admin.Patch(s.t.Context(), pool, client.MergeFrom(base)))
}

func (s *site) lease(renewed time.Time) {
	s.t.Helper()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: kit.SystemNamespace, Name: leaseName},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a controller"), RenewTime: ptr.To(metav1.NewMicroTime(renewed)), LeaseDurationSeconds: ptr.To[int32](15)},
	}
	s.remake(lease)
}

// remake puts an object in the place of whatever has its name.
func (s *site) remake(object client.Object) {
	s.t.Helper()
	s.remove(object)
	object.SetResourceVersion("")
	object.SetUID("")
	require.NoError(s.t, s.admin.Create(s.t.Context(), object))
}

func (s *site) remove(object client.Object) {
	s.t.Helper()
	if err := s.admin.Delete(s.t.Context(), object.DeepCopyObject().(client.Object)); !apierrors.IsNotFound(err) {
		require.NoError(s.t, err)
	}
}

// examine runs the doctor on the site.
func (s *site) examine() Report {
	s.t.Helper()
	return Examine(Gather(s.t.Context(), s.look))
}

// codes of what is found, each once and ordered.
func codes(r Report) []string {
	var found []string
	for _, f := range r.Findings {
		found = append(found, f.Code)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// finds requires exactly one problem, and that everything was checked.
func (s *site) finds(code string, says ...string) Finding {
	s.t.Helper()
	r := s.examine()
	require.Empty(s.t, r.Unchecked)
	require.Equal(s.t, []string{code}, codes(r), "%+v", r.Findings)
	f := r.Findings[0]
	require.Equal(s.t, SeverityError, f.Severity)
	require.Equal(s.t, ExitErrors, r.ExitCode())
	require.NotEmpty(s.t, f.Remedy)
	for _, word := range says {
		require.Contains(s.t, f.Sentence, word)
	}
	require.NotContains(s.t, f.Sentence+f.Remedy, secret)
	return f
}

func (s *site) removeLease() {
	s.t.Helper()
	s.remove(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kit.SystemNamespace, Name: leaseName}})
}

func set(names []string) map[string]bool {
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	return all
}
