package agentcmd

import (
	"context"
	"errors"
	"flag"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/buildkit"
)

// buildKitCommand is the first process of the container with the pod's BuildKit daemon.
func buildKitCommand(name string) Command {
	return Command{
		Use:   "buildkit",
		Short: "Start the pod's BuildKit daemon when a job uses it, until the runner ends",
		Long: `Listens for the jobs of a pod, and starts buildkitd of the container's image when the first one connects. If the daemon exits, it is
started again at the next connection. With --actions-socket the same is true of "dockerfile".

It ends when the runner has ended. TERM and other signals have no effect while there is a runner: the kubelet sends them to all containers
of a pod that is being deleted, while the job still runs.

It refuses to start without a user namespace of the pod's own. With --exec it is not that: it becomes the program in its arguments, with
the socket that it inherited (sd_listen_fds(3)). Started as ` + buildkit.RuncName + `, it becomes runc with the options that the pod's
seccomp profile requires.`,
		Example: "  " + name + " buildkit --storage 21474836480",
		Args:    AnyArgs,
		Define: func(flags *flag.FlagSet) Run {
			var o buildkit.Options
			flags.StringVar(&o.JobDir, "job-dir", jobcontainer.Dir, "the volume that the runner's supervisor holds while the runner runs")
			flags.StringVar(&o.Socket, "socket", jobcontainer.BuildKitSocket, "where jobs connect")
			flags.StringVar(&o.ActionsSocket, "actions-socket", "", "where the container hook connects for actions that have a Dockerfile")
			flags.StringVar(&o.Root, "root", "/var/lib/buildkit", "volume of layers and cache")
			flags.Int64Var(&o.Storage, "storage", 0, "how many bytes that directory may hold")
			flags.StringVar(&o.StateDir, "state-dir", "/run/bullpen", "a directory of this container alone")
			become := flags.Bool("exec", false, "become the program in the arguments")
			return func(ctx context.Context, args []string) error {
				if *become {
					return buildkit.Exec(args)
				}
				if o.Storage <= 0 {
					return errors.New("buildkit requires --storage")
				}
				o.Log = logger()
				return buildkit.Run(ctx, o)
			}
		},
	}
}
