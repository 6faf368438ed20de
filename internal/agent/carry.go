package agent

import (
	"context"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/courier"
)

// Carry is courier.Run, woken by the kernel where it can be.
func Carry(ctx context.Context, o courier.RunOptions) error {
	o.Watch = watch
	return courier.Run(ctx, o)
}
