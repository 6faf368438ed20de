package arcmigration_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/internal/cli/arcmigration"
	"github.com/bullpen-ci/bullpen/test/kit"
)

// server takes what was made, as kubectl apply would send it: a field that it does not know is refused, not pruned.
type server struct {
	client    client.Client
	namespace string
}

func newServer(t testing.TB) *server {
	env := kit.Cluster(t)
	return &server{client: env.Client(t), namespace: env.Namespace(t)}
}

func (s *server) create(t testing.TB, text string) (taken int) {
	t.Helper()
	for _, document := range strings.Split(text, "\n---\n") {
		object := &unstructured.Unstructured{}
		require.NoError(t, sigsyaml.Unmarshal([]byte(document), &object.Object), document)
		require.Equal(t, s.namespace, object.GetNamespace())
		err := s.client.Create(t.Context(), object, &client.CreateOptions{Raw: &metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}})
		if apierrors.IsAlreadyExists(err) {
			continue // of another example
		}
		require.NoError(t, err, "%s", document)
		taken++
		require.NoError(t, s.client.Delete(t.Context(), object))
	}
	return taken
}

// What is converted is what the API server takes, by every rule of the CustomResourceDefinitions.
func TestConvert_TheAPIServerTakesEveryConvertedExample(t *testing.T) {
	s := newServer(t)
	taken := 0
	for name, content := range examples(t) {
		result := arcmigration.Convert([]arcmigration.Input{{Name: name, Content: content}}, arcmigration.Options{Namespace: s.namespace})
		if text := output(t, result); text != "" {
			taken += s.create(t, text)
		}
	}
	require.Greater(t, taken, 45)
}

// The same holds for generated objects: either the API server accepts them, or the converter has refused them with a reason.
func TestConvert_TheAPIServerTakesWhateverIsConverted(t *testing.T) {
	s := newServer(t)
	taken := 0
	rapid.Check(t, func(r *rapid.T) {
		g := &generator{t: r}
		object := g.object()
		g.intrude(object)
		content, err := sigsyaml.Marshal(object)
		require.NoError(r, err)
		result := arcmigration.Convert([]arcmigration.Input{{Name: "x", Content: content}}, arcmigration.Options{Namespace: s.namespace})
		if text := output(t, result); text != "" {
			taken += s.create(t, text)
		}
	})
	require.Greater(t, taken, 20)
}
