package jobcontainer

import (
	"path"
	"time"
)

// Role says what a container is for.
type Role string

// The roles.
const (
	RoleJob     Role = "job"     // `container:`, where a job's steps run
	RoleService Role = "service" // one of `services:`
	RoleStep    Role = "step"    // a container action, for a single step
)

// Request is what a job asks for at once. Sent again with the same ID, it changes nothing and gets the same response.
type Request struct {
	ID         string   `json:"id"` // unique in the pod
	Containers []Wanted `json:"containers"`
}

// Wanted is one container of a Request. All that a workflow may choose of its spec is the image: the command, the environment and
// everything else goes to the guard through its socket.
type Wanted struct {
	Role        Role         `json:"role"`
	Position    int          `json:"position"` // among those of its role in the request, from 0
	Image       string       `json:"image"`    // as written in the workflow, without docker://
	Credentials *Credentials `json:"credentials,omitempty"`
}

// Credentials are for the registry of an image. They are written in no pod's spec and in no status.
type Credentials struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Server   string `json:"server,omitempty"` // the registry's host; empty: Docker Hub
}

// Response answers a Request: either all of its containers were added to the pod, or none.
type Response struct {
	ID         string    `json:"id"`
	Containers []Granted `json:"containers,omitempty"` // in the order of the request
	Refusal    string    `json:"refusal,omitempty"`    // why there are none: a sentence for the job's log
}

// Granted is one container that was added to the pod.
type Granted struct {
	Role     Role        `json:"role"`
	Position int         `json:"position"`
	Name     string      `json:"name"`  // of the ephemeral container; no name is used twice in a pod
	Image    string      `json:"image"` // with its digest
	Config   ImageConfig `json:"config"`
}

// ImageConfig is what an image says about how to run it (OCI image-spec, config.md).
type ImageConfig struct {
	OS           string       `json:"os"`
	Architecture string       `json:"architecture"`
	Entrypoint   []string     `json:"entrypoint,omitempty"`
	Cmd          []string     `json:"cmd,omitempty"`
	Env          []string     `json:"env,omitempty"` // NAME=value
	User         string       `json:"user,omitempty"`
	WorkingDir   string       `json:"workingDir,omitempty"`
	StopSignal   string       `json:"stopSignal,omitempty"`
	ExposedPorts []string     `json:"exposedPorts,omitempty"` // 5432/tcp, sorted
	Volumes      []string     `json:"volumes,omitempty"`      // sorted
	Healthcheck  *Healthcheck `json:"healthcheck,omitempty"`
}

// Healthcheck is Docker's HEALTHCHECK of an image. A zero duration or count is the default of who runs it.
type Healthcheck struct {
	Test          []string      `json:"test"` // NONE, CMD …, or CMD-SHELL with one string
	Interval      time.Duration `json:"interval,omitempty"`
	Timeout       time.Duration `json:"timeout,omitempty"`
	StartPeriod   time.Duration `json:"startPeriod,omitempty"`
	StartInterval time.Duration `json:"startInterval,omitempty"`
	Retries       int           `json:"retries,omitempty"`
}

// Where the containers of a pod find what they share with its runner.
const (
	// Dir is the volume of sockets and the lock.
	Dir = "/bullpen/job"
	// GuardDir is the volume of the agent's binary that containers of the job run. They cannot write to it, whatever users they have, and the runner's
	// container does not have it: otherwise a job could replace the first process of its next container.
	GuardDir = "/bullpen/guard"
	// Binary is the agent in it.
	Binary = GuardDir + "/bullpen-agent"
	// Lock is held by the runner's supervisor for as long as the runner runs (flock). A guard ends when it is free.
	Lock = Dir + "/lock"
	// BuildKitSocket is where the pod's BuildKit daemon listens, if it has one.
	BuildKitSocket = Dir + "/buildkitd.sock"
	// ActionsSocket is where containers of actions with a Dockerfile are asked for, if the pod has a BuildKit daemon (package dockerfile).
	ActionsSocket = Dir + "/actions.sock"
	// BuildxConfig is the configuration directory of docker buildx, in which the builder BuildxBuilder is that daemon.
	BuildxConfig  = Dir + "/buildx"
	BuildxBuilder = "bullpen"
	// WorkDir, ExternalsDir, ToolsDir and GitHubDir are where GitHub's runner expects its directories in a container.
	WorkDir      = "/__w"
	ExternalsDir = "/__e"
	ToolsDir     = "/__t"
	GitHubDir    = "/github"
	// RunnerWorkDir is where the runner has the volume that is WorkDir in containers: the work directory in GitHub's image, and those derived from it.
	RunnerWorkDir = "/home/runner/_work"
)

// DefaultShm is the size of /dev/shm that container runtimes give, in bytes.
const DefaultShm = 64 << 20

// MaxTries is how often containers are asked for that do not start.
const MaxTries = 3

// ExitRunnerEnded is the exit code of a guard that has ended with its runner, and has removed no files. It is not 0: a job can make it seem so to a
// guard while its pod goes on, and containers whose files are left are counted.
const ExitRunnerEnded = 3

// Umask of the runner and of everything in a container: they may have different users, and write the same files by their common group.
const Umask = 0o002

// Socket is where the guard of a container listens.
func Socket(name string) string { return path.Join(Dir, name, "guard.sock") }

// Wish is a file that exists while the container is wanted. A guard that starts late, after its request was given up, ends at once without it.
func Wish(name string) string { return path.Join(Dir, name, "wanted") }
