package agentcmd

import (
	"context"
	"flag"
	"fmt"

	"github.com/bullpen-ci/bullpen/internal/agent"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/courier"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
)

func courierCommand(name string) Command {
	return Command{
		Use:   "courier [RESPONSE…]",
		Short: "Carry a job's request for containers to the controller, in the container's termination message",
		Long: `Writes the responses that the controller has put in the arguments into the volume, waits for the next request in it, and
exits with the request as termination message. Exits without one when the runner has exited, or when it is stopped.`,
		Example: "  " + name + " courier --limit 1024",
		Args:    AnyArgs,
		Define: func(flags *flag.FlagSet) Run {
			var o courier.RunOptions
			flags.StringVar(&o.Dir, "dir", courier.Dir, "volume shared with the container hook")
			flags.StringVar(&o.Lock, "lock", jobcontainer.Lock, "file that is locked while the runner runs")
			flags.StringVar(&o.MessageFile, "message-file", "/dev/termination-log", "the container's termination message")
			flags.StringVar(&o.Request, "request", "", "request to continue (default: the next one)")
			flags.IntVar(&o.From, "from", 0, "position in the request to continue at")
			flags.IntVar(&o.Limit, "limit", 0, "size of the termination message, in bytes")
			flags.BoolVar(&o.DeliverOnly, "deliver-only", false, "wait for no request")
			return func(ctx context.Context, arguments []string) error {
				if len(arguments) > 0 {
					delivery, err := letter.ParseDelivery(arguments)
					if err != nil {
						return fmt.Errorf("starting: %w", err)
					}
					o.Delivery = delivery
				}
				o.Log = logger()
				return agent.Carry(ctx, o)
			}
		},
	}
}
