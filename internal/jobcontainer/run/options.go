package run

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/dockerfile/builder"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
)

// Broker adds containers to the runner's pod.
type Broker interface {
	// Ask returns when it was decided, and the containers were added or not. They start after that.
	Ask(ctx context.Context, request jobcontainer.Request) (jobcontainer.Response, error)
	// FailureOf returns why a container does not run, or ended; false while nothing is known.
	FailureOf(container string) (letter.Failure, bool)
	// Deleted returns a sentence once the pod is being deleted, in which no further container starts.
	Deleted() (sentence string, deleted bool)
}

// Guard is the first process of one container, as *client.Client reaches it. Errors are client's: ErrAbsent, ErrLost, *Failure.
type Guard interface {
	Wait(ctx context.Context) error
	Release(ctx context.Context, user string) (client.Release, error)
	Links(ctx context.Context, links []client.Link) error
	Hosts(ctx context.Context, entries []client.HostEntry) error
	Relay(ctx context.Context, relay client.Relay) error
	Start(ctx context.Context, process client.Process, stopSignal string) (client.Status, error)
	Status(ctx context.Context) (client.Status, error)
	Health(ctx context.Context, process client.Process, timeout time.Duration) (client.HealthResult, error)
	Exec(ctx context.Context, process client.Process, streams client.Streams) (client.Exit, error)
	Logs(ctx context.Context, stdout, stderr io.Writer) error
	End(ctx context.Context, grace time.Duration) (client.Status, error)
}

// Builder makes containers of actions that have a Dockerfile, as *builder.Client does. Errors are its: *Failure, ErrLost.
type Builder interface {
	Make(ctx context.Context, request builder.Request, log io.Writer) (builder.Built, error)
}

// Options of Run.
type Options struct {
	// Input is the runner's command, JSON.
	Input io.Reader
	// Stdout and Stderr are the log of the step. The runner reads workflow commands in both.
	Stdout, Stderr io.Writer
	// Environ is the hook's environment: the runner's own, with what the runner adds.
	Environ []string
	// Signals are SIGINT and SIGTERM, with which the runner cancels a step; they may also end Run's ctx.
	Signals <-chan os.Signal
	// Pod is the pod's name: job.container.network of the workflow.
	Pod string
	// Platform is that of the pod's node, as linux/amd64; this program's own when empty.
	Platform string
	// Resources are those of the pool, for texts, as "8 CPU, 16Gi"; empty: they are not said.
	Resources string
	// Restricted says that containers run as the runner's user, and no process of theirs can have another one.
	Restricted bool
	// ShmBytes is the size of /dev/shm in the job's containers; 0: the container runtime's.
	ShmBytes int64
	// JobDir, GitHubDir and PrivateDir are volumes: jobcontainer.Dir, jobcontainer.GitHubDir, and a directory that no container of the job
	// has.
	JobDir, GitHubDir, PrivateDir string
	// WorkVolume is where the runner has the volume that is the work directory in containers. If it is empty, or not there, it is not compared with
	// the runner's work directory.
	WorkVolume string
	Broker     Broker
	// Builder is nil in a pod without BuildKit.
	Builder Builder
	// Guard returns the guard of a container.
	Guard func(container string) Guard
	// Bounds; the zero value takes the defaults.
	Bounds Bounds
}

// Bounds are how long things may take.
type Bounds struct {
	// Start is how long a container may take from its request to its guard's first answer, pulls included; 1 h when zero. Large images, and nodes that
	// pull one at a time, take long, and no status tells a pull from a kubelet that does nothing. The job's own timeout usually ends it sooner.
	Start time.Duration
	// Look is how often the controller's word about containers is read while waiting; 200 ms when zero.
	Look time.Duration
	// Reason is how long the controller may take to say why a container ended; 5 s when zero.
	Reason time.Duration
	// StopGrace is how long a container's main process has to end after its stop signal, unless the workflow says another time; 10 s when
	// zero, as in Docker.
	StopGrace time.Duration
}

func (o Options) withDefaults() (Options, error) {
	if o.Input == nil || o.Broker == nil || o.Guard == nil || o.JobDir == "" || o.GitHubDir == "" || o.PrivateDir == "" {
		return o, errors.New("starting the container hook: Input, Broker, Guard and the directories are required")
	}
	if o.Stdout == nil {
		o.Stdout = io.Discard
	}
	if o.Stderr == nil {
		o.Stderr = io.Discard
	}
	if o.Platform == "" {
		o.Platform = runtime.GOOS + "/" + runtime.GOARCH
	}
	for _, bound := range []struct {
		value *time.Duration
		usual time.Duration
	}{{&o.Bounds.Start, time.Hour}, {&o.Bounds.Look, 200 * time.Millisecond}, {&o.Bounds.Reason, 5 * time.Second}, {&o.Bounds.StopGrace, 10 * time.Second}} {
		if *bound.value <= 0 {
			*bound.value = bound.usual
		}
	}
	return o, nil
}
