package portforward

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/bullpen-ci/bullpen/internal/cli/reach"
)

// NoReleaseError says that a cluster has no release of the chart, or none in the namespace that was named.
type NoReleaseError struct {
	Cluster   string // its URL
	Namespace string // that was searched; empty: all
}

// Error says where it was searched, and how to name another place.
func (e *NoReleaseError) Error() string {
	where, other := "", "--context"
	if e.Namespace != "" {
		where, other = " in namespace "+e.Namespace, "--context or --system-namespace"
	}
	return fmt.Sprintf("the cluster at %s has no release of Bullpen%s. Install the chart, choose another with %s, or name a server with --server",
		e.Cluster, where, other)
}

// SeveralReleasesError says that a cluster has more than one release.
type SeveralReleasesError struct{ Services []Service }

// Error names them, and the flag that chooses one.
func (e *SeveralReleasesError) Error() string {
	names, namespaces := make([]string, len(e.Services)), map[string]bool{}
	for i, service := range e.Services {
		names[i] = service.String()
		namespaces[service.Namespace] = true
	}
	text := fmt.Sprintf("the cluster has %d releases of Bullpen, with the Services %s. ", len(names), strings.Join(names, ", "))
	if len(namespaces) > 1 {
		return text + "Choose one with --system-namespace"
	}
	first := e.Services[0]
	return text + fmt.Sprintf("Run `kubectl -n %s port-forward svc/%s %d` for one of them, and use --server http://127.0.0.1:%[3]d",
		first.Namespace, first.Name, first.Port)
}

// NoReadyPodError says that no pod of the server can be used.
type NoReadyPodError struct {
	Service Service
	Pods    int // that are not ready
}

// Error says how to see why.
func (e *NoReadyPodError) Error() string {
	return fmt.Sprintf("no pod of the Service %s is ready (%d not ready). `kubectl -n %s get pods -l %s` lists them",
		e.Service, e.Pods, e.Service.Namespace, selector)
}

// needs are the rules of a Role for port-forwards.
const needs = "list on services and pods, and get and create on pods/portforward"

// problem says what failed at the cluster's API, and for a missing right which rule is needed.
func problem(doing, namespace string, err error) error {
	if apierrors.IsForbidden(err) {
		return &forbiddenError{doing: doing, namespace: namespace, cause: err}
	}
	return reach.Cluster(doing, err)
}

// forbiddenError says which rights a port-forward needs.
type forbiddenError struct {
	doing, namespace string
	cause            error
}

// Error names the rule, and the way without it.
func (e *forbiddenError) Error() string {
	return fmt.Sprintf("%s: not allowed. A port-forward needs %s in namespace %s. Get these rights, or name a server with --server",
		e.doing, needs, e.namespace)
}

// Unwrap gives the API's own error.
func (e *forbiddenError) Unwrap() error { return e.cause }
