package controller_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
)

// A RunnerPool with bad fields is refused by the API server, with a sentence that says what to do.
func TestRunnerPool_BadFieldsAreRefusedWithASentence(t *testing.T) {
	env := kit.Cluster(t)
	admin, namespace := env.Client(t, v1alpha1.AddToScheme), env.Namespace(t)
	for name, c := range map[string]struct {
		spoil func(*v1alpha1.RunnerPool)
		want  string
	}{
		"platform":         {func(p *v1alpha1.RunnerPool) { p.Spec.Platform = "windows" }, `"linux", "macos"`},
		"no labels":        {func(p *v1alpha1.RunnerPool) { p.Spec.Labels = nil }, "labels"},
		"a reserved label": {func(p *v1alpha1.RunnerPool) { p.Spec.Labels = []string{"Self-Hosted", "mine"} }, "put a label of your own first"},
		"a label twice":    {func(p *v1alpha1.RunnerPool) { p.Spec.Labels = []string{"mine", "MINE"} }, "remove the duplicate"},
		"a label's form":   {func(p *v1alpha1.RunnerPool) { p.Spec.Labels = []string{"a,b"} }, "should match"},
		"no CPU":           {func(p *v1alpha1.RunnerPool) { p.Spec.Resources.CPU = resource.MustParse("0") }, "cpu must be greater than 0"},
		"memory's unit":    {func(p *v1alpha1.RunnerPool) { p.Spec.Resources.Memory = resource.MustParse("16") }, "include the unit"},
		"TEN-6 disk's unit": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Resources.EphemeralStorage = ptr.To(resource.MustParse("20"))
		}, "include the unit, such as 20Gi"},
		"TEN-6 less than no disk": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Resources.EphemeralStorage = ptr.To(resource.MustParse("-20Gi"))
		}, "at least 1Gi, or 0 for no limit"},
		"TEN-6 a Mac's disk": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Platform, p.Spec.Resources.EphemeralStorage = v1alpha1.PlatformMacOS, ptr.To(resource.MustParse("20Gi"))
		}, "the disk of its image"},
		"image":    {func(p *v1alpha1.RunnerPool) { p.Spec.Template.Image = "" }, "image"},
		"replicas": {func(p *v1alpha1.RunnerPool) { p.Spec.Replicas = ptr.To[int32](-1) }, "greater than or equal to 0"},
		"share":    {func(p *v1alpha1.RunnerPool) { p.Spec.Rollout.MaxUnavailable = ptr.To(intstr.FromString("110%")) }, "0% to 100%"},
		"surge":    {func(p *v1alpha1.RunnerPool) { p.Spec.Rollout.MaxSurge = ptr.To(intstr.FromInt32(-1)) }, "maxSurge must be 0 or greater"},
		"startTimeout": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Provisioning.StartTimeout = &metav1.Duration{Duration: -1}
		}, "0s or greater, such as 10m"},
		"queueing": {func(p *v1alpha1.RunnerPool) { p.Spec.Queueing = "LIFO" }, "FairShare"},
		"runner group": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Scope, p.Spec.RunnerGroup = v1alpha1.ScopeRepository, ptr.To(intstr.FromInt32(7))
		}, "remove runnerGroup"},
		"runner group 0":  {func(p *v1alpha1.RunnerPool) { p.Spec.RunnerGroup = ptr.To(intstr.FromInt32(0)) }, "at least 1"},
		"no runner group": {func(p *v1alpha1.RunnerPool) { p.Spec.RunnerGroup = ptr.To(intstr.FromString("")) }, "at least 1"},
		"a repository's group": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Scope, p.Spec.RunnerGroup = v1alpha1.ScopeRepository, ptr.To(intstr.FromString("builders"))
		}, "remove runnerGroup"},
		"grace": {func(p *v1alpha1.RunnerPool) { p.Spec.Template.TerminationGracePeriodSeconds = ptr.To[int64](5) }, "30"},
		"NET-3 mounts the token": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Template.VolumeMounts = []corev1.VolumeMount{{Name: runnerpod.VolumeToken, MountPath: "/x"}}
		}, "contain the pod's credentials"},
		"NET-3 projects a token": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Template.Volumes = []corev1.Volume{{Name: "mine", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}}
		}, "can contain a ServiceAccount token"},
		"NET-7 dind without a microVM": {func(p *v1alpha1.RunnerPool) { p.Spec.Template.Dind = &v1alpha1.Dind{} }, "set runtimeClassName"},
		"NET-7 dind with the default runtime": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Template.Dind, p.Spec.Template.RuntimeClassName = &v1alpha1.Dind{}, ptr.To("")
		}, "set runtimeClassName"},
		"dind on a Mac": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Platform, p.Spec.Template.Dind, p.Spec.Template.RuntimeClassName = v1alpha1.PlatformMacOS, &v1alpha1.Dind{}, ptr.To("kata")
		}, "for runners of platform linux"},
		"a runtime class on a Mac": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Platform, p.Spec.Template.RuntimeClassName = v1alpha1.PlatformMacOS, ptr.To("kata")
		}, "runtimeClassName is for platform linux"},
		"volumes on a Mac": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Platform = v1alpha1.PlatformMacOS
			p.Spec.Template.Volumes = []corev1.Volume{{Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}, "add the files that jobs need to the image"},
		"half a CPU on a Mac": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Platform, p.Spec.Resources.CPU = v1alpha1.PlatformMacOS, resource.MustParse("3500m")
		}, "whole number for platform macos"},
		"dind without room": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Template.RuntimeClassName = ptr.To("kata")
			p.Spec.Template.Dind = &v1alpha1.Dind{Storage: ptr.To(resource.MustParse("20"))}
		}, "include the unit, such as 20Gi"},
		"too old at once": {func(p *v1alpha1.RunnerPool) { p.Spec.MaxRunnerAge = &metav1.Duration{Duration: 10 * time.Minute} }, "raise maxRunnerAge"},
		"another system": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Template.NodeSelector = map[string]string{corev1.LabelOSStable: "darwin"}
		}, "template.nodeSelector contradicts platform"},
		"POOL-9 tolerates for a while": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Template.Tolerations = []corev1.Toleration{{
				Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300),
			}}
		}, "tolerationSeconds is not allowed"},
		"our volume":   {func(p *v1alpha1.RunnerPool) { p.Spec.Template.Volumes = []corev1.Volume{{Name: "bullpen-x"}} }, "choose another name"},
		"our variable": {func(p *v1alpha1.RunnerPool) { p.Spec.Template.Env = []corev1.EnvVar{{Name: "BULLPEN_X"}} }, "choose other names"},
		"a long name":  {func(p *v1alpha1.RunnerPool) { p.Name = strings.Repeat("a", 51) }, "choose a shorter name"},
		"a dotted one": {func(p *v1alpha1.RunnerPool) { p.Name = "a.b" }, "remove the dots"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := newPool(namespace, "bad", 1)
			c.spoil(pool)
			err := admin.Create(t.Context(), pool)
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestRunnerPool_TEN6_ItsDiskIsAQuantityOrNoneAtAll(t *testing.T) {
	env := kit.Cluster(t)
	admin, namespace := env.Client(t, v1alpha1.AddToScheme), env.Namespace(t)
	for name, size := range map[string]string{"none": "0", "least": "1Gi", "more": "250G"} {
		pool := newPool(namespace, name, 1)
		pool.Spec.Resources.EphemeralStorage = ptr.To(resource.MustParse(size))
		require.NoError(t, admin.Create(t.Context(), pool), name)
	}
	pool := newPool(namespace, "unsaid", 1)
	require.NoError(t, admin.Create(t.Context(), pool))
	require.Nil(t, pool.Spec.Resources.EphemeralStorage, "the controller's default, because a pool for Macs must not have it")
}

// The pools that people start from are what the API server takes, and what pods are made from.
func TestRunnerPool_TheExamplesAreGood(t *testing.T) {
	env := kit.Cluster(t)
	admin, namespace := env.Client(t, v1alpha1.AddToScheme), env.Namespace(t)
	for _, name := range []string{"pool.yaml", "macos-pool.yaml"} {
		data, err := os.ReadFile(filepath.Join("../../examples", name))
		require.NoError(t, err)
		pool := &v1alpha1.RunnerPool{}
		require.NoError(t, yaml.UnmarshalStrict(data, pool), name)
		pool.Namespace, pool.Finalizers = namespace, nil
		require.NoError(t, admin.Create(t.Context(), pool), name)
		_, _, err = runnerpod.Build(pool, runnerpod.Options{DispatchURL: "http://server", AgentImage: "agent:1"}, "aaaaaaaa")
		require.NoError(t, err, name)
	}
}

func TestRunnerPool_DefaultsAreVisibleAndAnExplicitZeroStays(t *testing.T) {
	env := kit.Cluster(t)
	admin, namespace := env.Client(t, v1alpha1.AddToScheme), env.Namespace(t)
	pool := newPool(namespace, "defaults", 0)
	pool.Spec.Provisioning.StartTimeout = &metav1.Duration{}
	pool.Spec.Rollout.MaxUnavailable = ptr.To(intstr.FromInt32(0))
	pool.Spec.Template.RunAsUser = ptr.To[int64](0)
	require.NoError(t, admin.Create(t.Context(), pool))
	require.Zero(t, *pool.Spec.Replicas)
	require.Zero(t, pool.Spec.Provisioning.StartTimeout.Duration)
	require.Equal(t, "0", pool.Spec.Rollout.MaxUnavailable.String())
	require.Zero(t, *pool.Spec.Template.RunAsUser)

	pool = newPool(namespace, "more-defaults", 0)
	pool.Spec.Replicas = nil
	require.NoError(t, admin.Create(t.Context(), pool))
	require.EqualValues(t, 1, *pool.Spec.Replicas)
	require.Equal(t, "10m0s", pool.Spec.Provisioning.StartTimeout.Duration.String())
	require.Equal(t, "5%", pool.Spec.Rollout.MaxUnavailable.String())
	require.EqualValues(t, runnerpod.DefaultGraceSeconds, *pool.Spec.Template.TerminationGracePeriodSeconds)
	require.EqualValues(t, runnerpod.DefaultRunAsUser, *pool.Spec.Template.RunAsUser)
	require.Equal(t, v1alpha1.QueueingFIFO, pool.Spec.Queueing)
	require.Equal(t, v1alpha1.ScopeOrganization, pool.Spec.Scope)
	require.Equal(t, intstr.FromInt32(1), *pool.Spec.RunnerGroup)

	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"platform":"macos"}}`))
	require.ErrorContains(t, admin.Patch(t.Context(), pool, patch), "platform cannot be changed")
}

// NET-8: each component may do what it does, and nothing that would break a rule if it were taken over.
func TestRoles_NET8_AreLeastPrivilege(t *testing.T) {
	env := kit.Cluster(t)
	admin, namespace := env.Client(t, v1alpha1.AddToScheme), env.Namespace(t)
	env.ShippedRoles(t, namespace)
	server := env.ClientAs(t, env.As(t, "system:serviceaccount:bullpen-system:bullpen-server", "system:serviceaccounts", "system:authenticated"), v1alpha1.AddToScheme)
	controller := env.ClientAs(t, env.As(t, controllerUser, "system:serviceaccounts", "system:authenticated"), v1alpha1.AddToScheme)
	pool := newPool(namespace, "roles", 0)
	require.NoError(t, admin.Create(t.Context(), pool))
	pod, account, err := runnerpod.Build(pool, runnerpod.Options{DispatchURL: "http://server", AgentImage: "agent:1"}, "aaaaaaaa")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return controller.Create(t.Context(), account.DeepCopy()) == nil }, patience, interval, "the role takes effect")
	require.NoError(t, controller.Create(t.Context(), pod))

	label := func() client.Patch {
		return client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+runnerpod.LabelOwner+`":"acme"}}}`))
	}
	access := func() *authorizationv1.SubjectAccessReview {
		return &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "x", ResourceAttributes: &authorizationv1.ResourceAttributes{Group: "bullpen.dev", Resource: "accounts", Verb: "list"},
		}}
	}
	require.NoError(t, server.Create(t.Context(), access()), "who may use the admin API is asked of the cluster")
	people := env.ClientAs(t, env.As(t, "system:serviceaccount:bullpen-system:bullpen-admin", "system:serviceaccounts", "system:authenticated"), v1alpha1.AddToScheme)
	require.NoError(t, server.Patch(t.Context(), pod.DeepCopy(), label()))
	for what, err := range map[string]error{
		"EXCL-2 the server deletes a pod":          server.Delete(t.Context(), pod.DeepCopy()),
		"the server deletes a ServiceAccount":      server.Delete(t.Context(), account.DeepCopy()),
		"the server creates a pod":                 server.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"}}),
		"the server changes a pool":                server.Patch(t.Context(), pool.DeepCopy(), label()),
		"the server reads Secrets":                 server.List(t.Context(), &corev1.SecretList{}, client.InNamespace(namespace)),
		"the server looks outside":                 server.List(t.Context(), &corev1.PodList{}, client.InNamespace("default")),
		"the server reads nodes":                   server.List(t.Context(), &corev1.NodeList{}),
		"the server changes a role":                server.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "x"}}),
		"the server makes a token":                 server.SubResource("token").Create(t.Context(), account.DeepCopy(), &authenticationv1.TokenRequest{}),
		"the controller asks what others may do":   controller.Create(t.Context(), access()),
		"an administrator reads pods":              people.List(t.Context(), &corev1.PodList{}, client.InNamespace(namespace)),
		"an administrator changes a pool":          people.Patch(t.Context(), pool.DeepCopy(), label()),
		"an administrator reads Secrets":           people.List(t.Context(), &corev1.SecretList{}, client.InNamespace("bullpen-system")),
		"the controller changes a node":            controller.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, label()),
		"the controller deletes a node":            controller.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x"}}),
		"the controller patches a ServiceAccount":  controller.Patch(t.Context(), account.DeepCopy(), label()),
		"the controller patches pods elsewhere":    controller.Patch(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}}, label()),
		"the controller writes a pod's status":     controller.Status().Patch(t.Context(), pod.DeepCopy(), label()),
		"the controller deletes a pool":            controller.Delete(t.Context(), pool.DeepCopy()),
		"the controller reads Secrets elsewhere":   controller.List(t.Context(), &corev1.SecretList{}, client.InNamespace("bullpen-system")),
		"the controller deletes pods elsewhere":    controller.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace("default")),
		"the controller deletes pods collectively": controller.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(namespace)),
	} {
		require.True(t, apierrors.IsForbidden(err), "%s: %v", what, err)
	}
	require.NoError(t, controller.List(t.Context(), &corev1.NodeList{}), "nodes of the whole cluster")
	require.NoError(t, controller.List(t.Context(), &nodev1.RuntimeClassList{}))
	require.NoError(t, controller.Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	// EXCL-7: what it may do to a busy runner it does with a proof, which the audit log repeats.
	require.True(t, apierrors.IsForbidden(controller.Delete(t.Context(), pod.DeepCopy())))
	proof := `{"metadata":{"annotations":{"` + runnerpod.AnnotationAllowDeletion + `":"node gone; registration gone"}}}`
	require.NoError(t, controller.Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, []byte(proof))))
	require.NoError(t, controller.Delete(t.Context(), pod))
	require.NoError(t, controller.Delete(t.Context(), account))
}

