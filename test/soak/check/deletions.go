package check

import (
	"net/http"
	"slices"
	"strings"
)

// The checker's knowledge of the installation.
const (
	runnersNamespace = "bullpen-runners"
	controllerUser   = "system:serviceaccount:bullpen-system:bullpen-controller"
	nodeUsers        = "system:node:"
)

// deletions asks who deleted pods and service accounts of runners (EXCL-2). A node may finish a deletion that an
// authorized client has begun; the soak's own deeds are its own. A deletion whose client was killed may have begun although the API server
// responded with an error of its own.
func (x *examiner) deletions() {
	begun := map[string]bool{}
	events := slices.Clone(x.Audit)
	slices.SortStableFunc(events, func(a, b AuditEvent) int { return a.At.Compare(b.At) })
	for _, a := range events {
		if a.ObjectRef.Namespace != runnersNamespace {
			continue
		}
		name, user := a.ObjectRef.Name, a.User.Username
		if user == controllerUser && a.Verb == "delete" && a.ObjectRef.Subresource == "" && a.ResponseStatus.Code >= http.StatusInternalServerError {
			begun[name] = true
		}
		if !a.Accepted() {
			continue
		}
		switch {
		case a.Is("create", "pods/eviction"):
			x.find(RowDeletions, x.podTimeline(name), "%s", a)
		case a.Verb != "delete" && a.Verb != "deletecollection", a.ObjectRef.Subresource != "":
		case user == controllerUser:
			begun[name] = true
		case a.Verb == "delete" && x.index.stopped[name]:
			begun[name] = true
		case a.Verb == "delete" && strings.HasPrefix(user, nodeUsers) && a.ObjectRef.Resource == "pods" && begun[name]:
		default:
			x.find(RowDeletions, x.podTimeline(name), "%s", a)
		}
	}
}
