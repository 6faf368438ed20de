package gate

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const (
	runners = "runners"
	busy    = "busy"
	patient = 20 * time.Second
)

// token is bound to a pod, and unsigned.
func token(pod, uid string) string {
	payload := fmt.Sprintf(`{"kubernetes.io":{"namespace":%q,"pod":{"name":%q,"uid":%q}}}`, runners, pod, uid)
	return "head." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".signature"
}

func runner(name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: runners, Name: name, UID: types.UID("uid-of-" + name), Labels: labels},
		Status:     corev1.PodStatus{PodIP: "10.0.0.7"},
	}
}

// idleOnly lets pods without the label reach the server's port, and selects all.
func idleOnly() []*networkingv1.NetworkPolicy {
	egress := []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	port := intstr.FromInt32(8081)
	return []*networkingv1.NetworkPolicy{
		{ObjectMeta: metav1.ObjectMeta{Namespace: runners, Name: "deny"}, Spec: networkingv1.NetworkPolicySpec{PolicyTypes: egress}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: runners, Name: "idle"}, Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: busy, Operator: metav1.LabelSelectorOpDoesNotExist}}},
			PolicyTypes: egress,
			Egress: []networkingv1.NetworkPolicyEgressRule{{
				To: []networkingv1.NetworkPolicyPeer{{
					NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "server"}},
				}},
				Ports: []networkingv1.NetworkPolicyPort{{Port: &port}},
			}},
		}},
	}
}

type fixture struct {
	*testing.T
	kube     *fake.Clientset
	address  string
	refusals chan Refusal
}

// start runs a gate before a server that answers every request with the word "served".
func start(t *testing.T, pods ...*corev1.Pod) *fixture {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") }))
	t.Cleanup(upstream.Close)
	kube := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: runners}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "system"}})
	for _, policy := range idleOnly() {
		_, err := kube.NetworkingV1().NetworkPolicies(runners).Create(t.Context(), policy, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for _, pod := range pods {
		_, err := kube.CoreV1().Pods(runners).Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	refusals := make(chan Refusal, 100)
	gate, err := New(Options{
		Kube: kube, Namespace: runners, Upstream: upstream.Listener.Addr().String(), Port: 8081, Observe: func(r Refusal) { refusals <- r },
		Server: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "server", Labels: map[string]string{"app": "server"}},
			Status:     corev1.PodStatus{PodIP: "192.0.2.1"},
		},
	})
	require.NoError(t, err)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- gate.Run(ctx, listener) }()
	t.Cleanup(func() {
		end()
		require.NoError(t, await.Receive(t, ended, "the gate stops"))
	})
	select {
	case <-gate.Started():
	case <-time.After(patient):
		require.Fail(t, "the gate does not open")
	}
	return &fixture{t, kube, listener.Addr().String(), refusals}
}

// conn is a pod's connection.
func (f *fixture) conn() net.Conn {
	f.Helper()
	conn, err := new(net.Dialer).DialContext(f.Context(), "tcp", f.address)
	require.NoError(f, err)
	f.Cleanup(func() { _ = conn.Close() })
	require.NoError(f, conn.SetDeadline(time.Now().Add(patient)))
	return conn
}

// ask sends a request and returns what came back until the connection said nothing more.
func ask(conn net.Conn, bearer string) (string, error) {
	request := "GET / HTTP/1.1\r\nHost: server\r\n"
	if bearer != "" {
		request += "Authorization: Bearer " + bearer + "\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		return "", err
	}
	var answer bytes.Buffer
	piece := make([]byte, 512)
	for !bytes.HasSuffix(answer.Bytes(), []byte("served")) {
		n, err := conn.Read(piece)
		answer.Write(piece[:n])
		if err != nil {
			return answer.String(), err
		}
	}
	return answer.String(), nil
}

func (f *fixture) refusal() Refusal {
	f.Helper()
	select {
	case r := <-f.refusals:
		return r
	case <-time.After(patient):
		require.Fail(f, "nothing was refused")
		return Refusal{}
	}
}

func TestGate_NET2_ALabelCutsWhatWasEstablished(t *testing.T) {
	idle := runner("one", nil)
	f := start(t, idle)
	conn := f.conn()
	answer, err := ask(conn, token("one", string(idle.UID)))
	require.NoError(t, err)
	require.Contains(t, answer, "200 OK")
	idle.Labels = map[string]string{busy: "yes"}
	_, err = f.kube.CoreV1().Pods(runners).Update(t.Context(), idle, metav1.UpdateOptions{})
	require.NoError(t, err)
	refusal := f.refusal()
	require.True(t, refusal.Cut)
	require.Equal(t, "one", refusal.Pod.Name)
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err, "the connection is cut")
	_, err = ask(f.conn(), token("one", string(idle.UID)))
	require.Error(t, err)
	require.False(t, f.refusal().Cut, "and another one is refused")
}

func TestGate_NET2_KnowsNoOtherClient(t *testing.T) {
	pod := runner("one", nil)
	f := start(t, pod, runner("two", map[string]string{busy: "yes"}))
	for name, bearer := range map[string]string{
		"nobody":                    "",
		"no token":                  "nonsense",
		"a pod that is not there":   token("three", "uid-of-three"),
		"the pod's former namesake": token("one", "another"),
		"a busy pod":                token("two", "uid-of-two"),
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := ask(f.conn(), bearer)
			require.Error(t, err)
			require.Empty(t, answer)
			require.False(t, f.refusal().Cut)
		})
	}
	_, err := ask(f.conn(), token("one", string(pod.UID)))
	require.NoError(t, err)
}

func FuzzIntroduce(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + token("one", "uid") + "\r\n\r\nmore"))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer a.b.c\r\n\r\n"))
	f.Add([]byte("POST"))
	f.Fuzz(func(t *testing.T, data []byte) {
		said, who, err := introduce(bytes.NewReader(data))
		require.True(t, bytes.HasPrefix(data, said), "what is passed on is what was said")
		require.Equal(t, err == nil, who.uid != "")
	})
}
