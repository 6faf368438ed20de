package kubeletapi

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/synthetic"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const patience = 20 * time.Second

// authority signs certificates of tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return authority{cert, key}
}

func (a authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func (a authority) issue(t *testing.T, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func pemOf(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

// cluster answers reviews: tokens by their text, rights by user and "verb subresource".
type cluster struct {
	*fake.Clientset
	mu      sync.Mutex
	tokens  map[string]string
	rights  map[string][]string
	outage  error
	reviews int
}

func newCluster() *cluster {
	c := &cluster{Clientset: fake.NewClientset(), tokens: map[string]string{}, rights: map[string][]string{}}
	c.PrependReactor("create", "tokenreviews", c.reviewToken)
	c.PrependReactor("create", "subjectaccessreviews", c.reviewAccess)
	return c
}

func (c *cluster) reviewToken(action clienttesting.Action) (bool, kruntime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reviews++
	review := action.(clienttesting.CreateAction).GetObject().(*authnv1.TokenReview).DeepCopy()
	if len(review.Spec.Audiences) > 0 {
		return true, nil, errors.New("tokens are for the API server's own audience")
	}
	user, known := c.tokens[review.Spec.Token]
	review.Status = authnv1.TokenReviewStatus{Authenticated: known, User: authnv1.UserInfo{Username: user}}
	return true, review, c.outage
}

func (c *cluster) reviewAccess(action clienttesting.Action) (bool, kruntime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reviews++
	review := action.(clienttesting.CreateAction).GetObject().(*authzv1.SubjectAccessReview).DeepCopy()
	what := review.Spec.ResourceAttributes
	if what.Resource != "nodes" || what.Name != "n1" || what.Group != "" {
		return true, nil, fmt.Errorf("a question about %+v", what)
	}
	review.Status.Allowed = slices.Contains(c.rights[review.Spec.User], what.Verb+" "+what.Subresource)
	return true, review, c.outage
}

func (c *cluster) asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reviews
}

type bound []*corev1.Pod

func (b bound) Pods() []*corev1.Pod { return b }

func (b bound) Pod(namespace, name string) (*corev1.Pod, bool) {
	for _, pod := range b {
		if pod.Namespace == namespace && pod.Name == name {
			return pod, true
		}
	}
	return nil, false
}

// world is a node with one pod, whose container writes "hello" and runs on.
type world struct {
	*testing.T
	cluster *cluster
	machine *synthetic.Machine
	sandbox *hooked
	clients authority
	serving authority
	clock   *clocktesting.FakeClock // of access alone
	url     string
	log     *lockedBuffer
	replace func(*access) // before the first request
	headers http.Header   // of requests, beside the token
	stop    func() error  // ends the server; what Serve returned
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newWorld(t *testing.T) *world {
	w := &world{
		T: t, cluster: newCluster(), machine: synthetic.NewMachine(nil), clients: newAuthority(t), serving: newAuthority(t),
		clock: clocktesting.NewFakeClock(time.Now()), log: &lockedBuffer{},
	}
	w.sandbox = &hooked{Sandbox: synthetic.New(w.machine)}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Annotations: map[string]string{synthetic.AnnotationPrefix + "main": "log=hello"}},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "first"}}, Containers: []corev1.Container{{Name: "main"}, {Name: "later"}},
		},
	}
	require.NoError(t, w.sandbox.Prepare(t.Context(), pod))
	require.NoError(t, w.sandbox.Start(t.Context(), pod, sandbox.Container{Name: "main"}))
	own := w.serving.issue(t, func(c *x509.Certificate) {
		c.ExtKeyUsage, c.IPAddresses = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, []net.IP{net.IPv4(127, 0, 0, 1)}
	})
	server := newServer(Options{
		Metrics: prometheus.NewRegistry(),
		Node:    "n1", Pods: bound{pod}, Sandbox: w.sandbox, Log: slog.New(slog.NewTextHandler(w.log, nil)), Clock: clock.RealClock{},
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &own, nil },
		Roots:       w.clients.pool,
	}, w.cluster, w.cluster)
	server.access = newAccess(w.cluster, w.cluster, "n1", w.clients.pool, w.clock)
	w.replace = func(other *access) { server.access = other }
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w.url = "https://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener) }()
	w.stop = sync.OnceValue(func() error {
		cancel()
		return await.Result(served, "the server stops")
	})
	t.Cleanup(func() { require.NoError(t, w.stop()) })
	return w
}