// Fields that resemble those contradictions and are none.
func TestRunnerPool_FieldsThatAgreeAreAccepted(t *testing.T) {
	env := kit.Cluster(t)
	admin, namespace := env.Client(t, v1alpha1.AddToScheme), env.Namespace(t)
	pool := newPool(namespace, "agrees", 0)
	pool.Spec.MaxRunnerAge = &metav1.Duration{Duration: 10*time.Minute + time.Second}
	template := &pool.Spec.Template
	template.NodeSelector = map[string]string{corev1.LabelOSStable: "linux"}
	template.Volumes, template.VolumeMounts = []corev1.Volume{{Name: "cache"}}, []corev1.VolumeMount{{Name: "cache", MountPath: "/cache"}}
	template.Tolerations = []corev1.Toleration{{Key: "ci", Operator: corev1.TolerationOpExists}}
	template.RuntimeClassName, template.Dind = ptr.To("kata"), &v1alpha1.Dind{}
	pool.Spec.Rollout.MaxUnavailable, pool.Spec.Rollout.MaxSurge = ptr.To(intstr.FromInt32(0)), ptr.To(intstr.FromString("0%"))
	require.NoError(t, admin.Create(t.Context(), pool), "a roll always moves at least one")
	require.Equal(t, runnerpod.DefaultDindImage, pool.Spec.Template.Dind.Image)
	require.Equal(t, runnerpod.DefaultDindStorage, pool.Spec.Template.Dind.Storage.String())
	pool = newPool(namespace, "any-age", 0)
	pool.Spec.MaxRunnerAge = &metav1.Duration{}
	require.NoError(t, admin.Create(t.Context(), pool))
}

// The scale subresource is what kubectl scale and a HorizontalPodAutoscaler use.
func TestRunnerPool_ScaleSubresource(t *testing.T) {
	b := newBench(t)
	pool := b.pool("scaled", 1)
	b.havePods("scaled", 1)
	b.eventually("status", func() bool { return b.get("scaled").Status.Replicas == 1 })
	scale := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":3}}`))
	require.NoError(t, b.admin.SubResource("scale").Patch(t.Context(), pool, scale))
	b.havePods("scaled", 3)
}
