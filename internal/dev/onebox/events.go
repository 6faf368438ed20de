package onebox

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// EventKind is what happened.
type EventKind string

// The kinds of events.
const (
	EventStarted  EventKind = "started"  // a process runs
	EventReady    EventKind = "ready"    // everything is up; Where says where to look
	EventEnded    EventKind = "ended"    // a process exited unexpectedly
	EventRestart  EventKind = "restart"  // a process was replaced on purpose
	EventProblem  EventKind = "problem"  // something is wrong that is being tried again
	EventNote     EventKind = "note"     // something worth knowing
	EventJob      EventKind = "job"      // a job changed its state
	EventRunners  EventKind = "runners"  // the number of warm runners changed
	EventStopping EventKind = "stopping" // everything is being stopped
	EventStopped  EventKind = "stopped"  // nothing runs any more
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
	Where   *Where     `json:"where,omitempty"`
}

// JobChange is what an EventJob is about.
type JobChange struct {
	ID         int64  `json:"id"`
	Name       string `json:"name"`
	Status     string `json:"status"`
	Conclusion string `json:"conclusion,omitempty"`
	Runner     string `json:"runner,omitempty"`
}

// Where says where to look while everything runs. It is also kept in status.json.
type Where struct {
	StateDir   string            `json:"stateDir"`
	PID        int               `json:"pid"`
	GitHub     string            `json:"github"`
	Webhooks   string            `json:"webhooks"`
	Operators  string            `json:"operators"` // where /api/v1 is
	Dispatch   string            `json:"dispatch"`  // where runners ask for work
	Metrics    map[string]string `json:"metrics"`
	Kubernetes string            `json:"kubernetes"`
	Kubeconfig string            `json:"kubeconfig"`
	Kubectl    string            `json:"kubectl"`
	Logs       string            `json:"logs"`
	Pools      []string          `json:"pools"`
	StandIn    bool              `json:"standIn"`
	Repository string            `json:"repository,omitempty"`
	Processes  map[string]int    `json:"processes"`
}

// Printer writes events as they come. It is safe for concurrent use.
type Printer struct {
	mu   sync.Mutex
	out  io.Writer
	json bool
}

// NewPrinter prints one line for people per event, or one JSON object.
func NewPrinter(out io.Writer, asJSON bool) *Printer { return &Printer{out: out, json: asJSON} }

// Report prints an event. A closed output is no error here.
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
	case EventReady, EventStopping, EventStopped:
		prefix = ""
	}
	fmt.Fprintf(p.out, "%s%s\n", prefix, event.Message)
	if event.Where != nil {
		fmt.Fprint(p.out, event.Where.text())
	}
}

func (w *Where) text() string {
	text := ""
	line := func(what, where string) { text += fmt.Sprintf("  %-11s %s\n", what, where) }
	if w.StandIn {
		line("GitHub", w.GitHub+" (a local stand-in; its admin API is under /_standin/)")
	} else {
		line("GitHub", w.GitHub)
	}
	line("console", w.Operators+"/ui/ (`bullpen console` prints a link that logs you in)")
	line("webhooks", w.Webhooks)
	line("metrics", w.Metrics[partServer])
	line("cluster", "export KUBECONFIG="+w.Kubeconfig)
	line("", w.Kubectl+" -n "+RunnerNamespace+" get runnerpools,pods")
	line("logs", w.Logs)
	return text
}
