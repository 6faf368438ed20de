package onebox

import (
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
)

// EventKind is what happened.
type EventKind string

// The kinds of events.
const (
	EventStarted  EventKind = "started"  // a process runs
	EventReady    EventKind = "ready"    // everything is up; Where has the URLs
	EventEnded    EventKind = "ended"    // a process died
	EventRestart  EventKind = "restart"  // a process was replaced on purpose
	EventProblem  EventKind = "problem"  // something failed and is retried
	EventNote     EventKind = "note"     // something worth knowing
	EventJob      EventKind = "job"      // a job changed its state
	EventRun      EventKind = "run"      // a run was submitted, or has completed
	EventRunners  EventKind = "runners"  // the number of idle runners changed
	EventStopping EventKind = "stopping" // everything is being stopped
	EventStopped  EventKind = "stopped"  // nothing is running
)

// Event is one line of progress: a sentence for people, fields for scripts (`--json`).
type Event struct {
	Time    time.Time  `json:"time"`
	Kind    EventKind  `json:"event"`
	Part    string     `json:"part,omitempty"`
	PID     int        `json:"pid,omitempty"`
	Log     string     `json:"log,omitempty"`
	Message string     `json:"message"`
	Job     *JobChange `json:"job,omitempty"`
	Run     *RunChange `json:"run,omitempty"`
	Where   *Where     `json:"where,omitempty"`
}

// RunChange is what an EventRun is about.
type RunChange struct {
	ID         int64  `json:"id"`
	Repository string `json:"repository"`
	File       string `json:"file"`
	Status     string `json:"status"`
	Conclusion string `json:"conclusion,omitempty"`
}

// JobChange is what an EventJob is about.
type JobChange struct {
	ID         int64  `json:"id"`
	Name       string `json:"name"`
	Status     string `json:"status"`
	Conclusion string `json:"conclusion,omitempty"`
	Runner     string `json:"runner,omitempty"`
}

// Where has the URLs and paths of what runs. It is also kept in status.json.
type Where struct {
	StateDir   string            `json:"stateDir"`
	PID        int               `json:"pid"`
	Owner      childproc.Process `json:"owner"` // of the state directory: this process
	GitHub     string            `json:"github"`
	Webhooks   string            `json:"webhooks"`
	Admin      string            `json:"admin"`    // where /api/v1 is
	Dispatch   string            `json:"dispatch"` // where runners ask for work
	Metrics    map[string]string `json:"metrics"`
	Kubernetes string            `json:"kubernetes"`
	Kubeconfig string            `json:"kubeconfig"`
	Kubectl    string            `json:"kubectl"`
	Logs       string            `json:"logs"`
	Pools      []string          `json:"pools"`
	// Labels of each pool: what runs-on of its jobs can name.
	Labels     map[string][]string `json:"labels"`
	StandIn    bool                `json:"standIn"`
	Repository string              `json:"repository,omitempty"`
	Processes  map[string]int      `json:"processes"`
	// NodeInit is the PID of the first process of the node whose runners are containers; 0 if they are processes.
	NodeInit int `json:"nodeInit,omitempty"`
	// Drain says that a stop waits for running jobs.
	Drain bool `json:"drain,omitempty"`
}

// Printer writes events as they come. It is safe for concurrent use.
type Printer struct {
	mu   sync.Mutex
	out  io.Writer
	json bool
}

// NewPrinter prints one line for people per event, or one JSON object.
func NewPrinter(out io.Writer, asJSON bool) *Printer { return &Printer{out: out, json: asJSON} }

// Report prints an event. A write error is ignored: the reader may have exited.
func (p *Printer) Report(event Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.json {
		_ = json.NewEncoder(p.out).Encode(event)
		return
	}
	prefix := "  "
	switch event.Kind {
	case EventProblem, EventEnded:
		prefix = "! "
	case EventReady, EventRun, EventStopping, EventStopped:
		prefix = ""
	}
	fmt.Fprintf(p.out, "%s%s\n", prefix, event.Message)
	if event.Where != nil {
		fmt.Fprint(p.out, event.Where.text(usualStateDir()))
	}
}

func (w *Where) text(defaultDir string) string {
	text, at := "", stateFlag(w.StateDir, defaultDir)
	line := func(what, where string) { text += fmt.Sprintf("  %-11s %s\n", what, where) }
	for i, pool := range w.Pools {
		title := "pools"
		if i > 0 {
			title = ""
		}
		line(title, fmt.Sprintf("%s, for jobs with runs-on: %s", pool, runsOnText(w.Labels[pool])))
	}
	if w.StandIn {
		line("GitHub", w.GitHub+" (local stand-in)")
	} else {
		line("GitHub", w.GitHub)
	}
	line("console", w.Admin+"/ui/ (`bullpen console"+at+"` prints a login link)")
	line("webhooks", w.Webhooks)
	line("metrics", w.Metrics[partServer])
	line("cluster", "export KUBECONFIG="+w.Kubeconfig)
	line("", shortKubectl(w.Kubectl, exec.LookPath)+" -n "+RunnerNamespace+" get runnerpools,pods")
	line("logs", w.Logs+" (one file per process)")
	return text
}

// runsOnText is labels as they are written in a workflow.
func runsOnText(labels []string) string {
	if len(labels) == 1 {
		return labels[0]
	}
	return "[" + strings.Join(labels, ", ") + "]"
}

// shortKubectl is kubectl without its path if the shell finds one.
func shortKubectl(path string, look func(string) (string, error)) string {
	if _, err := look("kubectl"); err == nil {
		return "kubectl"
	}
	return path
}

// guide is what to type next, in the order of a first session.
func (w *Where) guide(defaultDir string) []string {
	at := stateFlag(w.StateDir, defaultDir)
	lines := []string{"Next, in another terminal:"}
	if w.StandIn {
		lines = append(lines, "  bullpen run"+at+" FILE     run a workflow file; --watch follows it and exits with its result")
	}
	lines = append(lines,
		"  bullpen status"+at+"       problems, jobs and runners",
		"  bullpen jobs"+at+"         the jobs; `bullpen why"+at+" JOB` explains why one is queued",
		"  bullpen top"+at+"          both on the whole screen",
	)
	if at != "" {
		lines = append(lines, "To leave "+strings.TrimSpace(at)+" out, name this server:",
			"  bullpen config set-server here"+at+" && bullpen config use-server here")
	}
	return lines
}

// stateFlag is what a command needs to find a state directory: nothing for the default one.
func stateFlag(dir, defaultDir string) string {
	if dir == defaultDir {
		return ""
	}
	return " --state-dir " + dir
}

// logCommand prints the log of a job. at is the stateFlag.
func logCommand(at string, job int64) string { return fmt.Sprintf("bullpen job %d --log%s", job, at) }
