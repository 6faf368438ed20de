package jobcontainers

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
)

// Image is what a row needs of an image. A back end makes it: of directories, or as a layer in a registry.
type Image struct {
	Name string // as a workflow writes it
	// Config may have Volumes of declaredVolumes: a runtime mounts a directory at each, as at those of any image.
	Config jobcontainer.ImageConfig
	// OSRelease is the content of /etc/os-release; empty: there is no such file.
	OSRelease string
	// Bare leaves out everything but Program: no shell, no other program.
	Bare bool
	// NonRoot: the container may not run as root, as in a namespace with the policy "restricted".
	NonRoot bool
	// Refusal is why the broker refuses the image, if it does.
	Refusal string
	// Pull is what the runtime says instead of starting the image, if it cannot.
	Pull string
}

// declaredVolumes are what VOLUME of a Dockerfile may be in rows, with the names of the files that the image has there.
var declaredVolumes = map[string]string{"/var/lib/data": "", "/var/lib/seeded": "of-the-image"}

// Program is in each image: the command row, with its modes.
const Program = "/bullpen-row"

// Backend makes runner pods with the images of a row.
type Backend interface {
	// Start starts a pod; the test's end stops it.
	Start(t *testing.T, images ...Image) Pod
}

// Pod is one runner pod. Methods fail the test if the back end itself fails.
type Pod interface {
	// Hook runs the container hook in the runner's container, as GitHub's worker does, and waits until it exits.
	Hook(ctx context.Context, t *testing.T, call Call) Answer
	// StartHook starts it; the caller signals it, and waits.
	StartHook(t *testing.T, call Call) Running
	// Runner runs a program in the runner's container, with the mounts of that, and returns its output and exit code.
	Runner(t *testing.T, argv ...string) (output string, code int)
	// WriteWork writes a file below the runner's work directory.
	WriteWork(t *testing.T, name, content string, mode uint32)
	// WriteRunner writes a file below the runner's own directory.
	WriteRunner(t *testing.T, name, content string)
	// Within runs do in the pod's network.
	Within(t *testing.T, do func() error)
	// WriteExternals writes an executable file below the runner's externals.
	WriteExternals(t *testing.T, name, content string)
	// Containers are the names of the containers that were ever added, by their order.
	Containers() []string
	// Explain is what the controller says of a container that has ended.
	Explain(t *testing.T, failure letter.Failure)
	// Kill kills a container as the kernel does if there is no memory left.
	Kill(t *testing.T, container string)
	// LimitsMemory skips the row if nothing limits the memory of the pod.
	LimitsMemory(t *testing.T)
	// Alive says whether processes of a container exist.
	Alive(container string) bool
	// Left are the files of that name that the containers' own file systems have on the node.
	Left(t *testing.T, name string) []string
	// Requests are what the broker was asked, by their order.
	Requests() []jobcontainer.Request
}

// Call is one call of the hook. The envelope of Stdin is GitHub's; the response file is in it.
type Call struct {
	Stdin json.RawMessage
	// Environment is added to the runner's.
	Environment []string
}

// Running is a hook that was started.
type Running interface {
	// Signal sends a signal to the hook alone, as the runner's invoker does.
	Signal(t *testing.T, name string)
	// Log is what was written so far, standard output and standard error together.
	Log() string
	// Wait waits until it exits.
	Wait(t *testing.T) Answer
}

// Answer is what the runner sees of a hook.
type Answer struct {
	Code     int
	Log      string
	Response string // the content of the response file
}

// responseFile is the path of a call's response file below the runner's work directory.
func responseFile(t *testing.T, stdin json.RawMessage) string {
	t.Helper()
	var call struct {
		ResponseFile string `json:"responseFile"`
	}
	require.NoError(t, json.Unmarshal(stdin, &call))
	name, below := strings.CutPrefix(call.ResponseFile, runnerWork+"/")
	require.True(t, below, "a response file below %s: %s", runnerWork, call.ResponseFile)
	return name
}

// runnerWork is the work directory in the runner's container, as in the recordings.
const runnerWork = "/home/runner/_work"
