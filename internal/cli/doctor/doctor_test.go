package doctor

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/poolertest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

func TestDoctor_FindsNothingWhereNothingIsWrong(t *testing.T) {
	r := newSite(t).examine()
	require.Empty(t, r.Findings)
	require.Empty(t, r.Unchecked)
	require.Equal(t, []string{"GitHub", "database", "cluster"}, r.Checked)
	require.Equal(t, ExitFine, r.ExitCode())
}

func TestDoctor_App(t *testing.T) {
	t.Run("lacks a permission", func(t *testing.T) {
		s := newSite(t)
		s.github.SetRights(map[string]string{"actions": "write", "administration": "write", "organization_self_hosted_runners": "read"}, "workflow_job")
		s.finds("app-permission", "organization_self_hosted_runners", "needs write")
	})
	t.Run("lacks what repositories of users need", func(t *testing.T) {
		s := newSite(t)
		s.github.SetRights(map[string]string{"actions": "write", "organization_self_hosted_runners": "write"}, "workflow_job")
		r := s.examine()
		require.Equal(t, SeverityWarning, r.Findings[0].Severity)
		require.Equal(t, ExitFine, r.ExitCode())
		_, err := s.github.Install(standin.Installation{Account: "someone", Type: "User", Repositories: []string{"toy"}})
		require.NoError(t, err)
		s.finds("app-permission", "administration")
	})
	t.Run("has another key", func(t *testing.T) {
		s := newSite(t)
		_, key, err := standin.GenerateAppKey()
		require.NoError(t, err)
		s.look.GitHub.Key = key
		s.finds("key-refused", "App 1")
	})
	t.Run("is another one", func(t *testing.T) {
		s := newSite(t)
		s.look.GitHub.AppID = 2
		s.finds("key-refused", "App 2")
	})
	t.Run("has a key that is none", func(t *testing.T) {
		s := newSite(t)
		s.look.GitHub.Key = []byte(secret)
		s.finds("key-broken")
	})
	t.Run("is not told of jobs", func(t *testing.T) {
		s := newSite(t)
		s.github.SetRights(map[string]string{"actions": "write", "administration": "write", "organization_self_hosted_runners": "write"})
		s.finds("event-not-subscribed", "workflow_job")
	})
}

func TestDoctor_Webhooks(t *testing.T) {
	t.Run("of another secret", func(t *testing.T) {
		s := newSite(t)
		s.tell(s.hook, "another secret")
		s.finds("webhook-secret", "401")
	})
	t.Run("to a wrong path", func(t *testing.T) {
		s := newSite(t)
		s.tell(s.hook+"/elsewhere/webhooks/github", secret)
		s.finds("webhook-url", "404")
	})
	t.Run("to nobody", func(t *testing.T) {
		s := newSite(t)
		s.tell("http://127.0.0.1:1/webhooks/github", secret)
		s.finds("webhook-unreachable", "127.0.0.1:1")
	})
	t.Run("that are not signed", func(t *testing.T) {
		s := newSite(t)
		require.NoError(t, s.github.SetWebhook(s.hook, ""))
		s.finds("webhook-unsigned")
	})
	t.Run("that are not sent", func(t *testing.T) {
		s := newSite(t)
		require.NoError(t, s.github.SetWebhook("", secret))
		s.finds("webhook-missing")
		s.look.GitHub.Push = false
		require.Empty(t, s.examine().Findings, "a server that reads GitHub's list needs none")
	})
	t.Run("that arrive again", func(t *testing.T) {
		s := newSite(t)
		s.tell(s.hook, "another secret")
		require.NoError(t, s.github.SetWebhook(s.hook, secret))
		_, err := s.github.Install(standin.Installation{Account: "gamma", Repositories: []string{"lib"}})
		require.NoError(t, err)
		s.delivered(3)
		require.Empty(t, s.examine().Findings)
	})
}

