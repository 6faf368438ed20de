package agent

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/courier"
)

// Carry is courier.Run, woken by the kernel where it can be.
func Carry(ctx context.Context, o courier.RunOptions) error {
	o.Watch = watch
	return courier.Run(ctx, o)
}

// InstallContainerHook writes the script that ACTIONS_RUNNER_CONTAINER_HOOKS names. GitHub's runner takes no other files than scripts
// (ScriptHandlerHelpers.cs of actions/runner).
func InstallContainerHook(path, program string) error {
	quoted := "'" + strings.ReplaceAll(program, "'", `'\''`) + "'"
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexec "+quoted+" container-hook\n"), 0o755); err != nil { //nolint:gosec // the runner may be another user
		return fail("installing the container hook %s: %v", path, withoutPath(err))
	}
	return nil
}

// InstallBuilder writes a configuration of docker buildx with one builder: the BuildKit daemon at that address. docker build and its
// actions would otherwise ask for a Docker daemon. The format is that of store.NodeGroup in docker/buildx.
func InstallBuilder(dir, name, address string) error {
	type node struct{ Name, Endpoint string }
	builder, err := json.Marshal(struct {
		Name, Driver string
		Nodes        []node
	}{name, "remote", []node{{name + "0", address}}})
	if err != nil {
		return fail("writing the builder of docker buildx: %v", err)
	}
	instances := filepath.Join(dir, "instances")
	for _, made := range []string{dir, instances} {
		if err := os.MkdirAll(made, 0o777); err != nil { //nolint:gosec // containers of the job may have other users
			return fail("writing the builder of docker buildx: %v", withoutPath(err))
		}
	}
	if err := os.WriteFile(filepath.Join(instances, name), builder, 0o644); err != nil { //nolint:gosec // as above; it has no secret
		return fail("writing the builder of docker buildx: %v", withoutPath(err))
	}
	return nil
}

// closeRequests lets a job know at once that no container can be added to its pod, which is being deleted.
func (s *supervisor) closeRequests() {
	if s.JobDir == "" || s.CourierDir == "" {
		return
	}
	if err := courier.Close(s.CourierDir, courier.DeletedText); err != nil {
		s.Log.Warn("requests for containers cannot be closed: a job that sends one waits until its timeout", "error", err)
	}
}
