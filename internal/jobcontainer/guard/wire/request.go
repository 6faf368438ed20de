package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path"
	"strings"
	"time"
)

// Version of the protocol. Both sides are the same program, so another one is refused.
const Version = 1

// Request is the first frame of a connection. Exactly one of the pointers is set.
type Request struct {
	Version int        `json:"version"`
	Exec    *Exec      `json:"exec,omitempty"`
	Start   *Start     `json:"start,omitempty"`
	Health  *Health    `json:"health,omitempty"`
	Stop    *Stop      `json:"stop,omitempty"`
	End     *End       `json:"end,omitempty"`
	Status  *Empty     `json:"status,omitempty"`
	Logs    *Empty     `json:"logs,omitempty"`
	Links   *Links     `json:"links,omitempty"`
	Hosts   *Hosts     `json:"hosts,omitempty"`
	Relay   *Relay     `json:"relay,omitempty"`
	Release *ReleaseOf `json:"release,omitempty"`
}

// Empty is a request without parameters.
type Empty struct{}

// Process is a program to start in the container.
type Process struct {
	Argv []string `json:"argv"`          // Argv[0] is looked up in the PATH of Env, or Docker's default PATH
	Env  []string `json:"env,omitempty"` // NAME=value, all of it; HOME, HOSTNAME and PATH are added if they are missing
	Dir  string   `json:"dir,omitempty"` // absolute; empty: /
	// MakeDir creates Dir (root, 0755) if it is missing, as Docker does for a container's working directory.
	MakeDir bool `json:"makeDir,omitempty"`
	// User is USER of an image, or --user: a name or number of /etc/passwd, optionally with :group; empty: root, or the guard's own user
	// where that is not root.
	User   string  `json:"user,omitempty"`
	Nofile *Limits `json:"nofile,omitempty"` // --ulimit nofile; nil: the container's
}

// Limits are a soft and a hard resource limit.
type Limits struct {
	Soft uint64 `json:"soft"`
	Hard uint64 `json:"hard"`
}

// Exec runs a process in the foreground of the connection. Answer: KindExit.
type Exec struct {
	Process Process `json:"process"`
	// Stdin says that the client sends KindStdin frames; otherwise standard input is empty.
	Stdin bool `json:"stdin,omitempty"`
}

// Start starts the container's main process, once. Answer: KindResult with a Status.
type Start struct {
	Process Process `json:"process"`
	// StopSignal is a number, or a name such as SIGTERM, TERM or RTMIN+3; empty: SIGTERM.
	StopSignal string `json:"stopSignal,omitempty"`
}

// Health runs a command and returns the end of its output. Answer: KindResult with a HealthResult.
type Health struct {
	Process Process       `json:"process"`
	Timeout time.Duration `json:"timeout"` // at most MaxHealthTimeout; then the command is killed
}

// MaxHealthTimeout bounds Health.Timeout.
const MaxHealthTimeout = 10 * time.Minute

// Stop sends the main process its stop signal, and kills everything in the container after Grace. Answer: KindResult with a Status.
type Stop struct {
	Grace time.Duration `json:"grace"` // Docker's is 10 s; at most MaxGrace
}

// MaxGrace bounds Stop.Grace.
const MaxGrace = 10 * time.Minute

// End is Stop, and the guard exits after its answer. Answer: KindResult with a Status.
type End struct {
	Grace time.Duration `json:"grace"`
}

// State of the main process.
type State string

// The states.
const (
	StateNone    State = "none" // Start has not been called
	StateRunning State = "running"
	StateExited  State = "exited"
)

// Status is what became of the main process.
type Status struct {
	State State `json:"state"`
	Exit  *Exit `json:"exit,omitempty"` // if it has exited
}

// Exit is how a process ended.
type Exit struct {
	// Code is the exit code, or 128 + Signal. It is 127 if the command was not found, and 126 if it could not be executed; Text says why.
	Code   int    `json:"code"`
	Signal int    `json:"signal,omitempty"`
	Text   string `json:"text,omitempty"` // for the log; empty if the process was started
	// OutOfMemory: the process ended by SIGKILL or with exit code 137, and the kernel killed a process of the container for memory while it ran.
	OutOfMemory bool `json:"outOfMemory,omitempty"`
}

