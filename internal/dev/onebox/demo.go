package onebox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bullpen-ci/bullpen/examples"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
)

// DemoOptions of Demo.
type DemoOptions struct {
	Options
	// Jobs of the workflow; Runners in the pool.
	Jobs, Runners int
	// Keep keeps the state directory.
	Keep bool
	// Timeout bounds the jobs. Default: ten minutes and three seconds for each job.
	Timeout time.Duration
	// Terminal indicates that Out is one; the table is then redrawn in place. Width and Height are its size.
	Terminal bool
	Color    bool
	Size     func() (width, height int)
	// Out gets the table or the lines, and the summary. Required.
	Out io.Writer
	// Verdict, if set, receives the verdict too.
	Verdict func(Verdict)
}

// Limits of a demonstration's pools. An account of the stand-in may run 40 jobs at a time.
const (
	DemoDefaultRunners = 8
	DemoMaxRunners     = 38
	// demoMacs is how many macOS runners there are beside them.
	demoMacs = 2
	// DemoContainerJobs is the default number of jobs with containers.
	DemoContainerJobs = 14
)

// ErrDemoFailed reports that the demonstration ran and failed; the summary says why.
var ErrDemoFailed = errors.New("the demonstration failed")

func (o DemoOptions) withDefaults() (DemoOptions, error) {
	if o.Runners < 1 || o.Runners > DemoMaxRunners {
		return o, fmt.Errorf("--runners must be between 1 and %d, got %d", DemoMaxRunners, o.Runners)
	}
	if o.Timeout == 0 {
		o.Timeout = 10*time.Minute + time.Duration(o.Jobs)*3*time.Second
	}
	if o.Size == nil {
		o.Size = func() (int, int) { return 100, 40 }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
}

// Demo brings everything up, runs a workflow while it restarts the server, the controller and the node agent and while it
// changes the fleet (template, size, node, name), stops everything, and judges what happened. The error is ErrDemoFailed when the verdict is not good.
func Demo(ctx context.Context, opts DemoOptions) error {
	opts, err := opts.withDefaults()
	if err != nil {
		return err
	}
	file, err := opts.choose()
	if err != nil {
		return err
	}
	temporary := opts.StateDir == ""
	if temporary {
		if opts.StateDir, err = temporaryStateDir(); err != nil {
			return err
		}
	}
	evidence, err := runDemo(ctx, opts, file)
	if err != nil {
		if !errors.Is(err, ErrInterrupted) {
			fmt.Fprintf(opts.Out, "Logs: %s/logs\n", opts.StateDir)
			opts.Keep = true
		}
		return errors.Join(err, discard(opts, temporary))
	}
	verdict := Judge(evidence)
	verdict.Print(opts.Out, evidence.Jobs)
	if opts.Verdict != nil {
		opts.Verdict(verdict)
	}
	if !verdict.Passed() {
		fmt.Fprintf(opts.Out, "Logs: %s/logs\n", opts.StateDir)
		return ErrDemoFailed
	}
	return discard(opts, temporary)
}

// choose sets the pools, and returns the workflow for them. In containers there are no stand-ins for Macs.
func (o *DemoOptions) choose() (file WorkflowFile, err error) {
	var content []byte
	if o.Containers {
		if o.Pools, err = ContainerPools(o.Runners, false); err != nil {
			return file, err
		}
		// A changed template needs room for runners beside busy ones.
		o.Runners = min(o.Runners, max(1, fitting(o.Pools[0], runtime.NumCPU())-1))
		if err := unstructured.SetNestedField(o.Pools[0].Object, int64(o.Runners), "spec", "replicas"); err != nil {
			return file, fmt.Errorf("changing the default pool: %w", err)
		}
		content, err = mixedWorkflow(examples.Demo(), examples.Services(), demoServiceJobs, o.Jobs)
		return WorkflowFile{Name: "demo.yaml", Content: string(content)}, err
	}
	if content, err = mixedWorkflow(examples.Demo(), examples.MacWorkflow(), demoMacJobs, o.Jobs); err != nil {
		return file, err
	}
	if o.Pools, err = LoadPools("", o.Runners); err != nil {
		return file, err
	}
	macs, err := MacPool()
	if err != nil {
		return file, err
	}
	o.Macs, o.Pools = true, append(o.Pools, macs...)
	return WorkflowFile{Name: "demo.yaml", Content: string(content)}, nil
}

// runners are the sizes of the pools, by label.
func (o DemoOptions) runners() map[string]int {
	sizes := map[string]int{labelOf(o.Pools[0]): o.Runners}
	if o.Macs {
		sizes[labelOf(o.Pools[1])] = demoMacs
	}
	return sizes
}

// temporaryStateDir is a directory that root's PostgreSQL user can access.
func temporaryStateDir() (string, error) {
	dir, err := os.MkdirTemp("", "bullpen-demo-")
	if err != nil {
		return "", fmt.Errorf("creating a temporary state directory: %w", err)
	}
	return dir, nil
}

func discard(opts DemoOptions, temporary bool) error {
	if !temporary || opts.Keep {
		return nil
	}
	layout, err := NewLayout(opts.StateDir)
	if err != nil {
		return err
	}
	return layout.delete()
}

// demo is one demonstration under way.
type demo struct {
	opts   DemoOptions
	box    *Box
	github *standin.AdminClient
	pods   *podWatch
	fleet  *fleetChanges
	plan   restartPlan
	change changePlan
	began  time.Time

	jobs     []standin.JobView
	restarts []Restart
	changes  []Change
	// restarting and changing say what is being done right now; empty for nothing.
	restarting, changing string
	// replacing and making are not nil while a process is being replaced, or the fleet changed, and give the result.
	replacing chan outcome[Restart]
	making    chan outcome[Change]
	view      viewer
}

// outcome of something that was done beside the watching.
type outcome[T any] struct {
	value T
	err   error
}

// runDemo gathers the evidence. When it returns nothing runs, whatever the outcome.
func runDemo(ctx context.Context, opts DemoOptions, file WorkflowFile) (evidence Evidence, err error) {
	view := newViewer(opts)
	if report := opts.Report; report != nil {
		opts.Report = func(event Event) { view.above(func() { report(event) }) }
	}
	box, err := Start(ctx, opts.Options)
	if err != nil {
		return Evidence{}, err
	}
	d := &demo{opts: opts, box: box, plan: planRestarts(opts.Jobs, opts.Containers), change: planChanges(opts.Jobs), view: view}
	err = d.run(ctx, file)
	view.settle()
	if d.pods != nil {
		d.pods.close()
	}
	if err := box.stopAfter(ctx, err); err != nil {
		return Evidence{}, err
	}
	left, err := remaining(box.layout, opts.Binary)
	if err != nil {
		return Evidence{}, err
	}
	var remains []string
	if opts.Containers {
		if remains, err = nodeRemains(box.layout); err != nil {
			return Evidence{}, err
		}
	}
	return Evidence{
		Jobs: d.jobs, WantJobs: opts.Jobs, Expected: demoExpected, Removals: d.pods.seenRemovals(), Restarts: d.restarts,
		WantRestarts: d.plan.parts(), Changes: d.changes, WantChanges: d.change.kinds(),
		Runners: opts.runners(), Left: left, Containers: opts.Containers, Remains: remains,
	}, nil
}

func (d *demo) run(ctx context.Context, file WorkflowFile) error {
	var err error
	if d.github, err = d.box.GitHub(); err != nil {
		return err
	}
	if d.pods, err = watchPods(ctx, d.box.kube, d.opts.Now); err != nil {
		return err
	}
	if d.fleet, err = newFleetChanges(d.box, d.pods); err != nil {
		return err
	}
	warming, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	began := d.opts.Now()
	runners, which := d.opts.Runners, " in containers"
	if d.opts.Macs {
		runners, which = runners+demoMacs, fmt.Sprintf(", %d of them on the stand-in for a Mac", demoMacs)
	}
	d.box.report(Event{Kind: EventRunners, Message: fmt.Sprintf("waiting for %d idle runners%s", runners, which)})
	if err := d.pods.awaitIdle(warming, runners); err != nil {
		return err
	}
	d.box.report(Event{Kind: EventRunners, Message: fmt.Sprintf("%d runners idle after %s", runners, short(d.opts.Now().Sub(began)))})
	running, cancel := context.WithTimeout(ctx, d.opts.Timeout)
	defer cancel()
	d.began = d.opts.Now()
	run, err := submit(running, d.github, file)
	if err != nil {
		return err
	}
	d.box.report(Event{Kind: EventNote, Message: fmt.Sprintf("submitted a workflow of %d jobs", d.opts.Jobs)})
	if err := d.watch(running, run.ID); err != nil {
		return err
	}
	leaving, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	return d.fleet.awaitFormer(leaving)
}

// watch polls the jobs, shows them, and does what is due, until all jobs have completed.
func (d *demo) watch(ctx context.Context, run int64) error {
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	defer d.awaitBoth()
	for {
		jobs, err := d.github.Jobs(ctx, run, "")
		switch {
		case err == nil:
			d.jobs = jobs
		case ctx.Err() == nil:
			return fmt.Errorf("reading the jobs: %w", err)
		}
		done, busy, _ := countJobs(d.jobs)
		d.begin(ctx, done, busy)
		d.view.show(d.board())
		if done >= d.opts.Jobs && d.replacing == nil && d.making == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return d.stuck(done)
			}
			return ctx.Err()
		case r := <-d.replacing:
			d.replacing, d.restarting = nil, ""
			if r.err != nil {
				return fmt.Errorf("restarting a process while jobs run: %w", r.err)
			}
			d.restarts = append(d.restarts, r.value)
		case c := <-d.making:
			d.making, d.changing = nil, ""
			if c.err != nil {
				return fmt.Errorf("changing the fleet (%s) while jobs run: %w", c.value.Kind, c.err)
			}
			d.changes = append(d.changes, c.value)
		case <-tick.C:
		}
	}
}

