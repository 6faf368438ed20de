package agentcmd

import (
	"context"
	"errors"
	"flag"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard"
)

// guardCommand is the first process of each container of a job.
func guardCommand(name string) Command {
	return Command{
		Use:   "guard --name NAME",
		Short: "Run a job's container: start, watch and end its processes, as its runner asks through a socket",
		Long: `The first process of each container that is added to a runner's pod for a job. It starts what the image would have run, and the job's
steps, when the runner asks for it through the socket NAME/guard.sock of the volume that they share.

When the runner asks it to end, it kills all processes, removes the files that they have written to the container's own file system, and exits.

It ends when the runner has ended, and at once if the container is not wanted any more when it starts. TERM and other signals have no
effect: the kubelet sends them to all containers of a pod that is being deleted, while the job still runs.

With --nofile it is not a guard: it sets its limit of open files and becomes the program in its arguments.

Exit codes: 0 all files are removed, or the container was not needed; 1 it failed, or files are left; 3 the runner ended while processes could run:
the files stay until the pod is deleted; with --nofile that of the program.`,
		Example: "  " + name + " guard --name job-1",
		Args:    AnyArgs,
		Define: func(flags *flag.FlagSet) Run {
			container := flags.String("name", "", "name of the container")
			dir := flags.String("dir", jobcontainer.Dir, "the volume that the pod's containers share")
			nofile := flags.String("nofile", "", "SOFT:HARD: the limit of open files of PROGRAM NAME [ARGUMENT…], which this process becomes")
			return func(ctx context.Context, args []string) error {
				if *nofile != "" {
					return guard.Limit(*nofile, args)
				}
				if *container == "" {
					return errors.New("guard requires --name")
				}
				return guard.Run(ctx, guard.Options{Name: *container, Dir: *dir, Log: logger()})
			}
		},
	}
}
