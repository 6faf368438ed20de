package workflow

import (
	"fmt"
	"strings"

	"github.com/rhysd/actionlint"
)

// expressions checks each ${{ }} of a file: its syntax, and that the contexts and functions it uses exist
// at that place. What properties a context has is left to the run, as GitHub leaves it; only those of github
// are known, so that a misspelled one is refused rather than empty.
func (c *checker) expressions(src *actionlint.Workflow) {
	c.template(src.RunName, "run-name")
	c.env(src.Env, "env")
	c.defaults(src.Defaults, "jobs.<job_id>.defaults.run")
	for _, job := range src.Jobs {
		c.jobExpressions(job)
		for _, step := range job.Steps {
			c.stepExpressions(step)
		}
	}
}

func (c *checker) jobExpressions(job *actionlint.Job) {
	c.template(job.Name, "jobs.<job_id>.name")
	c.condition(job.If, "jobs.<job_id>.if")
	c.env(job.Env, "jobs.<job_id>.env")
	c.defaults(job.Defaults, "jobs.<job_id>.defaults.run")
	c.boolean(job.ContinueOnError, "jobs.<job_id>.continue-on-error")
	c.float(job.TimeoutMinutes, "jobs.<job_id>.timeout-minutes")
	for _, o := range job.Outputs {
		c.template(o.Value, "jobs.<job_id>.outputs.<output_id>")
	}
	if r := job.RunsOn; r != nil {
		c.template(r.LabelsExpr, "jobs.<job_id>.runs-on")
		c.template(r.Group, "jobs.<job_id>.runs-on")
		for _, label := range r.Labels {
			c.template(label, "jobs.<job_id>.runs-on")
		}
	}
	if s := job.Strategy; s != nil {
		c.boolean(s.FailFast, "jobs.<job_id>.strategy")
		if s.MaxParallel != nil {
			c.template(s.MaxParallel.Expression, "jobs.<job_id>.strategy")
		}
	}
}

func (c *checker) stepExpressions(step *actionlint.Step) {
	c.template(step.Name, "jobs.<job_id>.steps.name")
	c.condition(step.If, "jobs.<job_id>.steps.if")
	c.env(step.Env, "jobs.<job_id>.steps.env")
	c.boolean(step.ContinueOnError, "jobs.<job_id>.steps.continue-on-error")
	c.float(step.TimeoutMinutes, "jobs.<job_id>.steps.timeout-minutes")
	if run, ok := step.Exec.(*actionlint.ExecRun); ok {
		c.template(run.Run, "jobs.<job_id>.steps.run")
		c.template(run.Shell, "jobs.<job_id>.steps.run")
		c.template(run.WorkingDirectory, "jobs.<job_id>.steps.working-directory")
	}
}

func (c *checker) env(env *actionlint.Env, key string) {
	if env == nil {
		return
	}
	c.template(env.Expression, key)
	for _, v := range env.Vars {
		c.template(v.Name, key)
		c.template(v.Value, key)
	}
}

func (c *checker) defaults(d *actionlint.Defaults, key string) {
	if d != nil && d.Run != nil {
		c.template(d.Run.Shell, key)
		c.template(d.Run.WorkingDirectory, key)
	}
}

func (c *checker) boolean(b *actionlint.Bool, key string) {
	if b != nil {
		c.template(b.Expression, key)
	}
}

func (c *checker) float(f *actionlint.Float, key string) {
	if f != nil {
		c.template(f.Expression, key)
	}
}

func (c *checker) template(s *actionlint.String, key string) {
	if s == nil {
		return
	}
	c.text(s.Value, s.Pos, key)
}

// text checks the expressions within a text that starts at pos.
func (c *checker) text(value string, pos *actionlint.Pos, key string) {
	parts, err := splitTemplate(value)
	if err != nil {
		c.add(pos, "", err.Error())
		return
	}
	for _, p := range parts {
		if p.node != nil {
			c.meaning(p.node, p.text, pos, key)
		}
	}
}

func (c *checker) condition(s *actionlint.String, key string) {
	if s == nil {
		return
	}
	if strings.Contains(s.Value, "${{") {
		c.template(s, key)
		return
	}
	node, err := parseExpr(s.Value)
	if err != nil {
		c.add(s.Pos, "", err.Error())
		return
	}
	c.meaning(node, s.Value, s.Pos, key)
}

func (c *checker) meaning(node actionlint.ExprNode, source string, pos *actionlint.Pos, key string) {
	if callsAny(node, "hashfiles") {
		c.unsupported(pos, "hashFiles()", "compute the hash in a `run` step")
	}
	sema := actionlint.NewExprSemanticsChecker(false, nil)
	any := func() *actionlint.ObjectType { return actionlint.NewEmptyObjectType() }
	sema.UpdateMatrix(any())
	sema.UpdateNeeds(any())
	sema.UpdateSteps(any())
	sema.UpdateInputs(any())
	contexts, functions := actionlint.WorkflowKeyAvailability(key)
	sema.SetContextAvailability(contexts)
	sema.SetSpecialFunctionAvailability(functions)
	_, problems := sema.Check(node)
	for _, p := range problems {
		c.add(pos, "", fmt.Sprintf("in the expression %q: %s", source, p.Message))
	}
}