// begin begins what is due: a restart and a change may be under way at the same time.
func (d *demo) begin(ctx context.Context, done, busy int) {
	onMac := 0
	if d.opts.Macs {
		onMac = d.runningOn(labelOf(d.opts.Pools[1]))
	}
	if step, due := d.plan.due(len(d.restarts), done, busy, onMac); due && d.replacing == nil {
		busy := step.running(busy, onMac)
		_, word := termination(step.hard)
		d.restarting = fmt.Sprintf("restarting the %s (%s) …", partName(step.part), word)
		d.replacing = beside(ctx, func(ctx context.Context) (Restart, error) {
			r, err := d.box.Replace(ctx, step.part, step.hard)
			return Restart{Replacement: r, Running: busy}, err
		})
	}
	if kind, due := d.change.due(len(d.changes), done, busy); due && d.making == nil {
		d.changing = changeVerb(kind) + " …"
		d.making = beside(ctx, func(ctx context.Context) (Change, error) {
			began := d.opts.Now()
			err := d.fleet.make(ctx, kind)
			return Change{Kind: kind, Running: busy, Took: d.opts.Now().Sub(began)}, err
		})
	}
}

// runningOn counts the jobs that run by that label.
func (d *demo) runningOn(label string) int {
	count := 0
	for _, job := range d.jobs {
		if job.Status == "in_progress" && runsOn(job) == label {
			count++
		}
	}
	return count
}

