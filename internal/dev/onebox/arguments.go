package onebox

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// This file is how the server and the controller are started as processes of one machine: by a Box, by the soak, which starts two of
// each, and by test/kit/rig.

// Server holds the arguments of `bullpen server`. Addresses are host:port; each secret is in a file.
type Server struct {
	Listen, Internal, Admin, Metrics string
	DatabaseURLFile, Kubeconfig      string
	RunnerNamespace                  string
	GitHubURL                        string
	AppID                            int64
	AppKeyFile                       string
	WebhookSecretFile                string // empty: deliveries are read at GitHub
	Flags                            []string
}

// Args are the arguments after the program's name.
func (s Server) Args() []string {
	hooks := "--webhooks=poll"
	if s.WebhookSecretFile != "" {
		hooks = "--webhook-secret-file=" + s.WebhookSecretFile
	}
	return append([]string{
		"server",
		"--listen=" + s.Listen,
		"--internal-listen=" + s.Internal,
		"--admin-listen=" + s.Admin,
		"--metrics-listen=" + s.Metrics,
		"--database-url-file=" + s.DatabaseURLFile,
		"--kubeconfig=" + s.Kubeconfig,
		"--runner-namespace=" + s.RunnerNamespace,
		"--author-policy=bullpen-authors", // of charts/rendered
		"--github-url=" + s.GitHubURL,
		"--github-app-id=" + strconv.FormatInt(s.AppID, 10),
		"--github-private-key-file=" + s.AppKeyFile,
		hooks,
	}, s.Flags...)
}

// Controller holds the arguments of `bullpen controller`.
type Controller struct {
	Kubeconfig                 string
	ServerURL, ServerTokenFile string
	DispatchURL                string // the server's, as runner pods reach it
	AgentImage, AgentCommand   string // no AgentCommand: the image's
	Health, Metrics            string // host:port
	LeaderElection             bool
	Flags                      []string
}

// Args are the arguments after the program's name.
func (c Controller) Args() []string {
	args := []string{
		"controller",
		"--kubeconfig=" + c.Kubeconfig,
		"--server-url=" + c.ServerURL,
		"--server-token-file=" + c.ServerTokenFile,
		"--dispatch-url=" + c.DispatchURL,
		"--agent-image=" + c.AgentImage,
		"--health-addr=" + c.Health,
		"--metrics-addr=" + c.Metrics,
		"--leader-elect=" + strconv.FormatBool(c.LeaderElection),
	}
	if c.AgentCommand != "" {
		args = append(args, "--agent-command="+c.AgentCommand)
	}
	return append(args, c.Flags...)
}

// IssueToken asks for a token of a ServiceAccount in SystemNamespace. No audience: the API server's own.
func IssueToken(ctx context.Context, kube kubernetes.Interface, account, audience string, lifetime time.Duration) (token string, end time.Time, err error) {
	seconds := int64(lifetime / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	issued, err := kube.CoreV1().ServiceAccounts(SystemNamespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", time.Time{}, fmt.Errorf("asking for a token of ServiceAccount %s: %w", account, err)
	}
	return issued.Status.Token, issued.Status.ExpirationTimestamp.Time, nil
}

// Answers asks a URL by GET, over a connection of its own: an error unless the status is 200.
func Answers(url string) func(context.Context) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return fmt.Errorf("asking %s: %w", url, err)
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("asking %s: status %d", url, response.StatusCode)
		}
		return nil
	}
}
