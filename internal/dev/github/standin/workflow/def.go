package workflow

import (
	"cmp"
	"slices"
	"strings"

	"github.com/rhysd/actionlint"
)

// Workflow is a checked workflow file. It is immutable and may be shared.
type Workflow struct {
	// File is the name under which it was loaded.
	File string
	// Name is the workflow's `name`, or File when it has none.
	Name string
	// Events are the names under `on`, in file order.
	Events []string
	// Inputs are workflow_dispatch's, in file order.
	Inputs []Input
	// Env and Defaults hold for all jobs.
	Env      Env
	Defaults Defaults
	// Jobs are in file order.
	Jobs []*JobDef
	// Secrets are the names that expressions look up in the secrets context, sorted, in upper case, without GITHUB_TOKEN.
	Secrets []string
}

// HasEvent reports whether the file lists the event under `on`.
func (w *Workflow) HasEvent(name string) bool { return slices.Contains(w.Events, name) }

// Input is one input of workflow_dispatch.
type Input struct {
	Name     string
	Type     string // "string", "number", "boolean", "choice" or "environment"
	Default  string
	Required bool
	Options  []string
}

// Pair is a name and its value; the value may hold ${{ }}.
type Pair struct{ Name, Value string }

// Env is a block of environment variables: either pairs, or one expression that yields an object.
type Env struct {
	Pairs []Pair
	Expr  string
}

// Defaults are `defaults.run`.
type Defaults struct{ Shell, WorkingDirectory string }

// RunsOn is `runs-on` before evaluation: labels, or one expression that yields a label or a list of them.
type RunsOn struct {
	Labels []string
	Expr   string
	Group  string
}

// Strategy is a job's `strategy`. Its scalars are templates, "" when absent.
type Strategy struct {
	// Matrix is an *Object (rows, include, exclude), a string that holds one expression, or nil.
	Matrix      Value
	FailFast    string
	MaxParallel string
}

// JobDef is a job as written. All its texts may hold ${{ }}.
type JobDef struct {
	ID              string
	Name            string
	Line            int
	Needs           []string // ids as spelled where the jobs are defined
	If              string
	RunsOn          RunsOn
	Strategy        Strategy
	Env             Env
	Defaults        Defaults
	Outputs         []Pair
	TimeoutMinutes  string
	ContinueOnError string
	Steps           []StepDef
	// Container and Services are the tokens of `container` and `services`; nil where the job has none.
	Container, Services *Token
	// IDToken indicates that the job may have tokens that prove what it is: the permission id-token: write.
	IDToken  bool
	workflow *Workflow
}

// StepDef is a `run` or a `uses` step as written. All its texts but Uses may hold ${{ }}.
type StepDef struct {
	ID, Name, If, Run, Shell, WorkingDirectory string
	// Uses is docker:// and an image, or ./ and a directory of the workspace; With are its inputs.
	Uses                            string
	With                            []Pair
	Env                             Env
	ContinueOnError, TimeoutMinutes string
}

// byPosition sorts what actionlint keeps in maps back into file order.
func byPosition[K comparable, V any](m map[K]V, pos func(V) *actionlint.Pos) []V {
	list := make([]V, 0, len(m))
	for _, v := range m {
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b V) int {
		p, q := pos(a), pos(b)
		return cmp.Or(cmp.Compare(p.Line, q.Line), cmp.Compare(p.Col, q.Col))
	})
	return list
}

func buildWorkflow(file string, src *actionlint.Workflow, matrices map[string]Value) *Workflow {
	wf := &Workflow{File: file, Name: text(src.Name), Env: buildEnv(src.Env), Defaults: buildDefaults(src.Defaults)}
	if wf.Name == "" {
		wf.Name = file
	}
	for _, event := range src.On {
		wf.Events = append(wf.Events, event.EventName())
		if d, ok := event.(*actionlint.WorkflowDispatchEvent); ok {
			for _, in := range byPosition(d.Inputs, func(in *actionlint.DispatchInput) *actionlint.Pos { return in.Name.Pos }) {
				wf.Inputs = append(wf.Inputs, buildInput(in))
			}
		}
	}
	for _, job := range byPosition(src.Jobs, func(j *actionlint.Job) *actionlint.Pos { return j.ID.Pos }) {
		def := buildJob(src, job)
		def.Strategy.Matrix = matrices[strings.ToLower(job.ID.Value)]
		def.workflow = wf
		wf.Jobs = append(wf.Jobs, def)
	}
	return wf
}

var inputTypes = map[actionlint.WorkflowDispatchEventInputType]string{
	actionlint.WorkflowDispatchEventInputTypeNumber:      "number",
	actionlint.WorkflowDispatchEventInputTypeBoolean:     "boolean",
	actionlint.WorkflowDispatchEventInputTypeChoice:      "choice",
	actionlint.WorkflowDispatchEventInputTypeEnvironment: "environment",
}

