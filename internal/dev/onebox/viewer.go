package onebox

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// viewer shows the board as it changes. It is safe for concurrent use.
type viewer interface {
	show(b board)
	// above writes something in place of the table, which is drawn again below it.
	above(write func())
	// settle leaves what is shown as it is, for other output to follow.
	settle()
}

func newViewer(opts DemoOptions) viewer {
	if opts.Terminal {
		return &tableViewer{screen: screen{out: opts.Out}, size: opts.Size, color: opts.Color}
	}
	v := &lineViewer{out: opts.Out, many: opts.Jobs > fewJobs}
	v.follow.name = func(runner string) string { return podOf(v.pods, runner) }
	return v
}

// tableViewer redraws the table in place.
type tableViewer struct {
	mu     sync.Mutex
	screen screen
	size   func() (width, height int)
	color  bool
}

func (v *tableViewer) show(b board) {
	v.mu.Lock()
	defer v.mu.Unlock()
	width, height := v.size()
	v.screen.draw(render(b, width, height-1, v.color))
}

func (v *tableViewer) above(write func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.screen.clear()
	write()
}

func (v *tableViewer) settle() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.screen.drawn = 0
}

// fewJobs is how many jobs get a line of their own for each change, where nothing can be redrawn.
const fewJobs = 60

// lineViewer writes a line for each change, or, with many jobs, one every few seconds.
type lineViewer struct {
	mu       sync.Mutex
	out      io.Writer
	many     bool
	follow   follower
	restarts int
	changed  int
	last     time.Duration
	lastDone int
	pods     []podRow
}

// podOf names the pod behind a runner: that is what kubectl and the state directory know it by.
func podOf(pods []podRow, runner string) string {
	uid, _ := runnerpod.PodUID(runner)
	for _, pod := range pods {
		if pod.UID == uid {
			return pod.Name
		}
	}
	return runner
}

func (v *lineViewer) show(b board) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pods = b.Pods
	changes := v.follow.changes(b.Jobs)
	done, running, queued := countJobs(b.Jobs)
	if !v.many {
		for _, change := range changes {
			fmt.Fprintf(v.out, "%s  %s\n", clock(b.Elapsed), change.Message)
		}
	} else if done != v.lastDone && (b.Elapsed-v.last >= 3*time.Second || done == b.WantJobs) {
		v.last, v.lastDone = b.Elapsed, done
		fmt.Fprintf(v.out, "%s  %d of %d jobs done, %d running, %d queued; runners: %d idle, %d busy, %d starting\n", clock(b.Elapsed),
			done, b.WantJobs, running, queued, countStage(b.Pods, stageIdle), countStage(b.Pods, stageBusy), countStage(b.Pods, stageStarting))
	}
	for _, r := range b.Restarts[v.restarts:] {
		part := "the " + partName(r.Part)
		if r.Part == partContainerd {
			part = partContainerd
		}
		fmt.Fprintf(v.out, "%s  restarted %s (%s): pid %d → %d, ready after %s, with %s running\n",
			clock(b.Elapsed), part, r.Signal, r.OldPID, r.NewPID, short(r.Took), jobCount(r.Running))
	}
	v.restarts = len(b.Restarts)
	for _, c := range b.Changes[v.changed:] {
		fmt.Fprintf(v.out, "%s  %s: %s %s, with %s running\n", clock(b.Elapsed), changeName(c.Kind), changeDone(c.Kind), short(c.Took), jobCount(c.Running))
	}
	v.changed = len(b.Changes)
}

func (v *lineViewer) above(write func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	write()
}

func (v *lineViewer) settle() {}
