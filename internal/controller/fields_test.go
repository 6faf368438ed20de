package controller_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/test/kit"
)

func lasting(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// The fields that say how a pool scales and how long its runners live: what makes no sense is refused with a sentence
// that says what to do, and what makes sense is kept as it was written.
func TestRunnerPool_SCALE3_LimitsOutOfOrderAreRefusedWithASentence(t *testing.T) {
	env := kit.Cluster(t)
	admin, namespace := env.Client(t, v1alpha1.AddToScheme), env.Namespace(t)
	scaled := func(change func(*v1alpha1.Autoscaling)) func(*v1alpha1.RunnerPoolSpec) {
		return func(spec *v1alpha1.RunnerPoolSpec) {
			spec.Autoscaling = &v1alpha1.Autoscaling{Enabled: true, MinIdle: ptr.To[int32](2), MaxReplicas: ptr.To[int32](9)}
			change(spec.Autoscaling)
		}
	}
	pulls := func(most intstr.IntOrString) *v1alpha1.ImagePrepull {
		return &v1alpha1.ImagePrepull{Enabled: true, MaxConcurrentPulls: &most}
	}
	n := 0
	try := func(change func(*v1alpha1.RunnerPoolSpec)) (*v1alpha1.RunnerPool, error) {
		n++
		pool := newPool(namespace, fmt.Sprintf("fields-%d", n), 0)
		change(&pool.Spec)
		return pool, admin.Create(t.Context(), pool)
	}
	for name, c := range map[string]struct {
		spoil func(*v1alpha1.RunnerPoolSpec)
		want  string
	}{
		"more warm than there may be": {scaled(func(a *v1alpha1.Autoscaling) { a.MinIdle = ptr.To[int32](10) }), "raise maxReplicas, or lower minIdle"},
		"the former name":             {scaled(func(a *v1alpha1.Autoscaling) { a.MinIdle, a.MinWarm = nil, ptr.To[int32](2) }), "minWarm is now minIdle: rename it"},
		"no ceiling":                  {scaled(func(a *v1alpha1.Autoscaling) { a.MaxReplicas = nil }), "autoscaling requires maxReplicas"},
		"a ceiling of none":           {scaled(func(a *v1alpha1.Autoscaling) { a.MaxReplicas = ptr.To[int32](0) }), "greater than or equal to 1"},
		"fewer than none":             {scaled(func(a *v1alpha1.Autoscaling) { a.MinIdle = ptr.To[int32](-1) }), "greater than or equal to 0"},
		"cooldown":                    {scaled(func(a *v1alpha1.Autoscaling) { a.ScaleDownCooldown = lasting(-time.Second) }), "0s or greater, such as 5m"},
		"stabilization":               {scaled(func(a *v1alpha1.Autoscaling) { a.Stabilization = lasting(-time.Second) }), "from 0s to 1h"},
		"a long stabilization":        {scaled(func(a *v1alpha1.Autoscaling) { a.Stabilization = lasting(2 * time.Hour) }), "from 0s to 1h"},
		"idleTimeout":                 {func(s *v1alpha1.RunnerPoolSpec) { s.IdleTimeout = lasting(-1) }, "0s or greater, such as 12h"},
		"maxRunnerAge":                {func(s *v1alpha1.RunnerPoolSpec) { s.MaxRunnerAge = lasting(time.Second) }, "0s or at least 1m, such as 24h"},
		"a negative age":              {func(s *v1alpha1.RunnerPoolSpec) { s.MaxRunnerAge = lasting(-time.Hour) }, "0s or at least 1m"},
		"unschedulableTimeout": {func(s *v1alpha1.RunnerPoolSpec) {
			s.Provisioning.UnschedulableTimeout = lasting(-time.Second)
		}, "0s or greater, such as 15m"},
		"concurrent starts": {func(s *v1alpha1.RunnerPoolSpec) {
			s.Provisioning.MaxConcurrentStarts = ptr.To[int32](0)
		}, "greater than or equal to 1"},
		"no pull at all":  {func(s *v1alpha1.RunnerPoolSpec) { s.ImagePrepull = pulls(intstr.FromInt32(0)) }, "maxConcurrentPulls must be 1 or greater"},
		"a share of none": {func(s *v1alpha1.RunnerPoolSpec) { s.ImagePrepull = pulls(intstr.FromString("0%")) }, "or a percentage from 1% to 100%"},
		"images of virtual machines": {func(s *v1alpha1.RunnerPoolSpec) {
			s.Platform, s.ImagePrepull = v1alpha1.PlatformMacOS, &v1alpha1.ImagePrepull{Enabled: true}
		}, "imagePrepull is for platform linux"},
		"priority class": {func(s *v1alpha1.RunnerPoolSpec) { s.Template.PriorityClassName = "High Priority" }, "should match"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := try(c.spoil)
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, c.want)
		})
	}

	pool, err := try(func(s *v1alpha1.RunnerPoolSpec) { s.ImagePrepull = &v1alpha1.ImagePrepull{Enabled: true} })
	require.NoError(t, err)
	require.Equal(t, "25%", pool.Spec.ImagePrepull.MaxConcurrentPulls.StrVal)
	pool, err = try(scaled(func(a *v1alpha1.Autoscaling) { *a = v1alpha1.Autoscaling{Enabled: true, MaxReplicas: ptr.To[int32](1)} }))
	require.NoError(t, err)
	require.Nil(t, pool.Spec.Autoscaling.MinIdle, "the controller has its default, which the former name of a stored pool overrides")
	require.Equal(t, 5*time.Minute, pool.Spec.Autoscaling.ScaleDownCooldown.Duration)
	require.Equal(t, 3*time.Minute, pool.Spec.Autoscaling.Stabilization.Duration)
	require.Equal(t, 15*time.Minute, pool.Spec.Provisioning.UnschedulableTimeout.Duration)
	pool, err = try(scaled(func(a *v1alpha1.Autoscaling) {
		a.MinIdle, a.ScaleDownCooldown, a.Stabilization = ptr.To[int32](0), lasting(0), lasting(0)
	}))
	require.NoError(t, err, "scale to zero, and at once")
	require.Zero(t, *pool.Spec.Autoscaling.MinIdle)
	require.Zero(t, pool.Spec.Autoscaling.ScaleDownCooldown.Duration)
	off := []byte(`{"spec":{"autoscaling":{"enabled":false,"maxReplicas":null}}}`)
	require.NoError(t, admin.Patch(t.Context(), pool, client.RawPatch(types.MergePatchType, off)), "one that does not autoscale needs no ceiling")
}

