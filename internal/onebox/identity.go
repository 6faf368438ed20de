package onebox

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/bullpen-ci/bullpen/internal/controlplane"
	"github.com/bullpen-ci/bullpen/internal/dispatchapi"
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

// identities keeps the files that our processes prove themselves with: a kubeconfig that names a token file for the
// server and the controller, the controller's token for the server, and the node agent's client certificate. Nobody
// gets more rights than the chart gives (NET-8); the administrator's certificate stays in this process.
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
		{account: "bullpen-controller", audience: dispatchapi.AudienceServer, path: l.identity("controller-server.token")},
	}}
}

// writeKubeconfigs writes the files that do not change while the processes run.
func writeKubeconfigs(l Layout, plane *controlplane.ControlPlane) error {
	admin := plane.AdminConfig()
	for _, name := range []string{partServer, partController} {
		if err := writeTokenKubeconfig(l.identity(name+".kubeconfig"), admin, l.identity(name+".token")); err != nil {
			return err
		}
	}
	node, err := plane.Identity("system:node:"+NodeName, "system:nodes")
	if err != nil {
		return err
	}
	return controlplane.WriteKubeconfig(l.identity(partNode+".kubeconfig"), node)
}

// writeTokenKubeconfig names the token's file instead of holding the token: clients read it again when it is renewed.
func writeTokenKubeconfig(path string, cluster *rest.Config, tokenFile string) error {
	const name = "bullpen"
	file := clientcmdapi.NewConfig()
	file.Clusters[name] = &clientcmdapi.Cluster{Server: cluster.Host, CertificateAuthorityData: cluster.CAData}
	file.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: tokenFile}
	file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	file.CurrentContext = name
	data, err := clientcmd.Write(*file)
	if err != nil {
		return fmt.Errorf("encoding a kubeconfig: %w", err)
	}
	return writePrivate(path, data)
}

// issue writes every token anew and returns when the first of them ends.
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
	seconds := int64(tokenLifetime / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if t.audience != "" {
		request.Spec.Audiences = []string{t.audience}
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	issued, err := i.kube.CoreV1().ServiceAccounts(SystemNamespace).CreateToken(ctx, t.account, request, metav1.CreateOptions{})
	if err != nil {
		return time.Time{}, fmt.Errorf("asking for a token of ServiceAccount %s: %w", t.account, err)
	}
	if err := writePrivate(t.path, []byte(issued.Status.Token)); err != nil {
		return time.Time{}, err
	}
	return issued.Status.ExpirationTimestamp.Time, nil
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
			i.report(Event{Kind: EventProblem, Part: "identities", Message: fmt.Sprintf("renewing tokens: %v; trying again every %s", err, renewRetry)})
		}
	}
}

func dueForRenewal(now, end time.Time) bool {
	return !now.Round(0).Before(end.Add(-renewEarly)) // Round(0): the wall clock, not the one that stops while asleep
}