// hooked is a sandbox whose commands a test may run by itself.
type hooked struct {
	*synthetic.Sandbox
	run func(ctx context.Context, streams sandbox.Streams) (int, error)
}

func (h *hooked) Exec(ctx context.Context, uid, container string, command []string, streams sandbox.Streams) (int, error) {
	if h.run != nil {
		return h.run(ctx, streams)
	}
	return h.Sandbox.Exec(ctx, uid, container, command, streams)
}

// user gives a token's owner rights.
func (w *world) user(rights ...string) string {
	w.cluster.mu.Lock()
	defer w.cluster.mu.Unlock()
	w.cluster.tokens["t0ken"], w.cluster.rights["ada"] = "ada", rights
	return "t0ken"
}

// ask sends a request; the caller of a streaming one reads and closes the body.
func (w *world) ask(ctx context.Context, method, path, token string, certificates ...tls.Certificate) *http.Response {
	w.Helper()
	client := &http.Client{Timeout: await.Limit, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: w.serving.pool(), Certificates: certificates, MinVersion: tls.VersionTLS12},
	}}
	request, err := http.NewRequestWithContext(ctx, method, w.url+path, nil)
	require.NoError(w, err)
	maps.Copy(request.Header, w.headers)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	require.NoError(w, err)
	return response
}

func (w *world) get(path, token string, certificates ...tls.Certificate) (int, string) {
	w.Helper()
	response := w.ask(w.Context(), http.MethodGet, path, token, certificates...)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(w, err)
	return response.StatusCode, string(body)
}

func TestNobodyIsLetInUnknown(t *testing.T) {
	w := newWorld(t)
	w.user("get proxy")
	stranger := newAuthority(t)
	named := func(c *x509.Certificate) { c.Subject.CommonName = "ada" }
	for what, certificate := range map[string]tls.Certificate{
		"another authority's": stranger.issue(t, named),
		"one for serving": w.clients.issue(t, func(c *x509.Certificate) {
			named(c)
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}),
		"an expired one": w.clients.issue(t, func(c *x509.Certificate) { named(c); c.NotAfter = time.Now().Add(-time.Minute) }),
		"a nameless one": w.clients.issue(t, func(*x509.Certificate) {}),
	} {
		code, _ := w.get("/healthz", "", certificate)
		require.Equal(t, http.StatusUnauthorized, code, what)
	}
	for _, path := range []string{"/healthz", "/metrics", "/pods", "/containerLogs/ns/p/main", "/exec/ns/p/main", "/nowhere", "/"} {
		code, _ := w.get(path, "")
		require.Equal(t, http.StatusUnauthorized, code, path)
		code, _ = w.get(path, "wr0ng")
		require.Equal(t, http.StatusUnauthorized, code, path)
	}
	code, body := w.get("/healthz", "", w.clients.issue(t, named))
	require.Equal(t, http.StatusOK, code, body)
	require.NotContains(t, w.log.String(), "wr0ng")
}