// The columns of kubectl get: a pool's desired and actual runners, and in wide its problem.
func TestRunnerPool_ColumnsAPersonReads(t *testing.T) {
	b := newBench(t)
	b.pool("columns", 1)
	b.makeIdle(b.havePods("columns", 1)[0].Name)
	b.eventually("status", func() bool { return b.get("columns").Status.Idle == 1 })
	raw, err := b.env.Kube.Discovery().RESTClient().Get().AbsPath("/apis/bullpen.dev/v1alpha1/namespaces", b.namespace, "runnerpools/columns").
		SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").DoRaw(t.Context())
	require.NoError(t, err)
	var table metav1.Table
	require.NoError(t, json.Unmarshal(raw, &table))
	narrow, wide, cells := []string{}, []string{}, map[string]any{}
	for i, column := range table.ColumnDefinitions {
		cells[column.Name] = table.Rows[0].Cells[i]
		if column.Priority == 0 {
			narrow = append(narrow, column.Name)
		} else {
			wide = append(wide, column.Name)
		}
	}
	require.Equal(t, []string{"Name", "Label", "Desired", "Idle", "Busy", "Starting", "Available", "Age"}, narrow)
	require.Equal(t, []string{"Terminating", "Max", "Saturated", "Starved", "Intake", "Image", "Message"}, wide)
	require.Equal(t, []any{"columns-label", 1.0, 1.0, 0.0, 0.0, "True"},
		[]any{cells["Label"], cells["Desired"], cells["Idle"], cells["Busy"], cells["Starting"], cells["Available"]})
	require.Equal(t, "the pool matches its spec", cells["Message"])
}