// HealthResult is how a health command ended.
type HealthResult struct {
	Exit     Exit   `json:"exit"`
	TimedOut bool   `json:"timedOut,omitempty"` // it was killed after Timeout
	Output   string `json:"output,omitempty"`   // both streams; the last MaxHealthOutput bytes
}

// MaxHealthOutput is how much of a health command's output is kept, in bytes, as in Docker.
const MaxHealthOutput = 4096

// Links are volumes of the job. Either all of them are linked, or the first that cannot be is the failure. Answer: KindResult, empty.
type Links struct {
	Links []Link `json:"links"`
}

// Link makes a directory of the work volume appear at another path of the container, as a symbolic link.
type Link struct {
	Volume string `json:"volume"` // as written in the workflow; for texts
	Source string `json:"source"` // created if it is missing
	Target string `json:"target"` // must be absent, or an empty directory
	// Keep leaves a directory at Target as it is, whatever is in it: the volume belongs to this container alone.
	Keep bool `json:"keep,omitempty"`
}

// Hosts adds names to /etc/hosts. Names that are there already are left alone. Answer: KindResult, empty.
type Hosts struct {
	Entries []HostEntry `json:"entries"`
}

// HostEntry is a line of /etc/hosts.
type HostEntry struct {
	Address string `json:"address"` // IPv4 or IPv6
	Name    string `json:"name"`
}

// Relay forwards a port of the pod to another one, until the guard exits. The same request again changes nothing. Answer: KindResult,
// empty.
type Relay struct {
	Protocol string `json:"protocol"` // tcp or udp
	Listen   uint16 `json:"listen"`   // on all addresses
	Target   uint16 `json:"target"`   // on the loopback addresses
}

// ReleaseOf asks what the container's file system says of itself, and of a user. Answer: KindResult, Release.
type ReleaseOf struct {
	User string `json:"user,omitempty"` // as in Process; empty: the guard's own
}

// Denied is a user that the guard can't start processes as, because it is not root.
type Denied struct {
	UID uint32 `json:"uid"`
	Own uint32 `json:"own"` // the guard's
}

// Release is what the container's file system says of itself.
type Release struct {
	ID     string   `json:"id,omitempty"`     // ID of /etc/os-release
	IDLike []string `json:"idLike,omitempty"` // ID_LIKE of it
	Alpine bool     `json:"alpine,omitempty"`
	Root   bool     `json:"root,omitempty"`   // the guard is root: it can write /etc/hosts, link volumes and switch to any user
	Users  []string `json:"users,omitempty"`  // names of /etc/passwd, the first MaxUsers
	Denied *Denied  `json:"denied,omitempty"` // the user that was asked for, if it is denied
}

// MaxUsers bounds Release.Users.
const MaxUsers = 200

// FailureCode says what kind of failure it is, for code. Text is for people.
type FailureCode string

// The codes.
const (
	FailInvalid      FailureCode = "Invalid"      // the request, or a value in it
	FailNotPermitted FailureCode = "NotPermitted" // the guard is not root, or lacks a capability
	FailInUse        FailureCode = "InUse"        // a port
	FailNotEmpty     FailureCode = "NotEmpty"     // the target of a volume
	FailNotRunning   FailureCode = "NotRunning"   // the main process has exited, or was not started
	FailStarted      FailureCode = "Started"      // the main process was started already
	FailInternal     FailureCode = "Internal"
)

// Failure is a request that was refused or failed. It is an error.
type Failure struct {
	Code FailureCode `json:"code"`
	Text string      `json:"text"`
}

// Error is the sentence for people.
func (f *Failure) Error() string { return f.Text }

// Failf makes a Failure.
func Failf(code FailureCode, format string, args ...any) *Failure {
	return &Failure{Code: code, Text: fmt.Sprintf(format, args...)}
}

// Bounds of requests.
const (
	maxStrings = 16384 // of Argv and Env
	maxEntries = 1024  // of Links and Hosts
)

// DecodeRequest reads and checks the payload of a KindRequest frame. Its error is a *Failure, and quotes no value of an environment.
func DecodeRequest(payload []byte) (*Request, error) {
	var r Request
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return nil, Failf(FailInvalid, "reading the request: it is not valid JSON, or has unknown fields") // err may quote a secret
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, Failf(FailInvalid, "reading the request: data after its end")
	}
	if err := r.check(); err != nil {
		return nil, Failf(FailInvalid, "reading the request: %v", err)
	}
	return &r, nil
}

