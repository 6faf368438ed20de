package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli/reach"
)

// credentials turn a kubeconfig into a token for the administrators' API.
type credentials struct {
	config                *rest.Config
	namespace, name       string // of the ServiceAccount
	serviceAccountChanged bool
	life                  time.Duration // of a token that is issued
	// release returns the ServiceAccount of the release that is used, in place of the default one; nil: it is not known.
	release func(context.Context) (namespace, name string, err error)

	mu     sync.Mutex
	issued string
	until  time.Time
}

func newCredentials(config *rest.Config, serviceAccount string, life time.Duration) (*credentials, error) {
	namespace, name, ok := strings.Cut(serviceAccount, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("--service-account must be namespace/name, such as %s, got %q", DefaultServiceAccount, serviceAccount)
	}
	return &credentials{
		config: config, namespace: namespace, name: name, serviceAccountChanged: serviceAccount != DefaultServiceAccount,
		life: life,
	}, nil
}

// Token is the kubeconfig's own (a bearer token, a token file, an exec plugin), or, where it has none or a ServiceAccount
// was named, one that the cluster issues for that ServiceAccount and this API alone.
func (c *credentials) Token(ctx context.Context) (string, error) {
	if !c.serviceAccountChanged {
		token, err := c.own(ctx)
		if err != nil || token != "" {
			return token, err
		}
	}
	return c.request(ctx)
}

// errNoRequest stands for the request that was only prepared.
var errNoRequest = errors.New("not sent")

// own has client-go prepare a request for the cluster and takes the token from it, so every kind of credentials works. Nothing is sent.
func (c *credentials) own(ctx context.Context) (string, error) {
	prepared, err := c.config.TransportConfig()
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig's credentials: %w", err)
	}
	if prepared.Impersonate.UserName != "" {
		return "", errors.New("the kubeconfig impersonates another user, which only the cluster's own API supports. Choose another with --kubeconfig or --context")
	}
	var token string
	capture := roundTripper(func(r *http.Request) (*http.Response, error) {
		token, _ = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		return nil, errNoRequest
	})
	wrapped, err := transport.HTTPWrappersForConfig(prepared, capture)
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig's credentials: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.config.Host, nil)
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	resp, err := wrapped.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	if !errors.Is(err, errNoRequest) {
		return "", fmt.Errorf("getting the kubeconfig's token: %w", err)
	}
	return token, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// tokenLife is the default lifetime of a requested token: the shortest that Kubernetes issues.
const tokenLife = 10 * time.Minute

// request asks the cluster for a token of the ServiceAccount. An audience names the user who requests it, for the audit log (ADR 0054).
func (c *credentials) request(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.issued != "" && time.Until(c.until) > time.Minute {
		return c.issued, nil
	}
	namespace, name := c.namespace, c.name
	if c.release != nil && !c.serviceAccountChanged {
		var err error
		if namespace, name, err = c.release(ctx); err != nil {
			return "", err
		}
	}
	config := rest.CopyConfig(c.config)
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", fmt.Errorf("making a Kubernetes client: %w", err)
	}
	seconds := int64(c.life / time.Second)
	create := func(audiences []string) (*authenticationv1.TokenRequest, error) {
		return client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &seconds},
		}, metav1.CreateOptions{})
	}
	audiences := []string{adminapi.Audience}
	if user := userName(ctx, client); user != "" {
		audiences = append(audiences, adminapi.AudienceUser+user)
	}
	issued, err := create(audiences)
	if len(audiences) > 1 && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) {
		issued, err = create(audiences[:1]) // a policy of the cluster may allow known audiences only
	}
	switch {
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("requesting a token of ServiceAccount %s/%s: not allowed. The kubeconfig has only a client certificate: "+
			"get the right to create tokens of that ServiceAccount, or choose another with --service-account", namespace, name)
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("requesting a token: ServiceAccount %s/%s not found. Choose another with --service-account", namespace, name)
	case err != nil:
		return "", reach.Cluster("requesting a token of ServiceAccount "+namespace+"/"+name, err)
	}
	c.issued, c.until = issued.Status.Token, issued.Status.ExpirationTimestamp.Time
	return c.issued, nil
}
