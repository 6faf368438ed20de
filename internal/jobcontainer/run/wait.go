package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/plan"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/steplog"
)

// sayWaiting is after which time, and how often, the log says that an image is being pulled.
const sayWaiting = 15 * time.Second

// deletedPatience is for a container that the kubelet was starting when the pod was deleted.
const deletedPatience = 10 * time.Second

// awaitGuards waits until the guard of each container answers. Meanwhile it says what the controller says of their images, and gives up
// when one of them will not start any more.
func (c *call) awaitGuards(ctx context.Context, containers []plan.Container) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Bounds.Start, refuse("%s", plan.StartTimeoutText(c.Bounds.Start)))
	defer cancel()
	w := &waiting{call: c, begun: time.Now(), said: map[string]string{}, ready: map[string]bool{}}
	type result struct {
		container string
		err       error
	}
	results := make(chan result, len(containers))
	var waits sync.WaitGroup
	defer waits.Wait()
	defer cancel() // before the wait
	for _, p := range containers {
		guard := c.Guard(p.Container)
		waits.Go(func() { results <- result{p.Container, guard.Wait(ctx)} })
	}
	look := time.NewTicker(c.Bounds.Look)
	defer look.Stop()
	for len(w.ready) < len(containers) {
		select {
		case r := <-results:
			if r.err != nil {
				return cause(ctx, r.err)
			}
			w.ready[r.container] = true
		case <-look.C:
			if err := w.look(containers); err != nil {
				return err
			}
		}
	}
	return nil
}

// cause is why ctx has ended, if that is the reason of an error.
func cause(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if why := context.Cause(ctx); !errors.Is(why, context.Canceled) {
		return why
	}
	return errCancelled
}

var errCancelled = &refusal{text: "The job was cancelled."}

// errNotStarted is the cause of a refusal after which the containers may be asked for again.
var errNotStarted = errors.New("a container has not started")

// waiting is what was seen and said while containers start.
type waiting struct {
	*call
	begun time.Time
	next  time.Duration // when to say next that it takes long
	said  map[string]string
	ready map[string]bool
	// deleted is when the pod was first seen to be deleted.
	deleted time.Time
}

// look reads what the controller says of containers that do not answer yet.
func (w *waiting) look(containers []plan.Container) error {
	waited := time.Since(w.begun)
	long := waited >= w.next+sayWaiting
	for _, p := range containers {
		if w.ready[p.Container] {
			continue
		}
		failure, known := w.Broker.FailureOf(p.Container)
		switch {
		case known && failure.Final && failure.Retriable:
			return &refusal{text: w.textOf(failure, p.Name, p.Image, p.Reference), cause: errNotStarted}
		case known && failure.Final:
			return refuse("%s", w.textOf(failure, p.Name, p.Image, p.Reference))
		case known && w.said[p.Container] != failure.Text:
			w.said[p.Container] = failure.Text
			w.say(steplog.Lines(w.textOf(failure, p.Name, p.Image, p.Reference))...)
		case long:
			w.say(fmt.Sprintf("Waiting for image '%s' to be pulled and started (%s).", steplog.Line(p.Image), waited.Round(time.Second)))
		}
	}
	if long {
		w.next = waited
	}
	return w.lookAtPod()
}

// lookAtPod gives up in a pod that is being deleted.
func (w *waiting) lookAtPod() error {
	sentence, deleted := w.Broker.Deleted()
	switch {
	case !deleted:
		return nil
	case w.deleted.IsZero():
		w.deleted = time.Now()
	case time.Since(w.deleted) >= deletedPatience:
		return refuse("%s", sentence)
	}
	return nil
}

// reason says why a container does not answer. The controller sees its status, and knows more than a connection that has ended.
func (c *call) reason(m *member, err error) error {
	if !errors.Is(err, client.ErrLost) && !errors.Is(err, client.ErrAbsent) {
		return err
	}
	if failure, known := c.awaitFailure(m.Container); known {
		return refuse("%s", c.textOf(failure, m.Name, m.Image, m.Reference))
	}
	memory := ""
	if c.memory() != "" {
		memory = " (" + c.memory() + ")"
	}
	return refuse("Container '%s' ended unexpectedly. It may have used more memory than the pool allows%s.", m.Name, memory)
}

// textOf is the sentence for a container. The controller sees the pod, and knows neither its name nor its image in the workflow.
func (c *call) textOf(failure letter.Failure, name, image, reference string) string {
	if failure.OutOfMemory {
		return plan.KilledForMemoryText(name, c.memory())
	}
	return strings.ReplaceAll(failure.Text, "'"+reference+"'", "'"+image+"'")
}

// memory of the pool, from Resources; empty: it is not said.
func (c *call) memory() string {
	_, memory, _ := strings.Cut(c.Resources, ", ")
	return memory
}

// awaitFailure waits for the controller's word about a container that has ended. A container's end is in its status within a second.
func (c *call) awaitFailure(container string) (letter.Failure, bool) {
	end := time.NewTimer(c.Bounds.Reason)
	defer end.Stop()
	look := time.NewTicker(c.Bounds.Look)
	defer look.Stop()
	for {
		if failure, known := c.Broker.FailureOf(container); known && failure.Final {
			return failure, true
		}
		select {
		case <-look.C:
		case <-end.C:
			return letter.Failure{}, false
		}
	}
}