// beside does something within two minutes, beside the watching.
func beside[T any](ctx context.Context, do func(context.Context) (T, error)) chan outcome[T] {
	result := make(chan outcome[T], 1)
	bounded, cancel := context.WithTimeout(ctx, 2*time.Minute)
	go func() {
		defer cancel()
		value, err := do(bounded)
		result <- outcome[T]{value, err}
	}()
	return result
}

// awaitBoth waits for the restart and the change in progress.
func (d *demo) awaitBoth() {
	if d.replacing != nil {
		<-d.replacing // it ends with its context
	}
	if d.making != nil {
		<-d.making
	}
}

// stuck names jobs that did not end in time.
func (d *demo) stuck(done int) error {
	for _, job := range d.jobs {
		if job.Conclusion == "" {
			return fmt.Errorf("only %d of %d jobs completed within %s; %q is %s", done, d.opts.Jobs, short(d.opts.Timeout), job.Name, job.Status)
		}
	}
	return fmt.Errorf("only %d of %d jobs were created within %s", done, d.opts.Jobs, short(d.opts.Timeout))
}

func (d *demo) board() board {
	now := d.opts.Now()
	return board{
		Elapsed: now.Sub(d.began), Now: now, Jobs: d.jobs, WantJobs: d.opts.Jobs, Expected: demoExpected,
		Pods: d.pods.rows(), Restarts: d.restarts, Changes: d.changes, Notes: []string{d.restarting, d.changing},
	}
}
