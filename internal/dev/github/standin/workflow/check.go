package workflow

import (
	"fmt"
	"strconv"
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
	switch exec := step.Exec.(type) {
	case *actionlint.ExecRun:
		c.template(exec.Run, "jobs.<job_id>.steps.run")
		c.template(exec.Shell, "jobs.<job_id>.steps.run")
		c.template(exec.WorkingDirectory, "jobs.<job_id>.steps.working-directory")
	case *actionlint.ExecAction:
		c.template(exec.Entrypoint, "jobs.<job_id>.steps.with")
		c.template(exec.Args, "jobs.<job_id>.steps.with")
		for _, in := range exec.Inputs {
			c.template(in.Value, "jobs.<job_id>.steps.with")
		}
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
	textIndexes(node)
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

// textIndexes writes the numbers by which an expression indexes as texts: ports[5432] is a common way to look up a port of a service, which
// GitHub's evaluator allows and actionlint's checker does not.
func textIndexes(node actionlint.ExprNode) {
	actionlint.VisitExprNode(node, func(n, _ actionlint.ExprNode, entering bool) {
		access, ok := n.(*actionlint.IndexAccessNode)
		if !ok || !entering {
			return
		}
		number, ok := access.Index.(*actionlint.IntNode)
		if operand, isPort := access.Operand.(*actionlint.ObjectDerefNode); !ok || !isPort || operand.Property != "ports" {
			return
		}
		if text, err := parseExpr("'" + strconv.Itoa(number.Value) + "'"); err == nil {
			access.Index = text
		}
	})
}