func TestRightsByVerbAndPath(t *testing.T) {
	for _, test := range []struct {
		rights  []string
		method  string
		allowed []string
		refused []string
	}{
		{nil, "GET", nil, []string{"/healthz", "/metrics", "/pods", "/containerLogs/ns/p/main", "/exec/ns/p/main", "/nowhere"}},
		{[]string{"get proxy"}, "GET", []string{"/healthz", "/pods", "/containerLogs/ns/p/main"}, []string{"/metrics"}},
		{[]string{"get proxy"}, "POST", nil, []string{"/exec/ns/p/main?command=x&output=1"}},
		{[]string{"get proxy"}, "GET", nil, []string{"/exec/ns/p/main?command=x&output=1", "/attach/ns/p/main", "/run/ns/p/main"}}, // a WebSocket
		{[]string{"create proxy"}, "GET", nil, []string{"/containerLogs/ns/p/main", "/pods"}},
		{[]string{"get metrics"}, "GET", []string{"/metrics"}, []string{"/pods", "/healthz", "/metricsandmore", "/containerLogs/ns/p/main"}},
		{[]string{"get pods"}, "GET", []string{"/pods"}, []string{"/metrics", "/containerLogs/ns/p/main"}},
		{[]string{"get healthz"}, "GET", []string{"/healthz"}, []string{"/pods"}},
		{[]string{"get log"}, "GET", nil, []string{"/containerLogs/ns/p/main"}},
		{[]string{"get proxy", "create proxy"}, "PUT", nil, []string{"/exec/ns/p/main", "/pods"}},
	} {
		t.Run(fmt.Sprint(test.rights, test.method), func(t *testing.T) {
			w := newWorld(t)
			token := w.user(test.rights...)
			for _, path := range test.allowed {
				response := w.ask(t.Context(), test.method, path, token)
				require.NoError(t, response.Body.Close())
				require.Equal(t, http.StatusOK, response.StatusCode, path)
			}
			for _, path := range test.refused {
				response := w.ask(t.Context(), test.method, path, token)
				require.NoError(t, response.Body.Close())
				require.Equal(t, http.StatusForbidden, response.StatusCode, path)
			}
		})
	}
}

// An allowed result is cached for a while, a denial never; and without a result the request is rejected.
func TestAnswersAreRemembered(t *testing.T) {
	w := newWorld(t)
	token := w.user()
	for range 2 {
		code, body := w.get("/pods", token)
		require.Equal(t, http.StatusForbidden, code)
		require.NotContains(t, body, token)
	}
	require.Equal(t, 1+2*2, w.cluster.asked(), "who it is once, and twice for each of two rights")
	w.user("get proxy")
	for range 3 {
		code, _ := w.get("/pods", token)
		require.Equal(t, http.StatusOK, code)
	}
	require.Equal(t, 1+2*2+3*1+1, w.cluster.asked(), "nodes/pods, which stays a no, and nodes/proxy once")

	w.clock.Step(allowedFor)
	w.cluster.mu.Lock()
	w.cluster.outage = errors.New("the API server is away")
	w.cluster.mu.Unlock()
	code, body := w.get("/pods", token)
	require.Equal(t, http.StatusInternalServerError, code)
	require.NotContains(t, body, "away")
	require.NotContains(t, w.log.String(), token)
	require.Contains(t, w.log.String(), "away")
}

func TestLogs(t *testing.T) {
	w := newWorld(t)
	token := w.user("get proxy", "create proxy")
	require.NoError(t, w.machine.Write("u", "main", "second\n"))
	for path, want := range map[string]string{
		"/containerLogs/ns/p/main":                                "hello\nsecond\n",
		"/containerLogs/ns/p/main?tailLines=1":                    "second\n",
		"/containerLogs/ns/p/main?limitBytes=3":                   "hel",
		"/containerLogs/ns/p/main?sinceTime=2999-01-01T00:00:00Z": "",
	} {
		code, body := w.get(path, token)
		require.Equal(t, http.StatusOK, code)
		require.Equal(t, want, body, path)
	}
	for path, want := range map[string]struct {
		code int
		says string
	}{
		"/containerLogs/ns/p/main?previous=true":         {http.StatusBadRequest, "no previous container"},
		"/containerLogs/ns/p/later":                      {http.StatusBadRequest, "waiting to start"},
		"/containerLogs/ns/p/other":                      {http.StatusNotFound, `container "other" not found`},
		"/containerLogs/ns/q/main":                       {http.StatusNotFound, `pod "q" does not exist`},
		"/attach/ns/p/main":                              {http.StatusNotImplemented, "not attach and port-forward"},
		"/exec/ns/p/main?output=1":                       {http.StatusBadRequest, "no command"},
		"/exec/ns/p/main?command=x":                      {http.StatusBadRequest, "at least 1 of stdin"},
		"/exec/ns/p/another-uid/main?command=x&output=1": {http.StatusNotFound, "does not exist"},
	} {
		code, body := w.get(path, token)
		require.Equal(t, want.code, code, path)
		require.Contains(t, body, want.says, path)
	}
}

