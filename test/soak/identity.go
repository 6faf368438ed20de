package soak

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/dev/onebox"
	"github.com/bullpen-ci/bullpen/test/soak/check"
	"github.com/bullpen-ci/bullpen/test/soak/schedule"
)

// tokenLifetime outlasts the longest run between two starts.
const tokenLifetime = 24 * time.Hour

// writeIdentities gives every part the identity that an installation gives it, with the chart's own rights (NET-8). Each
// token is a secret that must be seen nowhere.
func (s *System) writeIdentities(ctx context.Context) error {
	for _, name := range []string{"server", "controller"} {
		token, err := s.token(ctx, "bullpen-"+name, "")
		if err != nil {
			return err
		}
		config := &rest.Config{Host: s.admin.Host, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: s.admin.CAData}}
		if err := controlplane.WriteKubeconfig(s.identity(name), config); err != nil {
			return err
		}
	}
	token, err := s.token(ctx, "bullpen-controller", runnerapi.AudienceServer)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.secret("controller-server.token"), []byte(token), 0o600); err != nil {
		return fmt.Errorf("writing the controller's token: %w", err)
	}
	for _, node := range []string{schedule.Node1, schedule.Node2, schedule.NodeReal} {
		config, err := s.plane.Identity("system:node:"+node, "system:nodes")
		if err != nil {
			return err
		}
		if err := controlplane.WriteKubeconfig(s.identity(node), config); err != nil {
			return err
		}
	}
	return s.noteSecrets()
}

func (s *System) token(ctx context.Context, account, audience string) (string, error) {
	token, _, err := onebox.IssueToken(ctx, s.kube, account, audience, tokenLifetime)
	if err != nil {
		return "", err
	}
	return token, appendLines(s.evidence(check.FileSecrets), []check.Secret{{Kind: "token of " + account, Text: token}})
}

// noteSecrets tells the checker what else must be seen nowhere: the App's key, the webhook secret, the database's password.
func (s *System) noteSecrets() error {
	hook, err := s.hookSecret()
	if err != nil {
		return err
	}
	if _, err := s.appKey(); err != nil {
		return err
	}
	key, err := os.ReadFile(s.secret("app.pem"))
	if err != nil {
		return fmt.Errorf("reading the App's key: %w", err)
	}
	secrets := []check.Secret{{Kind: "webhook secret", Text: hook}, {Kind: "App's key", Text: string(key)}}
	if password, err := os.ReadFile(s.path("postgres", "password")); err == nil {
		secrets = append(secrets, check.Secret{Kind: "database password", Text: string(password)})
	}
	return appendLines(s.evidence(check.FileSecrets), secrets)
}
