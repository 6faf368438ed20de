package onebox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/charts"
)

func TestDefaultPool(t *testing.T) {
	pools, err := LoadPools("", 7)
	require.NoError(t, err)
	require.Len(t, pools, 1)
	replicas, _, err := unstructured.NestedInt64(pools[0].Object, "spec", "replicas")
	require.NoError(t, err)
	require.EqualValues(t, 7, replicas)
	require.Equal(t, RunnerNamespace, pools[0].GetNamespace())
	require.Equal(t, fieldManager, pools[0].GetLabels()[labelManagedBy])
}

func TestPoolFiles(t *testing.T) {
	const good = "apiVersion: bullpen.dev/v1alpha1\nkind: RunnerPool\nmetadata: {name: a}\n" +
		"spec: {platform: linux, labels: [a], replicas: 1, resources: {cpu: 1, memory: 1Gi}, template: {image: bullpen}}\n"
	for name, test := range map[string]struct{ content, says string }{
		"two pools":                {content: good + "---\n" + strings.ReplaceAll(good, "name: a", "name: b")},
		"not YAML":                 {"a: [", "is not YAML"},
		"nothing":                  {"# later\n", "has no RunnerPool"},
		"another kind":             {good + "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\n", `document 2 is no RunnerPool: kind is "Pod"`},
		"another version":          {strings.ReplaceAll(good, "v1alpha1", "v9"), "want RunnerPool and bullpen.dev/v1alpha1"},
		"no name":                  {strings.ReplaceAll(good, "name: a", "labels: {}"), "metadata.name is required"},
		"elsewhere":                {strings.ReplaceAll(good, "name: a", "name: a, namespace: default"), "it must be bullpen-runners"},
		"a field that is misspelt": {strings.ReplaceAll(good, "replicas", "replica"), "invalid RunnerPool a: unknown field spec.replica (did you mean replicas?)"},
		"a label that is reserved": {strings.ReplaceAll(good, "labels: [a]", "labels: [self-hosted]"), "spec.labels"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pool.yaml")
			require.NoError(t, os.WriteFile(file, []byte(test.content), 0o600))
			pools, err := LoadPools(file, 0)
			if test.says != "" {
				require.ErrorContains(t, err, test.says)
				return
			}
			require.NoError(t, err)
			require.Len(t, pools, 2)
		})
	}
	_, err := LoadPools(filepath.Join(t.TempDir(), "none.yaml"), 0)
	require.ErrorContains(t, err, "reading --pool-file")
}

func FuzzDecodePools(f *testing.F) {
	f.Add([]byte("apiVersion: bullpen.dev/v1alpha1\nkind: RunnerPool\nmetadata: {name: a}\n"))
	f.Add([]byte("---\n---\n"))
	f.Add([]byte("kind: [1]\nmetadata: 3\n"))
	f.Add([]byte(`{"apiVersion": 1}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		pools, err := decodePools("a file", content)
		if err == nil {
			require.NotEmpty(t, pools)
		}
		for _, pool := range pools {
			require.NotEmpty(t, pool.GetName())
		}
	})
}

// The controller is started when every kind is served, not the first alone.
func TestDefinedKinds_AreAllThatTheChartBrings(t *testing.T) {
	files, err := charts.CRDs()
	require.NoError(t, err)
	var kinds []string
	for _, file := range files {
		objects, err := decodeAll(file.Content)
		require.NoError(t, err)
		for _, kind := range definedKinds(objects) {
			require.Equal(t, v1alpha1.GroupVersion, kind.GroupVersion())
			kinds = append(kinds, kind.Kind)
		}
	}
	require.ElementsMatch(t, []string{"MacHost", "RunnerPool", "Runner", "RunnerReplicaSet", "RunnerDeployment", "RunnerSet"}, kinds)
}

// A pool that the API server would refuse is refused before one is started.
func TestLoadPools_RefusesWhatTheAPIServerWould(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pools.yaml")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: bullpen.dev/v1alpha1\nkind: RunnerPool\nmetadata: {name: linux}\nspec: {replica: 1}\n"), 0o600))
	_, err := LoadPools(file, 0)
	require.ErrorContains(t, err, "--pool-file "+file+": invalid RunnerPool linux: unknown field spec.replica (did you mean replicas?)")
}
