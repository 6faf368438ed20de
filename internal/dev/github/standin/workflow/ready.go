package workflow

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// defaultTimeout is GitHub's timeout for a job that names none.
const defaultTimeout = 360 * time.Minute

// Event is what started a run.
type Event struct {
	// Name is one of the file's events: "push", "workflow_dispatch", …
	Name string
	// Inputs are workflow_dispatch's.
	Inputs map[string]string
	// GitHub is the github context that every job gets; workflow, event_name and job are filled in.
	GitHub *Object
	// Vars is the vars context.
	Vars map[string]string
}

// NewRun begins a run of a workflow. It refuses an event that the file does not list, and inputs that do not
// fit what the file asks for.
func NewRun(wf *Workflow, ev Event) (*Run, error) {
	if !wf.HasEvent(ev.Name) {
		return nil, fmt.Errorf("%s does not run on %q; it lists: %s", wf.File, ev.Name, strings.Join(wf.Events, ", "))
	}
	inputs, err := readInputs(wf, ev)
	if err != nil {
		return nil, fmt.Errorf("reading inputs of %s: %w", wf.File, err)
	}
	r := &Run{workflow: wf, event: ev.Name, inputs: inputs, vars: NewObject(), github: NewObject(), instances: map[string]*instance{}}
	if ev.GitHub != nil {
		r.github = ev.GitHub.Clone()
	}
	r.github.Set("workflow", wf.Name)
	r.github.Set("event_name", ev.Name)
	for _, name := range sortedKeys(ev.Vars) {
		r.vars.Set(name, ev.Vars[name])
	}
	byID := map[string]*jobRun{}
	for _, def := range wf.Jobs {
		j := &jobRun{def: def}
		byID[def.ID] = j
		r.jobs = append(r.jobs, j)
	}
	for _, j := range r.jobs {
		for _, id := range j.def.Needs {
			j.needs = append(j.needs, byID[id])
		}
	}
	for _, j := range r.jobs {
		j.ancestors = ancestors(j, nil)
	}
	return r, nil
}

