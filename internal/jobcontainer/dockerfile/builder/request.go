package builder

import (
	"fmt"
	"path"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

// Request asks for the container of an action.
type Request struct {
	Container string `json:"container"` // the name by which its guard is reached; a name is used once in a pod
	Directory string `json:"directory"` // of the Dockerfile, which is the context of the build; a path in the containers of a job
	File      string `json:"file"`      // the Dockerfile's name in there
}

// Built is a container whose guard listens.
type Built struct {
	Image  string                   `json:"image"` // the digest of its manifest
	Config jobcontainer.ImageConfig `json:"config"`
}

// Failure is why there is no container: a text for the job's log, after "…: ".
type Failure struct{ Text string }

func (f *Failure) Error() string { return f.Text }

// Failf returns a *Failure.
func Failf(format string, args ...any) error { return &Failure{Text: fmt.Sprintf(format, args...)} }

// Event is one line of the response.
type Event struct {
	Output  []byte `json:"output,omitempty"` // of the build
	Built   *Built `json:"built,omitempty"`  // the last one, if all went well
	Failure string `json:"failure,omitempty"`
}

const (
	// Path is where requests are posted.
	Path = "/containers"
	// MaxRequest bounds a request, in bytes.
	MaxRequest = 64 << 10
	// maxEvent bounds a line of the response, in bytes.
	maxEvent = 4 << 20
)

// maxName bounds the name of a container, which is that of a directory.
const maxName = 63

// Check returns a *Failure for what no hook sends.
func (r Request) Check() error {
	switch {
	case !isName(r.Container):
		return Failf("the name of the container is invalid: %q", r.Container)
	case !path.IsAbs(r.Directory):
		return Failf("the directory is invalid: %q", r.Directory)
	case r.File == "" || r.File == "." || r.File == ".." || strings.ContainsAny(r.File, "/\x00"):
		return Failf("the name of the Dockerfile is invalid: %q", r.File)
	}
	return nil
}

// isName reports whether a name consists of lowercase letters, digits and hyphens, and begins with no hyphen.
func isName(name string) bool {
	for i, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c != '-' || i == 0) {
			return false
		}
	}
	return name != "" && len(name) <= maxName
}
