package poolcheck_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/examples"
	"github.com/bullpen-ci/bullpen/internal/dev/onebox/poolcheck"
)

// pool is the example with some text replaced.
func pool(t *testing.T, replace ...string) *unstructured.Unstructured {
	t.Helper()
	text := string(examples.Pool())
	for i := 0; i < len(replace); i += 2 {
		require.Contains(t, text, replace[i])
		text = strings.Replace(text, replace[i], replace[i+1], 1)
	}
	object := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &object))
	return &unstructured.Unstructured{Object: object}
}

func TestCheck_TheExampleIsValid(t *testing.T) {
	one := pool(t)
	before := one.DeepCopy()
	problems, err := poolcheck.Check(t.Context(), one)
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, before, one, "it is not changed")
}

func TestCheck_NamesTheField(t *testing.T) {
	for name, c := range map[string]struct {
		replace []string
		says    string
	}{
		"a field that is misspelt":   {[]string{"replicas: 4", "replica: 4"}, "unknown field spec.replica (did you mean replicas?)"},
		"an unknown field":           {[]string{"replicas: 4", "colour: red"}, "unknown field spec.colour"},
		"one below":                  {[]string{"image: bullpen", "imag: bullpen"}, "unknown field spec.template.imag (did you mean image or imagePullSecrets?)"},
		"a wrong type":               {[]string{"replicas: 4", "replicas: many"}, "spec.replicas"},
		"a value that is not listed": {[]string{"platform: linux", "platform: windows"}, "spec.platform"},
		"a number out of its range":  {[]string{"replicas: 4", "replicas: -1"}, "spec.replicas"},
		"a rule of the definition":   {[]string{"labels: [bullpen]", "labels: [self-hosted]"}, "spec.labels"},
		"a name that is none":        {[]string{"name: default", "name: Linux Pool"}, "metadata.name"},
		"no labels":                  {[]string{"labels: [bullpen]", "labels: []"}, "spec.labels"},
	} {
		t.Run(name, func(t *testing.T) {
			problems, err := poolcheck.Check(t.Context(), pool(t, c.replace...))
			require.NoError(t, err)
			require.NotEmpty(t, problems)
			require.Contains(t, strings.Join(problems, "; "), c.says)
		})
	}
}
