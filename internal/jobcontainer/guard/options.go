package guard

import (
	"log/slog"
	"time"
)

// Options of Run. The zero value of an optional field takes its default.
type Options struct {
	// Name of the container.
	Name string
	// Dir is the volume that the pod's containers share; jobcontainer.Dir when empty.
	Dir string
	// WantPatience is how long the directory of the container may be missing; volume.WantPatience when zero.
	WantPatience time.Duration
	// Log gets the guard's own messages; discarded when nil. No argument, environment or output of a process is in them.
	Log *slog.Logger
}
