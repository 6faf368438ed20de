package workflow

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// stepNames gives the steps without an id names of their own, as the service does: __run, __run_2, __self, ….
type stepNames struct{ taken map[string]bool }

func newStepNames(steps []StepDef) stepNames {
	n := stepNames{map[string]bool{}}
	for _, s := range steps {
		if s.ID != "" {
			n.taken[strings.ToLower(s.ID)] = true
		}
	}
	return n
}

// maxStepName is the longest name of a step, in bytes.
const maxStepName = 100

func (n stepNames) of(step StepDef) string {
	if step.ID != "" {
		return step.ID
	}
	base := "run"
	if image, ok := strings.CutPrefix(step.Uses, dockerPrefix); ok {
		base = image
	} else if step.Uses != "" {
		base = RepositorySelf
	}
	base = "__" + strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, base)
	for try := 1; ; try++ {
		suffix := ""
		if try > 1 {
			suffix = fmt.Sprintf("_%d", try)
		}
		name := base[:min(len(base), maxStepName-len(suffix))] + suffix
		if !n.taken[strings.ToLower(name)] {
			n.taken[strings.ToLower(name)] = true
			return name
		}
	}
}

func (s StepDef) reference() Reference {
	switch image, ok := strings.CutPrefix(s.Uses, dockerPrefix); {
	case ok:
		return Reference{Type: ReferenceImage, Image: image}
	case s.Uses != "":
		return Reference{Type: ReferenceAction, RepositoryType: RepositorySelf, Path: s.Uses}
	}
	return Reference{Type: ReferenceScript}
}

func (s StepDef) inputs() []Pair {
	if s.Uses != "" {
		return s.With
	}
	return present(Pair{"script", s.Run}, Pair{"shell", s.Shell}, Pair{"workingDirectory", s.WorkingDirectory})
}

func stepMessage(step StepDef, name string, index int, p MessageParams) (Step, error) {
	out := Step{Type: "action", Reference: step.reference(), Name: name, ContextName: name}
	if p.StepID != nil {
		out.ID = p.StepID(index)
	} else {
		out.ID = uuid.NewSHA1(uuid.MustParse(p.JobID), fmt.Appendf(nil, "step/%d", index)).String()
	}
	var err error
	if out.Condition, err = fullCondition(step.If); err != nil {
		return Step{}, err
	}
	if pairs := step.inputs(); step.Uses == "" || len(pairs) > 0 {
		inputs, err := mappingToken(pairs)
		if err != nil {
			return Step{}, err
		}
		out.Inputs = &inputs
	}
	if out.Environment, err = step.Env.token(); err != nil {
		return Step{}, err
	}
	if out.DisplayName, err = optional(step.Name, TextToken); err != nil {
		return Step{}, err
	}
	if out.ContinueOnError, err = optional(step.ContinueOnError, scalarToken); err != nil {
		return Step{}, err
	}
	out.TimeoutInMinutes, err = optional(step.TimeoutMinutes, scalarToken)
	return out, err
}