func TestDoctor_Database(t *testing.T) {
	t.Run("is away", func(t *testing.T) {
		s := newSite(t)
		s.look.DatabaseURL = "postgres://bullpen:hidden@127.0.0.1:1/bullpen"
		f := s.finds("database-unreachable")
		require.NotContains(t, f.Sentence, "hidden")
	})
	t.Run("knows nothing of the ledger", func(t *testing.T) {
		s := newSite(t)
		s.look.DatabaseURL = postgrestest.NewDatabase(t, nil)
		s.finds("schema-behind", "is at 0")
		state, err := ledger.InspectSchema(t.Context(), s.look.DatabaseURL)
		require.NoError(t, err)
		require.Zero(t, state.Has, "a look changes nothing")
	})
	t.Run("was migrated by a newer version", func(t *testing.T) {
		s := newSite(t)
		postgrestest.Execute(t, s.look.DatabaseURL, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)")
		s.finds("schema-ahead", "newer")
	})
	t.Run("R14: holds webhooks from where the App is not installed", func(t *testing.T) {
		s := newSite(t)
		postgrestest.Execute(t, s.look.DatabaseURL, "INSERT INTO accounts (id, login, kind, installation_id, created_at, updated_at) VALUES (2, 'since', 'Organization', 43, now(), now())")
		postgrestest.Execute(t, s.look.DatabaseURL, `INSERT INTO uninstalled_owners VALUES (1, 'stranger', 'stranger/app', now()),
			(2, 'since', 'since/app', now()), (3, 'formerly', 'formerly/app', now() - interval '8 days')`)
		r := s.examine()
		require.Equal(t, []string{"owner-not-installed"}, codes(r), "%+v", r.Findings)
		f := r.Findings[0]
		require.Equal(t, "stranger", f.Subject)
		require.Equal(t, SeverityWarning, f.Severity)
		require.Contains(t, f.Sentence, "stranger/app")
		require.Contains(t, f.Remedy, "Install App")
	})
	t.Run("is behind a pooler that pools transactions", func(t *testing.T) {
		s := newSite(t)
		direct := s.look.DatabaseURL
		s.look.DatabaseURL = poolertest.Start(t, direct, poolertest.Options{}).URL(t, direct)
		r := s.examine()
		require.Equal(t, []string{"notifications-lost", "statements-not-prepared"}, codes(r))
		require.Equal(t, ExitErrors, r.ExitCode())
		require.Contains(t, r.Findings[0].Sentence, "BULLPEN_LISTEN_DATABASE_URL")
		s.look.ListenDatabaseURL = direct
		r = s.examine()
		require.Equal(t, []string{"statements-not-prepared"}, codes(r))
		require.Equal(t, ExitFine, r.ExitCode(), "it works")
	})
	t.Run("has no such role", func(t *testing.T) {
		s := newSite(t)
		at, err := url.Parse(s.look.DatabaseURL)
		require.NoError(t, err)
		at.Path = "/no_such_database"
		s.look.DatabaseURL = at.String()
		s.finds("database-unreachable")
	})
}

func TestDoctor_Clocks(t *testing.T) {
	s := newSite(t)
	s.lease(time.Now().Add(3 * time.Minute))
	s.look.Now = func() time.Time { return time.Now().Add(3 * time.Minute) }
	r := s.examine()
	var whose []string
	for _, f := range r.Findings {
		if f.Code == "clock-skew" {
			whose = append(whose, f.Subject)
			require.Equal(t, SeverityError, f.Severity)
			require.Contains(t, f.Sentence, "behind")
		}
	}
	require.Equal(t, []string{"GitHub", "the database"}, whose)
	s.look.Now = func() time.Time { return time.Now().Add(-25 * time.Second) }
	s.lease(time.Now())
	r = s.examine()
	require.Len(t, r.Findings, 2)
	require.Equal(t, SeverityWarning, r.Findings[0].Severity)
	require.Contains(t, r.Findings[0].Sentence, "ahead of")
}

func TestDoctor_Rights(t *testing.T) {
	for _, c := range []struct{ role, principal, lacks string }{
		{"bullpen-controller", "system:serviceaccount:bullpen-system:bullpen-controller", "delete pods"},
		{"bullpen-server", "system:serviceaccount:bullpen-system:bullpen-server", "patch pods"},
	} {
		t.Run(c.role, func(t *testing.T) {
			s := newSite(t)
			role := &rbacv1.Role{}
			at := client.ObjectKey{Namespace: s.look.Release.RunnerNamespace, Name: c.role}
			require.NoError(t, s.admin.Get(t.Context(), at, role))
			verb, _, _ := strings.Cut(c.lacks, " ")
			for i := range role.Rules {
				if role.Rules[i].Resources[0] == "pods" {
					role.Rules[i].Verbs = without(set(role.Rules[i].Verbs), map[string]bool{verb: true})
				}
			}
			require.NoError(t, s.admin.Update(t.Context(), role))
			require.Eventually(t, func() bool { return len(s.examine().Findings) > 0 }, patience, 100*time.Millisecond, "the authorizer learns of it")
			f := s.finds("rights-lacking", c.principal, c.lacks)
			require.Contains(t, f.Remedy, "--as="+c.principal)
		})
	}
}

