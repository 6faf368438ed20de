// Package dockerfile makes the containers of actions that have a Dockerfile. The pod's own BuildKit builds the image, in a container of the
// pod in which runc then runs it (ADR 0067): beside the pod's ephemeral containers, with the same mounts, and with the same first process,
// through which the hook does everything else (package guard).
//
// The hook asks for one by package builder. Serve answers, in the container of BuildKit: build.go builds the image, layout.go reads it,
// unpack_linux.go writes its files, bundle.go describes the container, and server_linux.go starts it.
package dockerfile