// Followers see what is added and end with the container; one that disconnects leaves nothing behind.
func TestLogs_ManyFollowersAtOnce(t *testing.T) {
	w := newWorld(t)
	token := w.user("get proxy")
	code, _ := w.get("/healthz", token) // whatever is made once is there
	require.Equal(t, http.StatusOK, code)
	before := runtime.NumGoroutine()
	const path = "/containerLogs/ns/p/main?follow=true"
	impatient, leave := context.WithCancel(t.Context())
	for range 5 {
		response := w.ask(impatient, http.MethodGet, path, token)
		_, err := io.ReadFull(response.Body, make([]byte, len("hello\n")))
		require.NoError(t, err)
	}
	leave()
	var followers sync.WaitGroup
	seen := make(chan string, 20)
	begun := make(chan struct{}, 20)
	for range 20 {
		followers.Go(func() {
			response := w.ask(t.Context(), http.MethodGet, path, token)
			defer func() { _ = response.Body.Close() }()
			first := make([]byte, len("hello\n"))
			_, err := io.ReadFull(response.Body, first)
			begun <- struct{}{}
			rest, restErr := io.ReadAll(response.Body)
			seen <- fmt.Sprint(string(first)+string(rest), err, restErr)
		})
	}
	for range 20 {
		await.Receive(t, begun, "a follower has its first bytes")
	}
	require.NoError(t, w.machine.Write("u", "main", "more\n"))
	require.NoError(t, w.machine.Write("u", "main", "last"))
	require.NoError(t, w.machine.Exit("u", "main", 0))
	await.Return(t, followers.Wait, "the followers have read the log")
	for range 20 {
		require.Equal(t, "hello\nmore\nlast<nil> <nil>", await.Receive(t, seen, "a follower has read the log"))
	}
	awaitGoroutines(t, before)
}

// awaitGoroutines waits until there are no more than before. Eventually has one of its own.
func awaitGoroutines(t *testing.T, before int) {
	t.Helper()
	if !assert.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, patience, 10*time.Millisecond) {
		stacks := make([]byte, 1<<20)
		t.Fatalf("goroutines stay behind: %s", stacks[:runtime.Stack(stacks, true)])
	}
}

// run runs a command as kubectl's library does.
func (w *world) run(ctx context.Context, token string, command []string, streams remotecommand.StreamOptions) error {
	w.Helper()
	query := url.Values{"command": command, "output": {"1"}, "error": {"1"}}
	if streams.Stdin != nil {
		query.Set("input", "1")
	}
	at, err := url.Parse(w.url + "/exec/ns/p/main?" + query.Encode())
	require.NoError(w, err)
	config := &rest.Config{Host: w.url, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: pemOf(w.serving.cert)}}
	executor, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, at)
	require.NoError(w, err)
	return executor.StreamWithContext(ctx, streams)
}

// stuckWriter takes nothing until leave is closed.
type stuckWriter struct {
	once           sync.Once
	reached, leave chan struct{}
}

func (s *stuckWriter) Write([]byte) (int, error) {
	s.once.Do(func() { close(s.reached) })
	<-s.leave // bounded: the test closes it
	return 0, io.ErrClosedPipe
}