func TestDoctor_WhatMayNotBeReadIsNotFine(t *testing.T) {
	s := newSite(t)
	s.look.Kubernetes = s.env.As(t, "nobody-special")
	r := s.examine()
	require.Empty(t, r.Findings)
	require.Equal(t, ExitUnchecked, r.ExitCode())
	var unchecked string
	for _, u := range r.Unchecked {
		unchecked += u.What + "\n"
		require.NotEmpty(t, u.Why)
		require.NotEmpty(t, u.Remedy)
	}
	for _, what := range []string{"definition", "the rights of the server and the controller", "whether a controller is running", "the pools", "the runners", "its nodes"} {
		require.Contains(t, unchecked, what)
	}
	s.look.Kubernetes, s.look.NoKubernetes = nil, "no kubeconfig"
	s.look.GitHub, s.look.NoGitHub = nil, "no App"
	s.look.DatabaseURL, s.look.NoDatabase = "", "no URL"
	r = s.examine()
	require.Len(t, r.Unchecked, 3)
	require.Empty(t, r.Checked)
	require.Equal(t, ExitUnchecked, r.ExitCode())
}

func TestDoctor_Definitions(t *testing.T) {
	s := newSite(t)
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	at := client.ObjectKey{Name: "machosts.bullpen.dev"}
	require.NoError(t, s.admin.Get(t.Context(), at, definition))
	whole := definition.DeepCopy()
	t.Cleanup(func() {
		now := definition.DeepCopy()
		if err := s.admin.Get(context.WithoutCancel(t.Context()), at, now); err == nil {
			whole.SetResourceVersion(now.GetResourceVersion())
			require.NoError(t, s.admin.Update(context.WithoutCancel(t.Context()), whole))
			return
		}
		whole.SetResourceVersion("")
		whole.SetUID("")
		require.NoError(t, s.admin.Create(context.WithoutCancel(t.Context()), whole))
	})
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	require.NoError(t, err)
	unstructured.RemoveNestedField(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "status", "properties", "conditions")
	require.NoError(t, unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"))
	require.NoError(t, s.admin.Patch(t.Context(), definition, client.MergeFrom(whole)))
	s.finds("definition-old", "machosts.bullpen.dev", "status.conditions")

	require.NoError(t, s.admin.Delete(t.Context(), definition))
	require.Eventually(t, func() bool { return s.admin.Get(t.Context(), at, definition.DeepCopy()) != nil }, patience, 50*time.Millisecond)
	s.finds("definition-missing", "machosts.bullpen.dev")
}

func TestDoctor_PodsRefused(t *testing.T) {
	t.Run("by a quota", func(t *testing.T) {
		s := newSite(t)
		require.NoError(t, s.admin.Create(t.Context(), &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.look.Release.RunnerNamespace, Name: "small"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
		}))
		require.Eventually(t, func() bool { return len(s.examine().Findings) > 0 }, patience, 100*time.Millisecond)
		require.Contains(t, s.finds("pods-refused", "linux", "small").Remedy, "ResourceQuota small has left: 0 of pods, of which a runner takes 1")
	})
	t.Run("by a limit range", func(t *testing.T) {
		s := newSite(t)
		require.NoError(t, s.admin.Create(t.Context(), &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.look.Release.RunnerNamespace, Name: "narrow"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
			}}},
		}))
		require.Eventually(t, func() bool { return len(s.examine().Findings) > 0 }, patience, 100*time.Millisecond)
		require.Contains(t, s.finds("pods-refused", "linux", "memory").Remedy, "container runner has 1Gi: lower spec.resources of the pool")
	})
	t.Run("by pod security", func(t *testing.T) {
		s := newSite(t)
		namespace := &corev1.Namespace{}
		require.NoError(t, s.admin.Get(t.Context(), client.ObjectKey{Name: s.look.Release.RunnerNamespace}, namespace))
		before := namespace.DeepCopy()
		namespace.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
		require.NoError(t, s.admin.Patch(t.Context(), namespace, client.MergeFrom(before)))
		s.change("linux", func(p *v1alpha1.RunnerPool) { p.Spec.Template.RunAsUser = ptr.To[int64](0) })
		require.Eventually(t, func() bool { return len(s.examine().Findings) > 0 }, patience, 100*time.Millisecond)
		f := s.finds("pods-refused", "linux", "PodSecurity")
		require.Contains(t, f.Remedy, "level restricted, and the pool's pods need baseline")
	})
	t.Run("and none is made by looking", func(t *testing.T) {
		s := newSite(t)
		s.examine()
		pods := &corev1.PodList{}
		require.NoError(t, s.admin.List(t.Context(), pods, client.InNamespace(s.look.Release.RunnerNamespace)))
		require.Empty(t, pods.Items)
	})
}

