package buildkit

import (
	"log/slog"
	"time"
)

// Options of Run. The zero value of an optional field takes its default.
type Options struct {
	// JobDir is the volume that the runner's supervisor holds while the runner runs. Required.
	JobDir string
	// Socket is where jobs connect. Required.
	Socket string
	// ActionsSocket is where a job's hook connects for containers of actions that have a Dockerfile (package dockerfile); empty: nowhere.
	ActionsSocket string
	// Root is the volume of the daemon's layers and cache, and Storage how many bytes it may hold. Required.
	Root    string
	Storage int64
	// StateDir is a directory of this container alone. Required.
	StateDir string
	// Program is the daemon, and Self the agent's binary; "buildkitd", and the running one, when empty.
	Program, Self string
	// LookEvery is the interval at which a runner that has not started is looked for, and Backoff the time until a daemon that has exited
	// may be started again; 20 ms and 1 s when zero.
	LookEvery, Backoff time.Duration
	// Settle is how long a lock that was just made may be free: its owner takes it right after. 1 s when zero.
	Settle time.Duration
	// Shortest is how long a daemon runs at least that has not failed to start: connections that wait when it exits earlier are closed. 10 s when
	// zero.
	Shortest time.Duration
	// UIDMap is the file of this process's user namespace; /proc/self/uid_map when empty.
	UIDMap string
	// Log; discarded when nil. The daemon writes to this process's own standard output and error.
	Log *slog.Logger
}
