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
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// credentials turn a kubeconfig into a token for the operators' API.
type credentials struct {
	config                *rest.Config
	namespace, name       string // of the ServiceAccount
	serviceAccountChanged bool
	life                  time.Duration // of a token that is issued

	mu     sync.Mutex
	issued string
	until  time.Time
}

func newCredentials(kubeconfig, context, serviceAccount string, life time.Duration) (*credentials, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("who are you? your kubeconfig cannot be used (%w): name another with --kubeconfig or --context", err)
	}
	namespace, name, ok := strings.Cut(serviceAccount, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("--service-account %q: write it as namespace/name, like %s", serviceAccount, DefaultServiceAccount)
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

// own has client-go prepare a request as it would for the cluster, and takes the token from it: every way in which a
// kubeconfig can name one works. Nothing is sent.
func (c *credentials) own(ctx context.Context) (string, error) {
	prepared, err := c.config.TransportConfig()
	if err != nil {
		return "", fmt.Errorf("reading your kubeconfig's credentials: %w", err)
	}
	if prepared.Impersonate.UserName != "" {
		return "", errors.New("your kubeconfig impersonates another user, which only the cluster's own API understands: use one that does not")
	}
	var token string
	capture := roundTripper(func(r *http.Request) (*http.Response, error) {
		token, _ = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		return nil, errNoRequest
	})
	wrapped, err := transport.HTTPWrappersForConfig(prepared, capture)
	if err != nil {
		return "", fmt.Errorf("reading your kubeconfig's credentials: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.config.Host, nil)
	if err != nil {
		return "", fmt.Errorf("reading your kubeconfig: %w", err)
	}
	resp, err := wrapped.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	if !errors.Is(err, errNoRequest) {
		return "", fmt.Errorf("getting a token as your kubeconfig says: %w", err)
	}
	return token, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// tokenLife is how long a requested token lives unless somebody needs it for longer: the shortest that Kubernetes issues.
const tokenLife = 10 * time.Minute

// request asks the cluster for a token of the ServiceAccount.
func (c *credentials) request(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.issued != "" && time.Until(c.until) > time.Minute {
		return c.issued, nil
	}
	config := rest.CopyConfig(c.config)
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", fmt.Errorf("making a Kubernetes client: %w", err)
	}
	seconds := int64(c.life / time.Second)
	issued, err := client.CoreV1().ServiceAccounts(c.namespace).CreateToken(ctx, c.name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{adminapi.Audience}, ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("your kubeconfig holds a client certificate and no token, and you may not create tokens of ServiceAccount %s/%s: "+
			"ask for a role that may, or name another with --service-account", c.namespace, c.name)
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("there is no ServiceAccount %s/%s to ask a token of: name one with --service-account", c.namespace, c.name)
	case err != nil:
		return "", fmt.Errorf("asking for a token of ServiceAccount %s/%s: %w", c.namespace, c.name, err)
	}
	c.issued, c.until = issued.Status.Token, issued.Status.ExpirationTimestamp.Time
	return c.issued, nil
}
