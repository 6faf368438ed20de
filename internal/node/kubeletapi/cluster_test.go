package kubeletapi

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/node/identity"
	"github.com/bullpen-ci/bullpen/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// NET-3, NET-5: with a real API server behind it, and a node's rights there, the server accepts the API server's own client and no pod's
// token: a token for dispatch is not valid here, and a token for the API has no right.
func TestServer_NET3_NET5_NoTokenOfAPodOpensIt(t *testing.T) {
	env := kit.Cluster(t)
	w := newWorld(t)
	roots, err := identity.AuthoritiesFromFile(env.Plane.ClientAuthority())
	require.NoError(t, err)
	server, err := New(Options{
		Node: "n1", Config: env.As(t, identity.UserPrefix+"n1", identity.Group), Pods: bound{}, Sandbox: w.sandbox, Roots: roots,
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil },
	})
	require.NoError(t, err)
	w.replace(server.access)

	namespace := env.Namespace(t)
	pod, err := env.Kube.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "runner"},
		Spec:       corev1.PodSpec{ServiceAccountName: "default", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, path := range []string{"/healthz", "/pods", "/metrics", "/containerLogs/ns/p/main", "/exec/ns/p/main?command=x&output=1"} {
		code, _ := w.get(path, env.PodToken(t, pod, runnerapi.AudienceDispatch))
		require.Equal(t, http.StatusUnauthorized, code, path)
		code, _ = w.get(path, env.PodToken(t, pod))
		require.Equal(t, http.StatusForbidden, code, path)
	}
	client := env.As(t, controlplane.KubeletClient)
	own, err := tls.X509KeyPair(client.CertData, client.KeyData)
	require.NoError(t, err)
	for path, want := range map[string]string{"/healthz": "ok", "/containerLogs/ns/p/main": "hello\n"} {
		code, body := w.get(path, "", own)
		require.Equal(t, http.StatusOK, code, body)
		require.Equal(t, want, body)
	}
	nobody := env.As(t, "nobody")
	other, err := tls.X509KeyPair(nobody.CertData, nobody.KeyData)
	require.NoError(t, err)
	response := w.ask(context.WithoutCancel(t.Context()), http.MethodGet, "/containerLogs/ns/p/main", "", other)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusForbidden, response.StatusCode)
}
