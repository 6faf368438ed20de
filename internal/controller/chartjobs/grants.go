package chartjobs

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// How long a new right may take to reach every API server, and how often it is tried until then. Helm creates a hook's role
// and starts its Job at once, and API servers read roles from a watch.
const (
	grantTakes = 15 * time.Second
	grantEvery = 250 * time.Millisecond
)

// granted calls do again for as long as it is forbidden, until the right must have arrived: then it is missing.
func granted(ctx context.Context, takes, every time.Duration, do func() error) error {
	over := time.NewTimer(takes)
	defer over.Stop()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := do()
		if !apierrors.IsForbidden(err) {
			return err
		}
		select {
		case <-tick.C:
		case <-over.C:
			return err
		case <-ctx.Done():
			return err
		}
	}
}
