package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/synthetic"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/rig"
)

// Record is one line of a machine's diary.
type Record struct {
	At time.Time `json:"at"`
	// Machine is its name.
	Machine string `json:"machine"`
	// Event is "on" (the machine was switched on), "start" or "end" (of a runner container).
	Event string `json:"event"`
	Pod   string `json:"pod,omitempty"`
	UID   string `json:"uid,omitempty"`
	// Code is the exit code, and Killed says that the container was made to end, not asked.
	Code   int32 `json:"code,omitempty"`
	Killed bool  `json:"killed,omitempty"`
}

// The events of a Record.
const (
	EventOn    = "on"
	EventStart = "start"
	EventEnd   = "end"
)

// Serve runs a machine of that name behind a unix socket until ctx ends, and then kills everything on it. Its pods from before it was last
// switched off are on record, and have ended in an unknown way. Its diary is appended to a file, one Record a line. Its runners start the
// worker of a job a gap after they have acquired the job.
func Serve(ctx context.Context, name, socket, diary string, gap time.Duration) error {
	file, err := os.OpenFile(diary, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the machine's diary: %w", err)
	}
	defer file.Close()
	// O_APPEND: each line is one write, so lines of concurrent containers do not mix.
	note := func(r Record) {
		r.At, r.Machine = time.Now().UTC(), name
		line, _ := json.Marshal(r) // a Record can always be encoded
		_, _ = file.Write(append(line, '\n'))
	}
	note(Record{Event: EventOn})
	made := synthetic.NewMachine(nil)
	kept, err := remember(ctx, made, socket+".pods")
	if err != nil {
		return err
	}
	for container, program := range rig.Programs(gap) {
		if container == runnerpod.ContainerRunner {
			program = observed(program, note)
		}
		made.Install(container, program)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing an earlier machine's socket: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("listening for node agents: %w", err)
	}
	front := &http.Server{Handler: handler(kept), ReadHeaderTimeout: 10 * time.Second}
	stopped := context.AfterFunc(ctx, func() { _ = front.Close() })
	defer stopped()
	err = front.Serve(listener)
	made.Off()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// observed notes when a runner begins and ends.
func observed(p synthetic.Program, note func(Record)) synthetic.Program {
	run := p.Run
	p.Run = func(ctx context.Context, terminate <-chan struct{}, pod *corev1.Pod, c sandbox.Container) int32 {
		note(Record{Event: EventStart, Pod: pod.Name, UID: string(pod.UID)})
		code := run(ctx, terminate, pod, c)
		note(Record{Event: EventEnd, Pod: pod.Name, UID: string(pod.UID), Code: code, Killed: ctx.Err() != nil})
		return code
	}
	return p
}

func handler(box sandbox.Sandbox) http.Handler {
	mux := http.NewServeMux()
	method := func(name string, do func(ctx context.Context, q call, a *answer) error) {
		mux.HandleFunc("POST /"+name, func(w http.ResponseWriter, r *http.Request) {
			var q call
			if err := json.NewDecoder(limited(r).Body).Decode(&q); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			var a answer
			a.fail(do(r.Context(), q, &a))
			_ = json.NewEncoder(w).Encode(a) // the agent may be dead by now
		})
	}
	method("admit", func(_ context.Context, q call, _ *answer) error { return box.Admit(q.Pod) })
	method("prepare", func(ctx context.Context, q call, _ *answer) error { return box.Prepare(ctx, q.Pod) })
	method("start", func(ctx context.Context, q call, _ *answer) error { return box.Start(ctx, q.Pod, *q.Spec) })
	method("inspect", func(ctx context.Context, q call, a *answer) error {
		state, err := box.Inspect(ctx, q.UID)
		a.State = &state
		return err
	})
	method("wait", func(ctx context.Context, q call, a *answer) error {
		exit, err := box.Wait(ctx, q.UID, q.Container)
		a.Exit = &exit
		return err
	})
	method("signal", func(ctx context.Context, q call, _ *answer) error {
		return box.Signal(ctx, q.UID, q.Container, q.Signal)
	})
	method("exec", func(ctx context.Context, q call, a *answer) (err error) {
		a.Code, err = box.Exec(ctx, q.UID, q.Container, q.Command, sandbox.Streams{})
		return err
	})
	method("remove", func(ctx context.Context, q call, _ *answer) error { return box.Remove(ctx, q.UID) })
	method("list", func(ctx context.Context, _ call, a *answer) (err error) {
		a.Pods, err = box.List(ctx)
		return err
	})
	return mux
}
