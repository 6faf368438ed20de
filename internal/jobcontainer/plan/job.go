package plan

import (
	"errors"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/hook"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/options"
)

// draft is one container before its image is known.
type draft struct {
	name    string
	asked   hook.Container
	options options.Options
}

var errNotYet = errors.New("not yet")

func forJob(Job, Runner) (Draft, error) { return Draft{}, errNotYet }

func forStep(hook.Container, Runner) (Draft, error) { return Draft{}, errNotYet }

func (d Draft) complete([]jobcontainer.Granted) (Plan, error) { return Plan{}, errNotYet }

func forScript(hook.ScriptStepArgs, []string) (Exec, error) { return Exec{}, errNotYet }
