package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/courier"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/volume"
)

// bombLimit ends a bomb that nothing else bounds.
const bombLimit = 8000

// process is one of a job's, in a container of it.
func process(args []string) bool {
	switch args[0] {
	case "nothing":
	case "ignore":
		ignore(len(args) > 1)
	case "fork":
		bomb()
	default:
		return false
	}
	return true
}

// askForProcesses is a runner whose job does not end by itself.
func askForProcesses(ctx context.Context, args []string, say func(line)) bool {
	switch args[0] {
	case "deaf":
		askFor(ctx, 1, say, "ignore")
	case "bomb":
		askFor(ctx, 0, say, "fork")
	default:
		return false
	}
	if len(args) == 1 {
		<-ctx.Done()
	}
	say(line{What: "exit"})
	return true
}

// askFor runs a command of this program in a job container and in services, and says what each of them prints first. It returns when all have.
func askFor(ctx context.Context, services int, say func(line), argv ...string) {
	wanted := []jobcontainer.Wanted{{Role: jobcontainer.RoleJob, Image: "job"}}
	for i := range services {
		wanted = append(wanted, jobcontainer.Wanted{Role: jobcontainer.RoleService, Position: i, Image: "job"})
	}
	response, err := courier.Ask(ctx, jobcontainer.Request{ID: "r", Containers: wanted})
	say(line{What: "response", Response: &response, Error: text(err)})
	printed := make(chan string)
	for _, granted := range response.Containers {
		if err := volume.Want(jobcontainer.Dir, granted.Name); err != nil {
			say(line{What: "want", Error: err.Error()})
		}
		go func() {
			guard := client.New(jobcontainer.Socket(granted.Name))
			if err := guard.Wait(ctx); err != nil {
				printed <- err.Error()
				return
			}
			exit, err := guard.Exec(ctx, client.Process{Argv: append([]string{"/asker"}, argv...)}, client.Streams{Stdout: writes(printed)})
			printed <- "exited: " + text(err) + exit.Text
		}()
	}
	for range response.Containers {
		say(line{What: strings.TrimSpace(<-printed)}) // bounded: the test waits for the line
	}
}

// writes are those of a process.
type writes chan<- string

func (w writes) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

// ignore ignores each signal that a process can, as does another process, in a session of its own.
func ignore(child bool) {
	signal.Ignore()
	if !child {
		other := exec.Command("/asker", "ignore", "child") //nolint:noctx // it ends with the container
		other.Stdout = os.Stdout
		other.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := other.Start(); err != nil {
			fmt.Println(err)
		}
		_ = other.Wait() // it does not exit
		return
	}
	fmt.Println("ignoring")
	forever()
}

func forever() {
	for {
		_ = syscall.Pause()
	}
}

// bomb starts processes until it cannot, and goes on trying.
func bomb() {
	for n, told := 0, false; ; {
		pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		switch {
		case errno == 0 && pid == 0:
			for {
				_, _, _ = syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0) // waits for ever. Nothing else of Go works in a process without its threads
			}
		case errno == 0:
			if n++; n > bombLimit {
				fmt.Println("unlimited")
				forever()
			}
		case !told:
			told = true
			fmt.Println(errno)
		}
	}
}
