package doctor

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// optionalPart is one that an installation turns on by a value of the chart. Its kinds are installed in any case: without it, the API server
// accepts their objects, and the controller ignores them.
type optionalPart struct {
	code, what, value, also string
	resources               []string
}

var optionalParts = []optionalPart{
	{
		code: "self-registering-off", what: "Self-registering runners", value: "selfRegistering.enabled",
		also:      " Add the runners' labels to server.otherRunnerLabels, too.",
		resources: []string{"runnerdeployments", "runnersets", "runnerreplicasets", "runners"},
	},
	{code: "mac-hosts-off", what: "MacHosts", value: "macHosts.enabled", resources: []string{"machosts"}},
}

// Unreconciled is an object of an optional part's kind to which no controller has written a status.
type Unreconciled struct {
	Code, Kind, Name string
	CreatedAt        time.Time
}

// unreconciled reads the kinds of optional parts. A controller that reconciles an object writes its status at once, also of one that is
// invalid; how the controller was started need not be known.
func (c *clusterGatherer) unreconciled(ctx context.Context) {
	for _, part := range optionalParts {
		for _, resource := range part.resources {
			list, err := c.dynamic.Resource(v1alpha1.GroupVersion.WithResource(resource)).Namespace(c.in.RunnerNamespace).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				continue // the definition is missing, which is a finding already
			}
			if !c.could("the "+resource, err) {
				return
			}
			for i := range list.Items {
				object := &list.Items[i]
				status, _, _ := unstructured.NestedMap(object.Object, "status")
				if len(status) == 0 && object.GetDeletionTimestamp() == nil {
					c.seen.Unreconciled = append(c.seen.Unreconciled, Unreconciled{part.code, object.GetKind(), object.GetName(), object.GetCreationTimestamp().Time})
				}
			}
		}
	}
}

// examineUnreconciled reports a part that is off and has objects. Without a controller nothing is reconciled, which is another finding.
func examineUnreconciled(r *Report, c Cluster, now time.Time) {
	if c.Lease != nil && c.Lease.unheld(now) {
		return
	}
	for _, part := range optionalParts {
		var names []string
		for _, object := range c.Unreconciled {
			if object.Code == part.code && now.Sub(object.CreatedAt) > settling {
				names = append(names, object.Kind+" "+object.Name)
			}
		}
		if len(names) == 0 {
			continue
		}
		r.found(Finding{
			Code: part.code, Severity: SeverityError, Subject: c.RunnerNamespace,
			Sentence: part.what + " are not reconciled: the controller has not written a status to " + some(names) + ".",
			Remedy: "Set the chart's value " + part.value + " to true, and run `helm upgrade`." + part.also + " If it is true already, see the controller's log: `kubectl -n " +
				c.SystemNamespace + " logs deploy/bullpen-controller`.",
		})
	}
}
