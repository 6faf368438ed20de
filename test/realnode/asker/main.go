// Command asker stands in for a runner that asks for containers: it holds the volume as the supervisor does, asks as the container hook does,
// and prints a line of JSON for each thing that happens. With "steps N" it asks for that many, one after the other, with "at TIME" for three
// at once, with "wait" for nothing, and with "nothing" it exits. With "deaf" it runs processes that ignore signals, with "bomb" those that
// have no end. "deaf exit" exits then; both exit when their pod is deleted.
package main

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/courier"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
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
	if len(os.Args) > 1 && process(os.Args[1:]) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == "wait" {
		<-ctx.Done()
		return
	}
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
	switch {
	case len(os.Args) == 3 && os.Args[1] == "steps":
		askForSteps(ctx, os.Args[2], say)
		return
	case len(os.Args) == 3 && os.Args[1] == "at":
		askAt(ctx, os.Args[2], say)
		return
	case len(os.Args) > 1 && askForProcesses(ctx, os.Args[1:], say):
		return
	}
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

// askForSteps asks for one container after the other, and prints when each has run a process.
func askForSteps(ctx context.Context, count string, say func(line)) {
	n, _ := strconv.Atoi(count)
	for i := range n {
		id := "r-" + strconv.Itoa(i)
		say(line{What: "begin"})
		response, err := courier.Ask(ctx, jobcontainer.Request{ID: id, Containers: []jobcontainer.Wanted{{Role: jobcontainer.RoleStep, Image: "job"}}})
		say(line{What: "response", Response: &response, Error: text(err)})
		run(ctx, response.Containers, say)
	}
	<-ctx.Done()
}

// askAt asks for a job container and two services at a time, in Unix seconds: other pods do the same.
func askAt(ctx context.Context, at string, say func(line)) {
	unix, _ := strconv.ParseInt(at, 10, 64)
	timer := time.NewTimer(time.Until(time.Unix(unix, 0)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return
	}
	say(line{What: "begin"})
	response, err := courier.Ask(ctx, jobcontainer.Request{ID: "r", Containers: []jobcontainer.Wanted{
		{Role: jobcontainer.RoleJob, Image: "job"}, {Role: jobcontainer.RoleService, Image: "job"}, {Role: jobcontainer.RoleService, Position: 1, Image: "job"},
	}})
	say(line{What: "response", Response: &response, Error: text(err)})
	run(ctx, response.Containers, say)
	<-ctx.Done()
}

// run runs a process in each container, and prints when the last one has ended.
func run(ctx context.Context, containers []jobcontainer.Granted, say func(line)) {
	for _, granted := range containers {
		if err := volume.Want(jobcontainer.Dir, granted.Name); err != nil {
			say(line{What: "want", Error: err.Error()})
		}
	}
	for _, granted := range containers {
		guard := client.New(jobcontainer.Socket(granted.Name))
		if err := guard.Wait(ctx); err != nil {
			say(line{What: "guard", Error: err.Error()})
		}
		if exit, err := guard.Exec(ctx, client.Process{Argv: []string{"/asker", "nothing"}}, client.Streams{}); err != nil || exit.Code != 0 {
			say(line{What: "exec", Error: text(err) + exit.Text})
		}
	}
	say(line{What: "ran"})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
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
