package runnerpod

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// marks are what tools write on the objects that they apply.
func marks() map[string]string {
	return map[string]string{
		"argocd.argoproj.io/instance": "ci", "argocd.argoproj.io/tracking-id": "ci:bullpen.dev/RunnerPool:runners/linux", "argocd.argoproj.io/installation-id": "x",
		"kustomize.toolkit.fluxcd.io/name": "ci", "kustomize.toolkit.fluxcd.io/namespace": "flux-system", "helm.toolkit.fluxcd.io/name": "ci",
		"meta.helm.sh/release-name": "ci", "meta.helm.sh/release-namespace": "ci", "helm.sh/chart": "ci-1.0.0", "app.kubernetes.io/managed-by": "Helm",
		"kapp.k14s.io/app": "1", "objectset.rio.cattle.io/hash": "1", "config.k8s.io/owning-inventory": "1",
		"kubectl.kubernetes.io/last-applied-configuration": "{}",
	}
}

func marksAnd(more string) map[string]string {
	all := marks()
	all[more] = "theirs"
	return all
}

// RUN-9: a tool deletes what carries its mark and is not in its source. Nothing that is made for a pool or a runner carries one.
func TestBuild_RUN9_NoObjectIsMarkedAsATools(t *testing.T) {
	pool := testPool()
	pool.Labels, pool.Annotations = marksAnd("app.kubernetes.io/instance"), marksAnd("argocd.argoproj.io/sync-wave")
	pod, account, err := Build(pool, testOptions, "abcd1234")
	require.NoError(t, err)
	unmarked, _, err := Build(testPool(), testOptions, "abcd1234")
	require.NoError(t, err)
	require.Equal(t, unmarked.ObjectMeta, pod.ObjectMeta)
	for _, given := range []map[string]string{pod.Labels, pod.Annotations, account.Labels, account.Annotations} {
		for key := range given {
			require.False(t, OwnershipMark(key), key)
			require.NotEqual(t, "theirs", given[key])
		}
	}

	made, err := BuildRegistered(registered(registeredSpec(func(s *v1alpha1.RunnerSpec) {
		s.Template.Labels, s.Template.Annotations = marksAnd("team"), marksAnd("sidecar.istio.io/inject")
	})), testOptions)
	require.NoError(t, err)
	for _, given := range []map[string]string{made.Labels, made.Annotations} {
		for key := range given {
			require.False(t, OwnershipMark(key), key)
		}
	}
	require.Equal(t, "theirs", made.Labels["team"], "what a person wants on the pod is there")
	require.Equal(t, "theirs", made.Annotations["sidecar.istio.io/inject"])
}

func TestWithoutOwnershipMarks_RUN9_ChangesNothingThatItIsGiven(t *testing.T) {
	given := marksAnd("team")
	before := maps.Clone(given)
	require.Equal(t, map[string]string{"team": "theirs"}, WithoutOwnershipMarks(given))
	require.Equal(t, before, given)
	require.Nil(t, WithoutOwnershipMarks(nil))
}
