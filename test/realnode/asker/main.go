// Command asker stands in for a runner that asks for containers: it holds the volume as the supervisor does, asks as the container hook does,
// and prints a line of JSON for each thing that happens.
package main

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/courier"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/volume"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
)

// line is one thing that happened.
type line struct {
	What     string
	Seconds  float64
	Response *jobcontainer.Response `json:",omitempty"`
	Failure  *letter.Failure        `json:",omitempty"`
	Error    string                 `json:",omitempty"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	begun := time.Now()
	say := func(l line) {
		l.Seconds = time.Since(begun).Seconds()
		_ = json.NewEncoder(os.Stdout).Encode(l)
		begun = time.Now()
	}
	hold, err := volume.Take(jobcontainer.Dir)
	if err != nil {
		say(line{What: "hold", Error: err.Error()})
		os.Exit(1)
	}
	defer hold.Release()
	ask := func(id string, containers ...jobcontainer.Wanted) *jobcontainer.Response {
		response, err := courier.Ask(context.Background(), jobcontainer.Request{ID: id, Containers: containers})
		l := line{What: id, Response: &response}
		if err != nil {
			l.Error = err.Error()
		}
		say(l)
		return &response
	}
	job := jobcontainer.Wanted{Role: jobcontainer.RoleJob, Image: "job"}
	for _, granted := range ask("r-1", job).Containers {
		if err := volume.Want(jobcontainer.Dir, granted.Name); err != nil { // or its guard ends
			say(line{What: "want", Error: err.Error()})
		}
		awaitGuard(ctx, granted.Name)
		say(line{What: "guard"})
	}
	for _, granted := range ask("r-2", jobcontainer.Wanted{Role: jobcontainer.RoleStep, Image: "missing"}).Containers {
		failure := awaitFailure(ctx, granted.Name)
		say(line{What: "failure", Failure: &failure})
	}
	ask("r-1", job) // the same
	<-ctx.Done()    // the pod is being deleted
	begun = time.Now()
	if err := courier.Close(courier.Dir, courier.DeletedText); err != nil { // as the supervisor
		say(line{What: "close", Error: err.Error()})
	}
	ask("r-3", jobcontainer.Wanted{Role: jobcontainer.RoleStep, Image: "job"})
}

// awaitGuard returns when the guard of a container listens.
func awaitGuard(ctx context.Context, name string) {
	for ctx.Err() == nil {
		if conn, err := net.Dial("unix", jobcontainer.Socket(name)); err == nil { //nolint:noctx // it is on this machine
			_ = conn.Close()
			return
		}
		pause(ctx)
	}
}

func awaitFailure(ctx context.Context, name string) letter.Failure {
	for ctx.Err() == nil {
		if failure, ok := courier.FailureOf(name); ok {
			return failure
		}
		pause(ctx)
	}
	return letter.Failure{}
}

func pause(ctx context.Context) {
	timer := time.NewTimer(10 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
