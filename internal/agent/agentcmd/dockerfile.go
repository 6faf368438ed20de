package agentcmd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/dockerfile"
)

// inherited is the descriptor of the socket that buildkit passes on.
const inherited = 3

// dockerfileCommand makes the containers of actions that have a Dockerfile.
func dockerfileCommand(name string) Command {
	return Command{
		Use:   "dockerfile",
		Short: "Build the images of actions with a Dockerfile, and run them in the container of BuildKit",
		Long: `Started by "buildkit" when the container hook first asks for such an action. It listens on a socket that it inherits as descriptor 3.

With --unpack it is not that: it writes the layers in its arguments to a directory, which it makes its root.`,
		Example: "  " + name + " dockerfile --root /var/lib/buildkit/actions --buildkit " + jobcontainer.BuildKitSocket + " --runc /run/bullpen/bullpen-runc",
		Args:    AnyArgs,
		Define: func(flags *flag.FlagSet) Run {
			var o dockerfile.Options
			flags.StringVar(&o.Root, "root", "", "directory of the containers' files")
			flags.StringVar(&o.BuildKit, "buildkit", "", "socket of the BuildKit daemon")
			flags.StringVar(&o.Runc, "runc", "", "program that runs containers")
			flags.StringVar(&o.JobDir, "job-dir", jobcontainer.Dir, "the volume that the pod's containers share")
			unpack := flags.String("unpack", "", "an empty directory")
			return func(ctx context.Context, args []string) error {
				if *unpack != "" {
					return dockerfile.Unpack(*unpack, args)
				}
				if o.Root == "" || o.BuildKit == "" || o.Runc == "" {
					return errors.New("dockerfile requires --root, --buildkit and --runc")
				}
				file := os.NewFile(inherited, "socket")
				listener, err := net.FileListener(file)
				if err != nil {
					return fmt.Errorf("using the socket of descriptor %d: %w", inherited, err)
				}
				_ = file.Close() // the listener has its own
				o.Log = logger()
				return dockerfile.Serve(ctx, listener, o)
			}
		},
	}
}
