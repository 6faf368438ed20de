package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
)

// loadKubeconfig is the configuration of a context of the caller's kubeconfig, or of the file named.
func loadKubeconfig(file, context string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	switch {
	case err == nil:
		return config, nil
	case clientcmd.IsContextNotFound(err):
		return nil, fmt.Errorf("context %q not found in the kubeconfig. `kubectl config get-contexts` lists contexts", context)
	case file != "" && errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("kubeconfig %s not found. Choose another with --kubeconfig", file)
	case clientcmd.IsEmptyConfig(err):
		return nil, &noKubeconfigError{searched: strings.Join(rules.GetLoadingPrecedence(), ", ")}
	}
	return nil, fmt.Errorf("reading the kubeconfig: %w. Choose another with --kubeconfig or --context", err)
}

// noKubeconfigError says that there is no kubeconfig.
type noKubeconfigError struct{ searched string }

// Error names where it was searched, and the flag.
func (e *noKubeconfigError) Error() string {
	return "no kubeconfig found (" + e.searched + "). Name one with --kubeconfig"
}

// poolNotFound suggests pools of almost the same name.
func poolNotFound(name, where string, there []string) error {
	text := fmt.Sprintf("pool %q not found%s", name, where)
	if near := commandline.Near(name, there); len(near) > 0 {
		return errors.New(text + ". Did you mean " + strings.Join(near, " or ") + "?")
	}
	return errors.New(text + ". `bullpen pools` lists pools.")
}
