package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/jsonpath"
)

// commandInterval is the time between two runs of a command in a wait. Each start of a program of this size takes a tenth of a second of a
// processor, which the awaited part needs as well.
const commandInterval = 500 * time.Millisecond

// api is an administrator's client of the cluster, for waits: kubectl would be started for each question.
func (w *where) api(t *testing.T) dynamic.Interface {
	t.Helper()
	if w.client == nil {
		config, err := clientcmd.BuildConfigFromFlags("", w.Kubeconfig)
		require.NoError(t, err)
		config.QPS = -1
		w.client, err = dynamic.NewForConfig(config)
		require.NoError(t, err)
	}
	return w.client
}

// resource is a kind of objects as kubectl names it, with its group if it is not one of Bullpen's: pods., statefulsets.apps, machosts.
func resource(kind string) schema.GroupVersionResource {
	name, group, ofKubernetes := strings.Cut(kind, ".")
	if !ofKubernetes {
		return schema.GroupVersionResource{Group: "bullpen.dev", Version: "v1alpha1", Resource: name}
	}
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: name}
}

// look is what kubectl get -o jsonpath says of one object.
func look(t *testing.T, w *where, kind, namespace, name, path string) (string, error) {
	t.Helper()
	object, err := w.api(t).Resource(resource(kind)).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	parser := jsonpath.New(name).AllowMissingKeys(true)
	require.NoError(t, parser.Parse(path))
	var said strings.Builder
	err = parser.Execute(&said, object.Object)
	return said.String(), err
}

// pods are those of runners with a label.
func pods(t *testing.T, w *where, selector string) ([]corev1.Pod, error) {
	t.Helper()
	list, err := w.api(t).Resource(resource("pods.")).Namespace(runnerNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	found := make([]corev1.Pod, len(list.Items))
	for i := range list.Items {
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &found[i]))
	}
	return found, nil
}

// allowed reports whether the identity of the kubeconfig has the permission, as kubectl auth can-i does.
func allowed(t *testing.T, kubeconfig, verb, kind, namespace string) bool {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	name, group, _ := strings.Cut(kind, ".")
	answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Group: group, Resource: name, Namespace: namespace,
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return answer.Status.Allowed
}

// names are those of the objects with a label.
func names(t *testing.T, w *where, kind, namespace, selector string) ([]string, error) {
	t.Helper()
	list, err := w.api(t).Resource(resource(kind)).Namespace(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	found := []string{}
	for i := range list.Items {
		found = append(found, list.Items[i].GetName())
	}
	return found, nil
}