func ancestors(j *jobRun, seen []*jobRun) []*jobRun {
	for _, n := range j.needs {
		if !slices.Contains(seen, n) {
			seen = ancestors(n, append(seen, n))
		}
	}
	return seen
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func readInputs(wf *Workflow, ev Event) (*Object, error) {
	given := map[string]string{}
	for k, v := range ev.Inputs {
		given[strings.ToLower(k)] = v
	}
	out := NewObject()
	if ev.Name != "workflow_dispatch" {
		if len(given) > 0 {
			return nil, fmt.Errorf("only workflow_dispatch takes inputs, not %s", ev.Name)
		}
		return out, nil
	}
	for _, in := range wf.Inputs {
		text, ok := given[strings.ToLower(in.Name)]
		delete(given, strings.ToLower(in.Name))
		if !ok {
			if text = in.Default; text == "" && in.Required {
				return nil, fmt.Errorf("the input %q is required", in.Name)
			}
		}
		v, err := in.value(text)
		if err != nil {
			return nil, err
		}
		out.Set(in.Name, v)
	}
	if unknown := sortedKeys(given); len(unknown) > 0 {
		return nil, fmt.Errorf("the file has no input %q", unknown[0])
	}
	return out, nil
}

func (in Input) value(text string) (Value, error) {
	switch in.Type {
	case "boolean":
		if text == "" {
			return false, nil
		}
		if text != "true" && text != "false" {
			return nil, fmt.Errorf("the input %q must be true or false, not %q", in.Name, text)
		}
		return text == "true", nil
	case "number":
		f, err := strconv.ParseFloat(cmp.Or(text, "0"), 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("the input %q must be a number, not %q", in.Name, text)
		}
		return f, nil
	case "choice":
		if text != "" && len(in.Options) > 0 && !slices.Contains(in.Options, text) {
			return nil, fmt.Errorf("the input %q must be one of %s, not %q", in.Name, strings.Join(in.Options, ", "), text)
		}
	}
	return text, nil
}

// scope is what a job's `if` and `strategy` see, before its matrix exists.
func (r *Run) scope(j *jobRun) Scope {
	github := r.github.Clone()
	github.Set("job", j.def.ID)
	needs := NewObject()
	for _, n := range j.needs {
		outputs := NewObject()
		for _, name := range sortedKeys(n.outputs) {
			outputs.Set(name, n.outputs[name])
		}
		needs.Set(n.def.ID, NewObject("result", string(n.result), "outputs", outputs))
	}
	any := func(test func(Conclusion) bool) bool {
		return slices.ContainsFunc(j.ancestors, func(a *jobRun) bool { return test(a.result) })
	}
	return Scope{
		Contexts:  NewObject("github", github, "needs", needs, "inputs", r.inputs, "vars", r.vars),
		Success:   func() bool { return !r.cancelled && !any(func(c Conclusion) bool { return c != Success }) },
		Failure:   func() bool { return !r.cancelled && any(func(c Conclusion) bool { return c == Failure }) },
		Cancelled: func() bool { return r.cancelled },
	}
}

// expand decides whether a job runs, and makes its instances.
func (r *Run) expand(j *jobRun) {
	j.expanded = true
	scope := r.scope(j)
	run, err := scope.Condition(j.def.If)
	switch {
	case err != nil:
		r.endWithout(j, Failure, fmt.Sprintf("evaluating its `if`: %v", err))
		return
	case !run:
		r.endWithout(j, Skipped, "its condition is false")
		return
	}
	scope.Success, scope.Failure, scope.Cancelled = nil, nil, nil
	combos, err := j.strategy(scope)
	if err != nil {
		r.endWithout(j, Failure, fmt.Sprintf("evaluating its strategy: %v", err))
		return
	}
	if len(combos) == 0 {
		r.endWithout(j, Skipped, "its matrix excludes every combination")
		return
	}
	for i, combo := range combos {
		r.add(j, scope, combo, i, len(combos))
	}
}

// endWithout ends a job that has no instance.
func (r *Run) endWithout(j *jobRun, c Conclusion, reason string) {
	in := &instance{of: j, job: Job{Key: j.def.ID, ID: j.def.ID, Name: j.def.displayName(), Def: j.def}}
	j.instances = []*instance{in}
	r.instances[in.job.Key] = in
	r.conclude(in, c, reason)
}

// displayName is the job's name before its matrix is known.
func (d *JobDef) displayName() string { return cmp.Or(d.Name, d.ID) }

// strategy evaluates fail-fast, max-parallel and the matrix. A job without a matrix has one combination
// whose values are nil.
func (j *jobRun) strategy(scope Scope) ([]combination, error) {
	s := j.def.Strategy
	failFast, err := scope.Template(cmp.Or(s.FailFast, "true"))
	if err != nil {
		return nil, err
	}
	j.failFast = asBool(failFast)
	if s.MaxParallel != "" {
		v, err := scope.Template(s.MaxParallel)
		if err != nil {
			return nil, err
		}
		n := toNumber(v)
		if math.IsNaN(n) || n < 1 || n > 1e6 {
			return nil, fmt.Errorf("max-parallel is %q, not a number above zero", ToString(v))
		}
		j.maxParallel = int(n)
	}
	if s.Matrix == nil {
		return []combination{{}}, nil
	}
	v, err := scope.evalDeep(s.Matrix)
	if err != nil {
		return nil, err
	}
	matrix, ok := v.(*Object)
	if !ok {
		return nil, fmt.Errorf("%w: it must be a map, not %s", ErrMatrix, ToString(v))
	}
	return expandMatrix(matrix)
}

// asBool reads a literal or evaluated boolean: the text "false" is false.
func asBool(v Value) bool {
	if s, ok := v.(string); ok {
		return strings.EqualFold(strings.TrimSpace(s), "true")
	}
	return Truthy(v)
}

// evalDeep evaluates each text within v.
func (s Scope) evalDeep(v Value) (Value, error) {
	switch v := v.(type) {
	case string:
		if !strings.Contains(v, "${{") {
			return v, nil
		}
		return s.Template(v)
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			e, err := s.evalDeep(item)
			if err != nil {
				return nil, err
			}
			out[i] = e
		}
		return out, nil
	case *Object:
		out := NewObject()
		for _, k := range v.Keys() {
			item, _ := v.Get(k)
			e, err := s.evalDeep(item)
			if err != nil {
				return nil, err
			}
			out.Set(k, e)
		}
		return out, nil
	}
	return v, nil
}

