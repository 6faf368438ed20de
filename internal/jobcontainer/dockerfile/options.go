package dockerfile

import (
	"log/slog"
	"time"
)

// Options of Serve. The zero value of an optional field takes its default.
type Options struct {
	// Root is a directory for the containers' files. Required.
	Root string
	// BuildKit is the socket of the daemon, and Runc the program that runs containers. Required.
	BuildKit, Runc string
	// JobDir is where guards make their sockets; jobcontainer.Dir when empty.
	JobDir string
	// Self is the agent's binary, and Buildctl BuildKit's client; the running one, and "buildctl", when empty.
	Self, Buildctl string
	// GuardPatience is how long a container's guard may take to listen; a minute when zero.
	GuardPatience time.Duration
	// EndPatience bounds how long a container may take to end when its hook is gone; 20 s when zero.
	EndPatience time.Duration
	// Log; discarded when nil. No output of a build is in it.
	Log *slog.Logger
}
