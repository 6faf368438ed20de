package dockerfile

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/dockerfile/builder"
)

// build has BuildKit build an image, and write it to dir with layers that are not compressed. An error of the build is a *Failure, and is in
// its output.
func build(ctx context.Context, program, buildkit string, request builder.Request, dir string, output io.Writer) (image, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return image{}, builder.Failf("the image of BuildKit has no buildctl. An administrator must set another one in buildKit.image of the pool")
	}
	// BuildKit keeps what it has of "context", and takes a file of the same name, size, mode and time for the same one. Actions of one repository
	// all have the time of its commit, so what another action has left must go. Layers are kept: they go by content.
	prune := exec.CommandContext(ctx, path, "--addr", "unix://"+buildkit, "prune", "--filter", "type==source.local")
	said := &tail{} // it may be a job that answers at the socket
	prune.Stdout, prune.Stderr = said, said
	if err := prune.Run(); err != nil {
		if ctx.Err() != nil {
			return image{}, ctx.Err()
		}
		return image{}, builder.Failf("BuildKit can't be prepared: %v: %s", err, said.or("no message"))
	}
	// The context's path is no argument, in which some characters would be separators.
	command := exec.CommandContext(ctx, path, "--addr", "unix://"+buildkit, "build", "--progress", "plain", "--frontend", "dockerfile.v0",
		"--local", "context=.", "--local", "dockerfile=.", "--opt", "filename="+request.File,
		"--output", "type=oci,tar=false,compression=uncompressed,force-compression=true,dest="+dir)
	command.Dir, command.Stdout, command.Stderr = request.Directory, output, output
	command.WaitDelay = 5 * time.Second
	err = command.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return image{}, ctx.Err()
	case errors.As(err, &exit):
		return image{}, builder.Failf("the build has failed (exit code %d)", exit.ExitCode())
	case err != nil:
		return image{}, builder.Failf("buildctl can't be started: %v", err)
	}
	return readLayout(dir)
}
