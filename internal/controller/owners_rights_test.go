package controller_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
)

// NET-8: the API server accepts blockOwnerDeletion only from a client that may update the owner's finalizers. Each right to that stands for
// a kind of owner: without it the owner's dependents are refused.
func TestRoles_NET8_WhatBlocksItsOwnersDeletionNeedsTheOwnersFinalizers(t *testing.T) {
	env := kit.Cluster(t)
	admin, namespace := env.Client(t, v1alpha1.AddToScheme), env.Namespace(t)
	env.ShippedRoles(t, namespace)
	controller := env.ClientAs(t, env.As(t, controllerUser, "system:serviceaccounts", "system:authenticated"), v1alpha1.AddToScheme)
	create := func(owner schema.GroupVersionKind) error {
		return controller.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, GenerateName: "owned-",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "owner", UID: "a-uid"}, owner)},
		}}, client.DryRunAll)
	}
	kinds := map[string]schema.GroupVersionKind{
		"runnerdeployments/finalizers": v1alpha1.GroupVersion.WithKind(v1alpha1.KindRunnerDeployment),
		"runnerreplicasets/finalizers": v1alpha1.GroupVersion.WithKind(v1alpha1.KindRunnerReplicaSet),
		"runnersets/finalizers":        v1alpha1.GroupVersion.WithKind(v1alpha1.KindRunnerSet),
		"runners/finalizers":           v1alpha1.GroupVersion.WithKind(v1alpha1.KindRunner),
		"statefulsets/finalizers":      appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
	}
	for resource, kind := range kinds {
		require.Eventually(t, func() bool { return create(kind) == nil }, patience, interval, resource)
	}
	var role rbacv1.Role
	require.NoError(t, admin.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "bullpen-self-registering"}, &role))
	for i, rule := range role.Rules {
		role.Rules[i].Resources = slices.DeleteFunc(rule.Resources, func(resource string) bool { _, known := kinds[resource]; return known })
	}
	role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return len(rule.Resources) == 0 })
	require.NoError(t, admin.Update(t.Context(), &role))
	for resource, kind := range kinds {
		require.Eventually(t, func() bool { return apierrors.IsForbidden(create(kind)) }, patience, interval, resource)
	}
}

// A first installation creates runners at once. For an owner whose deletion is blocked, the API server looks up the kind in a list that may
// be half a minute old, and refuses what it does not find.
func TestRoles_ARunnerNeedsNoLookUpOfItsPoolsKind(t *testing.T) {
	env := kit.Cluster(t)
	namespace := env.Namespace(t)
	env.ShippedRoles(t, namespace)
	controller := env.ClientAs(t, env.As(t, controllerUser, "system:serviceaccounts", "system:authenticated"), v1alpha1.AddToScheme)
	pool := newPool(namespace, "first", 1)
	pool.UID = "a-uid"
	_, account, err := runnerpod.Build(pool, runnerpod.Options{DispatchURL: "http://server", AgentImage: "agent:1"}, "aaaaaaaa")
	require.NoError(t, err)
	account.OwnerReferences[0].Kind = "NotServedYet"
	create := func(object client.Object) error { return controller.Create(t.Context(), object, client.DryRunAll) }
	require.Eventually(t, func() bool { return create(account.DeepCopy()) == nil }, patience, interval)
	account.OwnerReferences[0].BlockOwnerDeletion = ptr.To(true)
	err = create(account.DeepCopy())
	require.True(t, apierrors.IsForbidden(err), "control: %v", err)
	require.ErrorContains(t, err, "NotServedYet")
}

// NET-8: an Event that occurs again is counted in the first one, which is a patch. A pool may write the same Event twice within minutes, or never.
func TestRoles_NET8_AnEventThatOccursAgainIsCounted(t *testing.T) {
	env := kit.Cluster(t)
	admin, namespace := env.Client(t, v1alpha1.AddToScheme, eventsv1.AddToScheme), env.Namespace(t)
	env.ShippedRoles(t, namespace)
	config := env.As(t, controllerUser, "system:serviceaccounts", "system:authenticated")
	controller := env.ClientAs(t, config, v1alpha1.AddToScheme, eventsv1.AddToScheme)
	pool := newPool(namespace, "recurring", 0)
	require.NoError(t, admin.Create(t.Context(), pool))
	var event *eventsv1.Event
	var refused error
	if !assert.Eventually(t, func() bool {
		event = &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "first"}, EventTime: metav1.NowMicro(),
			ReportingController: "bullpen.dev/test", ReportingInstance: "test-0", Action: "Test", Reason: "Test", Type: corev1.EventTypeNormal,
			Regarding: corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindRunnerPool, Namespace: namespace, Name: pool.Name},
		}
		refused = controller.Create(t.Context(), event)
		return refused == nil
	}, patience, interval, "the role takes effect") {
		t.Fatal(refused)
	}

	again := `{"series":{"count":2,"lastObservedTime":"2026-11-26T12:00:00.000000Z"}}`
	require.NoError(t, controller.Patch(t.Context(), event, client.RawPatch(types.MergePatchType, []byte(again))))
	require.EqualValues(t, 2, event.Series.Count)
	require.True(t, apierrors.IsForbidden(controller.Delete(t.Context(), event)))
}
