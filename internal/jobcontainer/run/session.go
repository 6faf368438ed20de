package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/client"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/options"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/plan"
)

// session is what the commands of one job know of each other. The runner keeps a state for that, too, but forgets what a prepare_job
// returned that failed, and must be given no secret: the job container's environment has some.
type session struct {
	Request    string          `json:"request"`
	Containers []member        `json:"containers"`
	Hosts      []plan.HostName `json:"hosts,omitempty"`
	Steps      int             `json:"steps,omitempty"` // container steps that were asked for
	alpine     bool            // the job container is Alpine Linux
}

// member is one container of the job.
type member struct {
	Role      jobcontainer.Role `json:"role"`
	Name      string            `json:"name"`                // in texts
	Container string            `json:"container"`           // of the pod
	Image     string            `json:"image"`               // as in the workflow
	Reference string            `json:"reference,omitempty"` // what the pod has for it
	Env       []string          `json:"env,omitempty"`       // of the job container, for its steps
	User      string            `json:"user,omitempty"`
	NoFile    *options.Limit    `json:"noFile,omitempty"`
	Root      bool              `json:"root,omitempty"`
	Started   bool              `json:"started,omitempty"`  // its main process
	Reported  bool              `json:"reported,omitempty"` // its end was said to the user
	Grace     time.Duration     `json:"grace,omitempty"`    // to stop it
}

func (s *session) job() *member {
	for i := range s.Containers {
		if s.Containers[i].Role == jobcontainer.RoleJob {
			return &s.Containers[i]
		}
	}
	return nil
}

// roots are the containers whose guards are root, the job container first.
func (s *session) roots() []*member {
	var roots []*member
	for i := range s.Containers {
		if s.Containers[i].Root && s.Containers[i].Role != jobcontainer.RoleStep {
			roots = append(roots, &s.Containers[i])
		}
	}
	return roots
}

func (s *session) entries() []client.HostEntry {
	var entries []client.HostEntry
	for _, host := range s.Hosts {
		entries = append(entries, client.HostEntry{Address: host.IP, Name: host.Name})
	}
	return entries
}

// state is what the runner keeps. Nothing reads it; it helps to debug a runner.
func (s *session) state(pod string) json.RawMessage {
	state := struct {
		Pod        string   `json:"pod"`
		Request    string   `json:"request,omitempty"`
		Containers []string `json:"containers"`
	}{Pod: pod, Request: s.Request, Containers: []string{}}
	for _, m := range s.Containers {
		state.Containers = append(state.Containers, m.Container)
	}
	content, _ := json.Marshal(state) // of strings
	return content
}

// maxSession is how large the file may be.
const maxSession = 32 << 20

func (c *call) sessionFile() string { return filepath.Join(c.PrivateDir, "job.json") }

// load returns the job's session; an empty one if prepare_job was not called.
func (c *call) load() (*session, error) {
	file, err := os.OpenFile(c.sessionFile(), os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return &session{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading what is known of the job's containers: %w", err)
	}
	defer func() { _ = file.Close() }()
	s := &session{}
	if err := json.NewDecoder(io.LimitReader(file, maxSession)).Decode(s); err != nil {
		return nil, fmt.Errorf("reading what is known of the job's containers: %s is damaged", c.sessionFile()) // err may quote a secret
	}
	return s, nil
}

func (c *call) save(s *session) error {
	content, err := json.Marshal(s)
	if err == nil {
		err = os.MkdirAll(c.PrivateDir, 0o700)
	}
	if err == nil {
		err = writeWhole(c.sessionFile(), content, 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing what is known of the job's containers: %w", err)
	}
	return nil
}

// limits are those of a process of a member.
func limits(limit *options.Limit) *client.Limits {
	if limit == nil {
		return nil
	}
	value := func(n int64) uint64 {
		if n < 0 {
			return ^uint64(0) // RLIM_INFINITY
		}
		return uint64(n)
	}
	return &client.Limits{Soft: value(limit.Soft), Hard: value(limit.Hard)}
}
