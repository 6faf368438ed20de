package plan

import (
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/health"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/hook"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/options"
)

// Runner is what a plan must know about the runner's container and its pool.
type Runner struct {
	Platform               string                            // of the node: linux/amd64; empty: not checked
	Work, Externals, Tools string                            // directories on the runner; empty: taken from the volumes that it asks for
	Environ                []string                          // the runner's variables, for `--env NAME`
	ReadFile               func(path string) ([]byte, error) // for --env-file, a path below Work; nil: there are none
	Exists                 func(path string) bool            // whether the runner has a file; nil: it has none
	Pool                   options.Pool
	Restricted             bool   // containers run as User, and no process of theirs can have another one
	User                   int    // of the runner
	Taken                  []Port // on which something in the pod listens already
}

// Port is a port of the pod, which its containers share.
type Port struct {
	Number   int    `json:"number"`
	Protocol string `json:"protocol"` // tcp, udp or sctp
}

// Job is what PrepareJob asks for.
type Job struct {
	Container *hook.Container // nil: services only
	Services  []hook.Container
	Names     []string // of the services: servicename.Resolve
}

// Draft is a plan without what its images say.
type Draft struct {
	wanted []jobcontainer.Wanted
	drafts []draft
	runner Runner
}

// Wanted returns the containers of the request to send: the job container first, then the services.
func (d Draft) Wanted() []jobcontainer.Wanted { return d.wanted }

// Plan is what to do with the containers of a request.
type Plan struct {
	Containers []Container // in the order of the request
	Forwards   []Forward   // ports to open
	Hosts      []HostName  // lines of /etc/hosts
	Warnings   []string    // sentences for the job's log
	Notes      []string    // the same, of what the workflow's author need not change
}

// Container is what to tell the guard of a container.
type Container struct {
	Role        jobcontainer.Role
	Position    int
	Name        string   // in texts, and of a service: its host name
	Container   string   // the ephemeral container's name
	Image       string   // as in the workflow
	Reference   string   // what the pod has for it, with a digest
	Argv        []string // what to start; nil for a job container, which runs nothing but steps
	Env         []string // NAME=value, each name once
	User        string   // user[:group], names or numbers, to resolve in the container; empty: root
	WorkDir     string   // created if it is absent
	StopSignal  string   // a name or a number
	StopTimeout time.Duration
	NoFile      *options.Limit // at most the hard limit that there is; nil: unchanged
	Health      *health.Check  // nil: none, so it is ready when it runs
	Links       []Link         // symbolic links for the runner's directories
	Volumes     []Volume
	Ports       map[string]string // container port to port of the pod: job.services.<name>.ports
}

// Link is a symbolic link to make if it is not there.
type Link struct{ Path, Target string }

// Volume is a directory that becomes visible at another path of the container, by a symbolic link in place of an absent or empty
// directory. If there is something else, VolumeNotEmptyText is the error.
type Volume struct {
	Text     string // as in the workflow
	Source   string // a directory below jobcontainer.WorkDir, in every container; made if it is absent
	Target   string
	Keep     bool // a directory at Target is as good: no other container has the volume, and it is new
	Optional bool // --tmpfs, tools: a failure is said, and nothing else
}

// Forward is a port of the pod on which to accept connections for another one of it.
type Forward struct {
	Container int    // index in Plan.Containers: a service may have the name of the job container
	Protocol  string // tcp or udp
	HostPort  int
	Port      int // of the container, on localhost
}

// HostName is a line of /etc/hosts.
type HostName struct {
	IP   string `json:"ip"`
	Name string `json:"name"`
}

// Exec is one process to run in a job container.
type Exec struct {
	Argv    []string
	Env     []string
	WorkDir string
}

// Error is returned for what can't be done. Its problems are sentences for the job's log.
type Error struct{ Problems []string }

func (e *Error) Error() string { return strings.Join(e.Problems, "\n") }
