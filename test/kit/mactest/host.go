package mactest

import (
	"context"
	"os"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// Host is the Mac as a machost.Host. Commands run as root, or as the user in DEVMAC_USER, and in the test's own process if they need none of
// their own.
func (m *Mac) Host() machost.Host {
	return host{machost.Local{Root: string(m.Root)}, m}
}

type host struct {
	machost.Local
	mac *Mac
}

// Run is Local's, except for the process.
func (h host) Run(ctx context.Context, command machost.Command) (machost.Result, error) {
	if len(command.Env) == 0 && ctx.Err() == nil {
		user := os.Getenv("DEVMAC_USER")
		if user == "" {
			user = "root"
		}
		stdout, stderr, exit, done, err := h.mac.Root.RunInside(ctx, user, command.Stdin, command.Path, command.Args...)
		if err != nil || done {
			return machost.Result{Stdout: cut(stdout), Stderr: cut(stderr), ExitCode: exit}, err
		}
	}
	return h.Local.Run(ctx, command)
}

// cut leaves what Local keeps of a stream.
func cut(text []byte) []byte { return text[:min(len(text), 64<<10)] }
