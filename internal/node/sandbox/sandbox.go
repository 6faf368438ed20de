package sandbox

import (
	"context"
	"errors"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Sandbox runs the containers of pods on this machine.
//
// Contract, for every back end:
//
//   - What it started outlives it: a new Sandbox over the same state finds every container again, running or
//     exited, through List and Inspect (NODE-3). Stopping the node agent stops nothing.
//   - A container is started at most once in the life of its pod. A container whose record exists is never started again,
//     even if the record says no more than "begun".
//   - It touches only what carries its own ownership mark (NODE-7).
//   - All methods are safe for concurrent use. Calls for one pod never wait for those of another (NODE-6).
//   - Pods are known by UID, never by name: a new pod of the same name is another pod.
type Sandbox interface {
	// Admit reports why this back end cannot run the pod, as an *InvalidError, or nil. It is pure and quick.
	Admit(pod *corev1.Pod) error

	// Prepare makes the pod's place to live and records its ownership and its Terms. It is idempotent and may be slow; a cancelled ctx
	// ends it early, and what it left behind is taken up by the next Prepare or removed by Remove.
	Prepare(ctx context.Context, pod *corev1.Pod) error

	// Start starts one container of a prepared pod. nil means that the container is on record: it runs, or has
	// already exited (a command that cannot be executed is an exit, not an error). Start of a container that is on
	// record changes nothing and returns nil. An error means that nothing was started and the caller may try again; an
	// *InvalidError means that trying again is of no use.
	Start(ctx context.Context, pod *corev1.Pod, container Container) error

	// Inspect reports what is on record for a pod, without waiting. ErrNotFound when the pod is not on record.
	Inspect(ctx context.Context, podUID string) (PodState, error)

	// Wait returns as soon as the container has exited, and at once if it already has; the answer stays the same
	// until Remove. An end whose cause cannot be known has Exit.Unknown set (NODE-4). When Wait returns no process of the
	// container is left. ErrNotFound when the container is not on record.
	Wait(ctx context.Context, podUID, container string) (Exit, error)

	// Signal asks a running container to end. Terminate reaches the container's main process only, which may take its
	// time; Kill ends everything in the container. It does not wait. Signalling a container that has exited is not an error.
	// ErrNotFound when the container is not on record.
	Signal(ctx context.Context, podUID, container string, signal Signal) error

	// Exec runs a command inside a running container, with its environment, directory and files, and returns its exit code; 128+n when
	// signal n ended it. The command is killed when ctx ends, and when the container ends: in either case, and after an error, none of its
	// processes is left when Exec returns. ErrNotFound when the container is not on record, ErrNotRunning when it has not begun or has
	// ended; another error when the command could not be run or finished.
	Exec(ctx context.Context, podUID, container string, command []string, streams Streams) (int, error)

	// OpenLog opens what a container has written to its standard output and error so far and goes on writing; the caller closes it. A
	// container that has ended keeps its log until Remove. ErrNotFound when the container is not on record.
	OpenLog(podUID, container string) (Log, error)

	// Remove stops whatever of the pod still runs, and deletes its record. nil means that nothing of the pod runs and nothing is on record
	// (NODE-2); so it is for a pod that never existed.
	Remove(ctx context.Context, podUID string) error

	// List names every pod on record.
	List(ctx context.Context) ([]PodRef, error)
}

// Signal is what Sandbox.Signal sends.
type Signal int

// The signals.
const (
	// Terminate asks politely.
	Terminate Signal = iota + 1
	// Kill does not ask.
	Kill
)

// Streams connect a command that Exec runs to its client. The zero value, for probes, gives it nothing to read and discards its output.
type Streams struct {
	// In is the command's standard input; nil for none. It is read until its end, and no more once the command has ended. A Read
	// that is under way then is left behind: the caller closes what In reads from when Exec has returned.
	In io.Reader
	// Out and Err take what the command writes, from a goroutine each; nil discards it. Nothing is written once Exec has returned. A
	// Write must return when ctx ends: Exec waits for it. The container's end waits for no Write.
	Out, Err io.Writer
	// TTY gives the command a terminal, which everything it writes goes through to Out; Err is not used.
	TTY bool
	// Resize receives the terminal's sizes. Exec reads it until it is closed or the command has ended; nil when the size is not known.
	Resize <-chan Size
}

// Size is that of a terminal, in characters.
type Size struct{ Columns, Rows uint16 }

// Log is a container's log. Positions in it are bytes from its beginning, and what has been written never changes. ReadAt answers io.EOF at the
// end of what has been written up to now. Safe for concurrent use, but for Close.
type Log interface {
	io.ReaderAt
	io.Closer
	// Size is how much has been written up to now, in bytes.
	Size() (int64, error)
	// OffsetAt finds where that begins which was written at the time t or later: 0 when all of it was, the size when nothing
	// was. It never falls as t rises. A back end may count up to two seconds' worth too much as later, but nothing as earlier.
	OffsetAt(t time.Time) (int64, error)
}

// ErrNotFound reports that the pod or container is not on record.
var ErrNotFound = errors.New("not on record in the sandbox")

// ErrNotRunning reports that a container has not begun, or has ended.
var ErrNotRunning = errors.New("the container is not running")

// InvalidError reports that a pod cannot be run by this back end, whatever is tried. Reason is a CamelCase word for the
// container's waiting state, Message a sentence for the pod's author.
type InvalidError struct {
	Reason  string
	Message string
}

func (e *InvalidError) Error() string { return e.Message }

// ReasonConfigError is the reason a kubelet gives for a container that cannot be made from its specification.
const ReasonConfigError = "CreateContainerConfigError"

// Container is one container, ready to be started: the environment is resolved, references are expanded, volumes are directories on this
// machine.
type Container struct {
	Name       string
	Image      string
	Command    []string // the whole argument vector; empty means the image's own
	Env        []EnvVar // later entries win over earlier ones of the same name
	WorkingDir string   // empty means the back end's default
	Mounts     []Mount
	Message    Mount // the file that the container writes its termination message to; zero for none
	Resources  corev1.ResourceRequirements
	Security   Security
}

// Security is what of a container's security context a back end with isolation observes.
type Security struct {
	User            int64   `json:"user,omitempty"`
	Group           int64   `json:"group,omitempty"`
	Groups          []int64 `json:"groups,omitempty"` // beside Group
	ReadOnlyRoot    bool    `json:"readOnlyRoot,omitempty"`
	NoNewPrivileges bool    `json:"noNewPrivileges,omitempty"`
	NonRoot         bool    `json:"nonRoot,omitempty"` // reject User 0
}

// EnvVar is one variable of a container's environment.
type EnvVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Mount makes HostPath on this machine visible as MountPath to a container, as far as the back end can.
type Mount struct {
	MountPath string `json:"mountPath"` // absolute and clean
	HostPath  string `json:"hostPath"`  // absolute and clean
	ReadOnly  bool   `json:"readOnly,omitempty"`
}

// PodRef names a pod.
type PodRef struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Terms are what a back end records of a pod for an agent that cannot read the pod, because the API server no longer shows it.
type Terms struct {
	// Node is the name of the node that the pod is bound to; empty when it is not on record.
	Node string `json:"node,omitempty"`
	// GracePeriodSeconds is the pod's termination grace period; nil when it is not on record.
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`
}

// TermsOf returns a pod's terms.
func TermsOf(pod *corev1.Pod) Terms {
	return Terms{Node: pod.Spec.NodeName, GracePeriodSeconds: pod.Spec.TerminationGracePeriodSeconds}
}

// PodState is what a back end has on record for a pod.
type PodState struct {
	PodRef
	Terms
	// Address is the pod's own IP; empty when it has the node's.
	Address    string
	Containers []ContainerState
}

// ContainerState is a container on record: running while Exit is nil.
type ContainerState struct {
	Name      string
	ID        string // as a container runtime would name it: "process://…"
	StartedAt time.Time
	Exit      *Exit
}

// Exit is how a container ended.
type Exit struct {
	// Code is the exit code; 128+n when signal n ended it.
	Code int32
	// Signal is the signal that ended it, 0 if none did.
	Signal int32
	// Unknown reports that the end was not observed. Code is then UnknownExitCode: an unknown exit is not success (NODE-4).
	Unknown bool
	// Reason is a CamelCase word when the back end knows better than Completed or Error.
	Reason     string
	Message    string
	StartedAt  time.Time
	FinishedAt time.Time
}

// UnknownExitCode is the code of an exit that was not observed, as a kubelet reports it.
const UnknownExitCode = 137

// Container finds a container on record.
func (s PodState) Container(name string) (ContainerState, bool) {
	for _, c := range s.Containers {
		if c.Name == name {
			return c, true
		}
	}
	return ContainerState{}, false
}
