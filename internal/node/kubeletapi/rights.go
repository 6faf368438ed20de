package kubeletapi

import (
	"net/http"
	"strings"
)

// The subresources of a node that requests are about. A right to "proxy" is one to everything.
const (
	rightProxy   = "proxy"
	rightMetrics = "metrics"
	rightPods    = "pods"
	rightHealthz = "healthz"
)

// wanted are the subresources of which one must be allowed, the narrower first, as a kubelet has it
// (https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/). Logs of containers, and commands in them, are
// under proxy alone: nodes/log is about files of the machine, which are not served here.
func wanted(path string) []string {
	switch {
	case within(path, "/metrics"):
		return []string{rightMetrics}
	case within(path, "/pods"):
		return []string{rightPods, rightProxy}
	case within(path, "/healthz"):
		return []string{rightHealthz, rightProxy}
	}
	return []string{rightProxy}
}

func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

// verbOf is the verb of a request; empty for methods that nothing here has. Running a command is "create" by either method. At a kubelet it
// is "get" by a WebSocket, which begins as a GET, so that a user who may get a node may run commands there; here they may not.
func verbOf(method, path string) string {
	switch {
	case method != http.MethodGet && method != http.MethodPost:
		return ""
	case method == http.MethodPost, within(path, "/exec"), within(path, "/attach"), within(path, "/portForward"), within(path, "/run"):
		return "create"
	}
	return "get"
}
