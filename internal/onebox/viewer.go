package onebox

import (
	"fmt"
	"io"
	"time"
)

// viewer shows the board as it changes.
type viewer interface {
	show(b board)
	// settle leaves what is shown as it is, for other output to follow.
	settle()
}

func newViewer(opts DemoOptions) viewer {
	if opts.Terminal {
		fmt.Fprintln(opts.Out)
		return &tableViewer{screen: screen{out: opts.Out}, size: opts.Size, color: opts.Color}
	}
	return &lineViewer{out: opts.Out, many: opts.Jobs > fewJobs}
}

// tableViewer redraws the table in place.
type tableViewer struct {
	screen screen
	size   func() (width, height int)
	color  bool
}

func (v *tableViewer) show(b board) {
	width, height := v.size()
	v.screen.draw(render(b, width, height-1, v.color))
}

func (v *tableViewer) settle() { v.screen.drawn = 0 }

// fewJobs is how many jobs get a line of their own for each change, where nothing can be redrawn.
const fewJobs = 60

// lineViewer writes a line for each change, or, with many jobs, one every few seconds.
type lineViewer struct {
	out      io.Writer
	many     bool
	follow   follower
	restarts int
	last     time.Duration
	lastDone int
}

func (v *lineViewer) show(b board) {
	changes := v.follow.changes(b.Jobs)
	done, running, queued := countJobs(b.Jobs)
	if !v.many {
		for _, change := range changes {
			fmt.Fprintf(v.out, "%s  %s\n", clock(b.Elapsed), change.Message)
		}
	} else if done != v.lastDone && (b.Elapsed-v.last >= 3*time.Second || done == b.WantJobs) {
		v.last, v.lastDone = b.Elapsed, done
		fmt.Fprintf(v.out, "%s  %d of %d jobs done, %d running, %d queued; runners: %d warm, %d busy, %d starting\n", clock(b.Elapsed),
			done, b.WantJobs, running, queued, countStage(b.Pods, stageWarm), countStage(b.Pods, stageBusy), countStage(b.Pods, stageBooting))
	}
	for _, r := range b.Restarts[v.restarts:] {
		fmt.Fprintf(v.out, "%s  restarted the %s (%s): process %d → %d, ready after %s, while %d jobs ran\n",
			clock(b.Elapsed), r.Part, r.Signal, r.OldPID, r.NewPID, short(r.Took), r.Running)
	}
	v.restarts = len(b.Restarts)
}

func (v *lineViewer) settle() {}