// add makes one instance of a job.
func (r *Run) add(j *jobRun, scope Scope, combo combination, index, total int) {
	job := Job{Key: j.def.ID, ID: j.def.ID, Name: matrixName(j.def.displayName(), combo.label), Def: j.def}
	contexts := scope.Contexts.Clone()
	contexts.Set("matrix", nil)
	parallel := cmp.Or(j.maxParallel, total)
	if combo.values != nil {
		job.Key += "/" + strconv.Itoa(index)
		contexts.Set("matrix", combo.values)
	}
	contexts.Set("strategy", NewObject("fail-fast", j.failFast, "job-index", float64(index),
		"job-total", float64(total), "max-parallel", float64(parallel)))
	job.Contexts = contexts
	in := &instance{of: j, status: Waiting}
	err := job.evaluate(Scope{Contexts: contexts})
	in.job = job
	j.instances = append(j.instances, in)
	r.instances[job.Key] = in
	if err != nil {
		r.conclude(in, Failure, err.Error())
	}
}

// evaluate fills in what the scheduler has to know of a job before a runner has it.
func (job *Job) evaluate(scope Scope) error {
	def := job.Def
	if strings.Contains(def.Name, "${{") {
		name, err := scope.Interpolate(def.Name)
		if err != nil {
			return fmt.Errorf("evaluating its name: %w", err)
		}
		job.Name = cmp.Or(strings.TrimSpace(name), def.ID)
	}
	if err := job.evaluateRunsOn(scope); err != nil {
		return fmt.Errorf("evaluating runs-on: %w", err)
	}
	minutes, err := scope.Template(cmp.Or(def.TimeoutMinutes, "360"))
	if err != nil {
		return fmt.Errorf("evaluating timeout-minutes: %w", err)
	}
	if job.Timeout, err = minutesOf(minutes); err != nil {
		return err
	}
	carryOn, err := scope.Template(cmp.Or(def.ContinueOnError, "false"))
	if err != nil {
		return fmt.Errorf("evaluating continue-on-error: %w", err)
	}
	job.ContinueOnError = asBool(carryOn)
	return nil
}

// minutesOf reads a number of minutes; none at all is the default.
func minutesOf(v Value) (time.Duration, error) {
	if v == nil || v == "" {
		return defaultTimeout, nil
	}
	n, ok := Minutes(v)
	if !ok {
		return 0, fmt.Errorf("timeout-minutes is %q, not a number above zero", ToString(v))
	}
	return time.Duration(n * float64(time.Minute)), nil
}

func (job *Job) evaluateRunsOn(scope Scope) error {
	def := job.Def.RunsOn
	group, err := scope.Interpolate(def.Group)
	if err != nil {
		return err
	}
	job.Group = group
	texts := def.Labels
	if def.Expr != "" {
		texts = []string{def.Expr}
	}
	for _, text := range texts {
		v, err := scope.Template(text)
		if err != nil {
			return err
		}
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		for _, item := range list {
			label, ok := item.(string)
			if label = strings.TrimSpace(label); !ok || label == "" {
				return fmt.Errorf("%q gives no label", text)
			}
			if !slices.Contains(job.Labels, label) {
				job.Labels = append(job.Labels, label)
			}
		}
	}
	if len(job.Labels) == 0 && job.Group == "" {
		return fmt.Errorf("it names no label")
	}
	return nil
}
