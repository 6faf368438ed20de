package kubeletapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	authnv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/bullpen-ci/bullpen/internal/lib/httpserver"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// DefaultPort is where kubelets serve, and where API servers and firewalls expect them.
const DefaultPort = 10250

// Pods are those bound to the node, as the API server shows them.
type Pods interface {
	// Pod finds one by its name; false when there is none.
	Pod(namespace, name string) (*corev1.Pod, bool)
	// Pods are all of them. The caller changes none.
	Pods() []*corev1.Pod
}

// Options configure a Server. All are required but Roots, Metrics, Log and Clock.
type Options struct {
	// Node is the node's name: what rights are asked about.
	Node string
	// Config is how to reach the API server as the node, for TokenReviews and SubjectAccessReviews.
	Config *rest.Config
	// Pods and Sandbox are what is looked into.
	Pods    Pods
	Sandbox sandbox.Sandbox
	// Certificate is what the server proves itself with at that moment.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Roots are the authorities whose client certificates count at that moment; none do without it.
	Roots func() *x509.CertPool
	// Metrics are served at /metrics; none are without it.
	Metrics prometheus.Gatherer
	// Log receives who ran commands where, and failed requests to the API server. It contains no token and no command.
	Log   *slog.Logger
	Clock clock.WithTicker
}

// Server is the node's API.
type Server struct {
	opts   Options
	access *access
	routes http.Handler
}

// New makes a server with a client of its own, so that a flood of tokens takes nothing from the node's work.
func New(opts Options) (*Server, error) {
	if opts.Node == "" || opts.Config == nil || opts.Pods == nil || opts.Sandbox == nil || opts.Certificate == nil {
		return nil, errors.New("serving logs and commands of a node needs its name, a client configuration, pods, a sandbox and a certificate")
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Metrics == nil {
		opts.Metrics = prometheus.NewRegistry()
	}
	config := rest.CopyConfig(opts.Config)
	config.QPS, config.Burst, config.RateLimiter = 20, 40, nil
	// Each of the two has a rate limit of its own, so that clients with invalid tokens delay each other, and no authenticated client.
	tokens, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of the API server: %w", err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of the API server: %w", err)
	}
	return newServer(opts, tokens, kube), nil
}

func newServer(opts Options, tokens, kube kubernetes.Interface) *Server {
	s := &Server{opts: opts, access: newAccess(tokens, kube, opts.Node, opts.Roots, opts.Clock)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(opts.Metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /pods", s.servePods)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.serveLogs)
	for _, method := range []string{"GET", "POST"} {
		mux.HandleFunc(method+" /exec/{namespace}/{pod}/{container}", s.serveExec)
		mux.HandleFunc(method+" /exec/{namespace}/{pod}/{uid}/{container}", s.serveExec)
	}
	for _, path := range []string{"/attach/", "/portForward/", "/run/"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "not supported: this node supports kubectl logs and kubectl exec, not attach and port-forward", http.StatusNotImplemented)
		})
	}
	s.routes = mux
	return s
}

// Serve serves on the listener until ctx ends, and returns when no request is in progress.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var requests sync.WaitGroup
	defer requests.Wait()
	front := httpserver.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		defer requests.Done()
		s.ServeHTTP(w, r)
	}))
	front.BaseContext = func(net.Listener) context.Context { return ctx }
	front.ErrorLog = slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug) // handshakes that failed
	stop := context.AfterFunc(ctx, func() { _ = front.Close() })
	defer stop()
	err := front.Serve(tls.NewListener(listener, &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: s.opts.Certificate,
		ClientAuth: tls.RequestClientCert, // who has none shows a token; access verifies either
		NextProtos: []string{"http/1.1"},  // streams are upgraded connections
	}))
	cancel()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving logs and commands: %w", err)
}

type userKey struct{}

// ServeHTTP lets a request in when it is known who sends it, and that they may.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, err := s.access.identify(r)
	if errors.Is(err, errUnknown) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return
	}
	if err != nil {
		s.unanswered(w, r, "authentication failed", err)
		return
	}
	r.Header.Del("Authorization") // from here on no code can leak it
	verb, needs := verbOf(r.Method, r.URL.Path), wanted(r.URL.Path)
	allowed, err := s.access.allowed(r.Context(), user, verb, needs)
	if err != nil {
		s.unanswered(w, r, "authorization failed", err)
		return
	}
	if !allowed {
		http.Error(w, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)", user.Username, verb, needs), http.StatusForbidden)
		return
	}
	s.routes.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
}

func (s *Server) unanswered(w http.ResponseWriter, r *http.Request, what string, err error) {
	if r.Context().Err() == nil {
		s.opts.Log.Warn(what, "path", r.URL.Path, "error", err)
	}
	http.Error(w, what, http.StatusInternalServerError)
}

func userOf(ctx context.Context) authnv1.UserInfo {
	user, _ := ctx.Value(userKey{}).(authnv1.UserInfo)
	return user
}

func (s *Server) servePods(w http.ResponseWriter, _ *http.Request) {
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
	for _, pod := range s.opts.Pods.Pods() {
		list.Items = append(list.Items, *pod)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list) // the client may be gone
}

// target is the container that a request names.
type target struct {
	namespace, pod, uid, container string
}

// target finds the container on record. When it is not, the request has been answered.
func (s *Server) target(w http.ResponseWriter, r *http.Request) (target, sandbox.ContainerState, bool) {
	t := target{namespace: r.PathValue("namespace"), pod: r.PathValue("pod"), uid: r.PathValue("uid"), container: r.PathValue("container")}
	pod, found := s.opts.Pods.Pod(t.namespace, t.pod)
	if !found || t.uid != "" && t.uid != string(pod.UID) {
		http.Error(w, fmt.Sprintf("pod %q does not exist on node %s", t.pod, s.opts.Node), http.StatusNotFound)
		return t, sandbox.ContainerState{}, false
	}
	t.uid = string(pod.UID)
	if !hasContainer(pod, t.container) {
		http.Error(w, fmt.Sprintf("container %q not found in pod %q", t.container, t.pod), http.StatusNotFound)
		return t, sandbox.ContainerState{}, false
	}
	state, err := s.opts.Sandbox.Inspect(r.Context(), t.uid)
	if err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		s.unanswered(w, r, "the pod could not be inspected", err)
		return t, sandbox.ContainerState{}, false
	}
	c, begun := state.Container(t.container)
	if !begun {
		http.Error(w, fmt.Sprintf("container %q in pod %q is waiting to start", t.container, t.pod), http.StatusBadRequest)
	}
	return t, c, begun
}

func hasContainer(pod *corev1.Pod, name string) bool {
	for _, c := range append(append([]corev1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...) {
		if c.Name == name {
			return true
		}
	}
	return false
}