func TestDoctor_Controller(t *testing.T) {
	s := newSite(t)
	s.lease(time.Now().Add(-10 * time.Minute))
	s.finds("no-controller", "a controller", "10m0s")
	lease := s.examine()
	require.Len(t, lease.Findings, 1)
	s.removeLease()
	s.finds("no-controller")

	alone := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(alone.Close)
	s.look.Release.ControllerURL = alone.URL
	require.Empty(t, s.examine().Findings, "one that works alone takes no lease")
	alone.Close()
	s.finds("no-controller")
}

func TestDoctor_Pools(t *testing.T) {
	// later is when what a test has just done has gone on for a while.
	later := func(s *site) {
		s.look.Now = func() time.Time { return time.Now().Add(10 * time.Minute) }
		s.lease(s.look.Now())
	}
	// besides are the findings that do not come from looking later.
	besides := func(r Report) []Finding {
		var found []Finding
		for _, f := range r.Findings {
			if f.Code != "clock-skew" {
				found = append(found, f)
			}
		}
		return found
	}
	t.Run("two of one label after a rename", func(t *testing.T) {
		s := newSite(t)
		s.pool("renamed", "Linux-4", runnerpod.FinalizerPoolDrain)
		s.finds("label-conflict", "linux", "renamed")
	})
	t.Run("without the finalizer", func(t *testing.T) {
		s := newSite(t)
		s.pool("bare", "other")
		require.Empty(t, s.examine().Findings, "a controller may be about to put it there")
		later(s)
		found := besides(s.examine())
		require.Len(t, found, 1)
		require.Equal(t, "pool-unprotected", found[0].Code)
		require.Contains(t, found[0].Sentence, "bare")
	})
	for name, finalizers := range map[string][]string{
		"held by somebody else":     {"example.com/mine", runnerpod.FinalizerPoolDrain},
		"that nobody has let go of": {runnerpod.FinalizerPoolDrain},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			require.NoError(t, s.admin.Delete(t.Context(), s.pool("gone", "other", finalizers...)))
			require.Empty(t, s.examine().Findings, "it was deleted just now")
			later(s)
			found := besides(s.examine())
			require.Len(t, found, 1)
			require.Equal(t, "pool-undeletable", found[0].Code)
			require.Contains(t, found[0].Sentence, finalizers[0])
		})
	}
	t.Run("a runner that does not go", func(t *testing.T) {
		s := newSite(t)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: s.look.Release.RunnerNamespace, Name: "linux-stuck", Finalizers: []string{runnerpod.FinalizerSandbox},
				Labels: map[string]string{runnerpod.LabelRunner: "true", runnerpod.LabelPool: "linux"},
			},
			Spec: corev1.PodSpec{NodeName: "a-node-that-went", Containers: []corev1.Container{{Name: "runner", Image: "runner"}}},
		}
		require.NoError(t, s.admin.Create(t.Context(), pod))
		require.NoError(t, s.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(1)))
		later(s)
		found := besides(s.examine())
		require.Len(t, found, 1, "%+v", found)
		require.Equal(t, "pod-stuck", found[0].Code)
		require.Contains(t, found[0].Sentence, "a-node-that-went does not exist")
		require.Contains(t, found[0].Sentence, runnerpod.FinalizerSandbox)
	})
}

// Where one node of several is short of something, that is worth a word; where all are, nothing begins.
func TestExamine_PressureIsAnErrorWhereNoNodeIsLeft(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionUnknown}, {Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, Message: "9 % of it is free."},
	}}}
	for name, c := range map[string]struct {
		nodes map[string]bool
		want  Severity
		says  string
	}{
		"another is there":       {map[string]bool{"a": true, "b": true}, SeverityWarning, "so no runner is scheduled there: 9 % of it is free."},
		"the other is not ready": {map[string]bool{"a": true, "b": false}, SeverityError, "9 % of it is free; no other node is available."},
		"it is alone":            {map[string]bool{"a": true}, SeverityError, "The node a has DiskPressure"},
	} {
		r := Examine(Evidence{Cluster: &Cluster{NodesRead: true, Nodes: c.nodes, Pressures: pressuresOf(node)}})
		require.Len(t, r.Findings, 1, name)
		require.Equal(t, "node-pressure", r.Findings[0].Code)
		require.Equal(t, c.want, r.Findings[0].Severity, name)
		require.Contains(t, r.Findings[0].Sentence, c.says, name)
	}
}