func (r *Request) check() error {
	if r.Version != Version {
		return fmt.Errorf("protocol version %d: this guard has version %d", r.Version, Version)
	}
	var set int
	var errs []error
	add := func(present bool, check func() error) {
		if present {
			set++
			errs = append(errs, check())
		}
	}
	ok := func() error { return nil }
	add(r.Exec != nil, func() error { return r.Exec.Process.check() })
	add(r.Start != nil, func() error { return r.Start.check() })
	add(r.Health != nil, func() error { return r.Health.check() })
	add(r.Stop != nil, func() error { return within("grace", r.Stop.Grace, MaxGrace) })
	add(r.End != nil, func() error { return within("grace", r.End.Grace, MaxGrace) })
	add(r.Status != nil, ok)
	add(r.Logs != nil, ok)
	add(r.Links != nil, func() error { return r.Links.check() })
	add(r.Hosts != nil, func() error { return r.Hosts.check() })
	add(r.Relay != nil, func() error { return r.Relay.check() })
	add(r.Release != nil, ok)
	if set != 1 {
		return fmt.Errorf("%d operations in one request: expected one", set)
	}
	return errors.Join(errs...)
}

func within(name string, value, most time.Duration) error {
	if value < 0 || value > most {
		return fmt.Errorf("%s %v: expected 0 to %v", name, value, most)
	}
	return nil
}

func (p *Process) check() error {
	if len(p.Argv) == 0 || p.Argv[0] == "" {
		return errors.New("no command was given")
	}
	if len(p.Argv) > maxStrings || len(p.Env) > maxStrings {
		return fmt.Errorf("more than %d arguments or environment variables", maxStrings)
	}
	for _, list := range [][]string{p.Argv, p.Env, {p.Dir, p.User}} {
		for _, text := range list {
			if strings.IndexByte(text, 0) >= 0 {
				return errors.New("a NUL byte in the command, its environment, directory or user")
			}
		}
	}
	for _, entry := range p.Env {
		if strings.IndexByte(entry, '=') < 1 {
			return errors.New("an environment variable without a name or without =")
		}
	}
	if p.Dir != "" && !path.IsAbs(p.Dir) {
		return fmt.Errorf("working directory %q: expected an absolute path", p.Dir)
	}
	if p.Nofile != nil && p.Nofile.Soft > p.Nofile.Hard {
		return fmt.Errorf("ulimit nofile: soft limit %d is above the hard limit %d", p.Nofile.Soft, p.Nofile.Hard)
	}
	return nil
}

func (s *Start) check() error {
	_, err := ParseSignal(s.StopSignal)
	return errors.Join(s.Process.check(), err)
}

func (h *Health) check() error {
	err := within("timeout", h.Timeout, MaxHealthTimeout)
	if h.Timeout == 0 {
		err = errors.New("timeout 0: expected a duration")
	}
	return errors.Join(h.Process.check(), err)
}

func (l *Links) check() error {
	if len(l.Links) > maxEntries {
		return fmt.Errorf("more than %d volumes", maxEntries)
	}
	for _, link := range l.Links {
		for _, name := range []string{link.Source, link.Target} {
			if !path.IsAbs(name) || path.Clean(name) == "/" || strings.IndexByte(name, 0) >= 0 {
				return fmt.Errorf("volume %q: expected absolute paths other than /", link.Volume)
			}
		}
	}
	return nil
}

func (h *Hosts) check() error {
	if len(h.Entries) > maxEntries {
		return fmt.Errorf("more than %d host names", maxEntries)
	}
	for _, entry := range h.Entries {
		if _, err := netip.ParseAddr(entry.Address); err != nil || strings.ContainsRune(entry.Address, '%') {
			return fmt.Errorf("address %q of a host: expected an IP address", entry.Address)
		}
		if !isHostName(entry.Name) {
			return fmt.Errorf("host name %q: expected letters, digits, '-', '_' and '.'", entry.Name)
		}
	}
	return nil
}

func isHostName(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	return strings.IndexFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
	}) < 0
}

func (r *Relay) check() error {
	if r.Protocol != "tcp" && r.Protocol != "udp" {
		return fmt.Errorf("protocol %q of a port: expected tcp or udp", r.Protocol)
	}
	if r.Listen == 0 || r.Target == 0 || r.Listen == r.Target {
		return fmt.Errorf("forwarding port %d to %d: expected two different ports", r.Listen, r.Target)
	}
	return nil
}
