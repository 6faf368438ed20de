package onebox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/examples"
	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	nodeidentity "github.com/bullpen-ci/bullpen/internal/node/identity"
)

// Lifetimes of ServiceAccount tokens. In a cluster the kubelet does this work.
const (
	tokenLifetime = time.Hour
	renewEarly    = 20 * time.Minute // before the end
	renewRetry    = 10 * time.Second
)

// token is one ServiceAccount token in a file.
type token struct {
	account  string // ServiceAccount in SystemNamespace
	audience string // empty: the API server's own
	path     string
}

// identities keeps the files that our processes authenticate with: a kubeconfig that names a token file for the
// server and the controller, the controller's token for the server, and the node agent's bootstrap token. No
// process gets more rights than the chart gives (NET-8); the administrator's certificate stays in this process.
type identities struct {
	kube   kubernetes.Interface
	tokens []token
	report func(Event)
	now    func() time.Time
}

func newIdentities(l Layout, kube kubernetes.Interface, report func(Event), now func() time.Time) *identities {
	return &identities{kube: kube, report: report, now: now, tokens: []token{
		{account: "bullpen-server", path: l.identity("server.token")},
		{account: "bullpen-controller", path: l.identity("controller.token")},
		{account: "bullpen-controller", audience: runnerapi.AudienceServer, path: l.identity("controller-server.token")},
	}}
}

// writeKubeconfigs writes the files that do not change while the processes run.
func writeKubeconfigs(l Layout, plane *controlplane.ControlPlane) error {
	admin := plane.AdminConfig()
	for _, name := range []string{partServer, partController} {
		if err := writeFileKubeconfig(l.identity(name+".kubeconfig"), admin, &clientcmdapi.AuthInfo{TokenFile: l.identity(name + ".token")}); err != nil {
			return err
		}
	}
	// The node agent requests its certificate on its own; this is for users who want the same view.
	certificate := nodeidentity.File(l.Node())
	return writeFileKubeconfig(l.identity(partNode+".kubeconfig"), admin, &clientcmdapi.AuthInfo{ClientCertificate: certificate, ClientKey: certificate})
}

// bootstrapKubeconfig is the file that the node agent asks for its certificate with.
const bootstrapKubeconfig = "node-bootstrap.kubeconfig"

// bootstrapToken is the id of the node agent's; bootstrapLifetime is how long each start of `bullpen up` gives it. The
// agent needs it once: it keeps its certificate, and renews it.
const (
	bootstrapToken    = "bpnode"
	bootstrapLifetime = time.Hour
)

// letNodeAsk gives the node agent the means to get a certificate of its own, as docs/guides/credentials.md has it for any
// cluster: role bindings, a token that is good for asking alone, and a kubeconfig with it.
func (i *identities) letNodeAsk(ctx context.Context, l Layout, admin *rest.Config) error {
	a, err := newApplier(admin)
	if err != nil {
		return err
	}
	bindings, err := decodeAll(examples.NodeBootstrap())
	if err != nil {
		return fmt.Errorf("reading the role bindings of node agents: %w", err)
	}
	for _, binding := range bindings {
		if err := a.apply(ctx, binding); err != nil {
			return err
		}
	}
	secret := strings.ToLower(rand.Text())[:16]
	token := corev1apply.Secret("bootstrap-token-"+bootstrapToken, metav1.NamespaceSystem).
		WithType(corev1.SecretTypeBootstrapToken).WithStringData(map[string]string{
		"token-id": bootstrapToken, "token-secret": secret, "usage-bootstrap-authentication": "true",
		"auth-extra-groups": "system:bootstrappers:bullpen",
		"expiration":        i.now().Add(bootstrapLifetime).UTC().Format(time.RFC3339),
	})
	if _, err := i.kube.CoreV1().Secrets(metav1.NamespaceSystem).Apply(ctx, token, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
		return fmt.Errorf("creating the node agent's bootstrap token: %w", err)
	}
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = bootstrapToken + "." + secret
	return controlplane.WriteKubeconfig(l.identity(bootstrapKubeconfig), config)
}

// writeFileKubeconfig names files instead of holding a token or a certificate: clients read them again when they are renewed.
func writeFileKubeconfig(path string, cluster *rest.Config, user *clientcmdapi.AuthInfo) error {
	const name = "bullpen"
	file := clientcmdapi.NewConfig()
	file.Clusters[name] = &clientcmdapi.Cluster{Server: cluster.Host, CertificateAuthorityData: cluster.CAData}
	file.AuthInfos[name] = user
	file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	file.CurrentContext = name
	data, err := clientcmd.Write(*file)
	if err != nil {
		return fmt.Errorf("encoding a kubeconfig: %w", err)
	}
	return writePrivate(path, data)
}

// issue writes every token again and returns when the first of them expires.
func (i *identities) issue(ctx context.Context) (end time.Time, err error) {
	var errs []error
	for _, t := range i.tokens {
		until, err := i.issueOne(ctx, t)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if end.IsZero() || until.Before(end) {
			end = until
		}
	}
	return end, errors.Join(errs...)
}

func (i *identities) issueOne(ctx context.Context, t token) (time.Time, error) {
	issued, end, err := IssueToken(ctx, i.kube, t.account, t.audience, tokenLifetime)
	if err != nil {
		return time.Time{}, err
	}
	if err := writePrivate(t.path, []byte(issued)); err != nil {
		return time.Time{}, err
	}
	return end, nil
}

// keep renews the tokens until ctx ends. It compares wall clocks and looks often, because a laptop that slept has timers
// that are late.
func (i *identities) keep(ctx context.Context, end time.Time) {
	tick := time.NewTicker(renewRetry)
	defer tick.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !dueForRenewal(i.now(), end) {
			continue
		}
		next, err := i.issue(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			end, failed = next, false
		case !failed: // once per outage
			failed = true
			i.report(Event{Kind: EventProblem, Part: "identities", Message: fmt.Sprintf("renewing tokens: %v; retrying every %s", err, renewRetry)})
		}
	}
}

func dueForRenewal(now, end time.Time) bool {
	return !now.Round(0).Before(end.Add(-renewEarly)) // Round(0): the wall clock, not the one that stops while asleep
}