func buildInput(in *actionlint.DispatchInput) Input {
	out := Input{Name: text(in.Name), Default: text(in.Default), Type: cmp.Or(inputTypes[in.Type], "string")}
	out.Required = in.Required != nil && in.Required.Value
	for _, o := range in.Options {
		out.Options = append(out.Options, text(o))
	}
	return out
}

func buildJob(src *actionlint.Workflow, job *actionlint.Job) *JobDef {
	def := &JobDef{
		ID: text(job.ID), Name: text(job.Name), Line: job.ID.Pos.Line, If: text(job.If),
		Env: buildEnv(job.Env), Defaults: buildDefaults(job.Defaults),
		TimeoutMinutes: float(job.TimeoutMinutes), ContinueOnError: boolean(job.ContinueOnError),
		IDToken: mayProve(cmp.Or(job.Permissions, src.Permissions)),
	}
	for _, need := range job.Needs {
		// Ids are case-insensitive: keep the spelling of the definition, it is the key of the needs context.
		if needed, ok := src.Jobs[strings.ToLower(text(need))]; ok && !slices.Contains(def.Needs, text(needed.ID)) {
			def.Needs = append(def.Needs, text(needed.ID))
		}
	}
	if r := job.RunsOn; r != nil {
		def.RunsOn = RunsOn{Expr: text(r.LabelsExpr), Group: text(r.Group)}
		for _, label := range r.Labels {
			def.RunsOn.Labels = append(def.RunsOn.Labels, text(label))
		}
	}
	if s := job.Strategy; s != nil {
		def.Strategy = Strategy{FailFast: boolean(s.FailFast), MaxParallel: integer(s.MaxParallel)}
	}
	for _, o := range byPosition(job.Outputs, func(o *actionlint.Output) *actionlint.Pos { return o.Name.Pos }) {
		def.Outputs = append(def.Outputs, Pair{text(o.Name), text(o.Value)})
	}
	for _, step := range job.Steps {
		out := StepDef{
			ID: text(step.ID), Name: text(step.Name), If: text(step.If), Env: buildEnv(step.Env),
			ContinueOnError: boolean(step.ContinueOnError), TimeoutMinutes: float(step.TimeoutMinutes),
		}
		switch exec := step.Exec.(type) {
		case *actionlint.ExecRun:
			out.Run, out.Shell, out.WorkingDirectory = text(exec.Run), text(exec.Shell), text(exec.WorkingDirectory)
		case *actionlint.ExecAction:
			out.Uses, out.With = text(exec.Uses), buildInputs(exec)
		default:
			continue // refused by check
		}
		def.Steps = append(def.Steps, out)
	}
	return def
}

// buildInputs are the inputs of an action in file order. actionlint keeps two of them apart.
func buildInputs(exec *actionlint.ExecAction) []Pair {
	all := map[string]*actionlint.Input{}
	for name, in := range exec.Inputs {
		all[name] = in
	}
	for name, value := range map[string]*actionlint.String{"entrypoint": exec.Entrypoint, "args": exec.Args} {
		if value != nil {
			all[name] = &actionlint.Input{Name: &actionlint.String{Value: name, Pos: value.Pos}, Value: value}
		}
	}
	var out []Pair
	for _, in := range byPosition(all, func(in *actionlint.Input) *actionlint.Pos { return in.Name.Pos }) {
		out = append(out, Pair{text(in.Name), text(in.Value)})
	}
	return out
}

// mayProve reports whether permissions let a job have tokens that prove what it is. Nothing grants that but the file itself.
func mayProve(p *actionlint.Permissions) bool {
	switch {
	case p == nil:
		return false
	case p.All != nil:
		return p.All.Value == "write-all"
	}
	scope := p.Scopes["id-token"]
	return scope != nil && scope.Value != nil && scope.Value.Value == "write"
}

func buildEnv(env *actionlint.Env) Env {
	if env == nil {
		return Env{}
	}
	out := Env{Expr: text(env.Expression)}
	for _, v := range byPosition(env.Vars, func(v *actionlint.EnvVar) *actionlint.Pos { return v.Name.Pos }) {
		out.Pairs = append(out.Pairs, Pair{text(v.Name), text(v.Value)})
	}
	return out
}

func buildDefaults(d *actionlint.Defaults) Defaults {
	if d == nil || d.Run == nil {
		return Defaults{}
	}
	return Defaults{Shell: text(d.Run.Shell), WorkingDirectory: text(d.Run.WorkingDirectory)}
}

func text(s *actionlint.String) string {
	if s == nil {
		return ""
	}
	return s.Value
}

func boolean(b *actionlint.Bool) string {
	if b == nil {
		return ""
	}
	return b.String()
}

func float(f *actionlint.Float) string {
	switch {
	case f == nil:
		return ""
	case f.Expression != nil:
		return f.Expression.Value
	}
	return formatNumber(f.Value)
}

func integer(i *actionlint.Int) string {
	switch {
	case i == nil:
		return ""
	case i.Expression != nil:
		return i.Expression.Value
	}
	return formatNumber(float64(i.Value))
}
