package workflow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rhysd/actionlint"
	"go.yaml.in/yaml/v4"
)

const (
	// maxFile is the largest workflow file accepted, in bytes.
	maxFile = 512 << 10
	// maxNodes bounds a file after its aliases are expanded: a few lines of aliases can stand for billions.
	maxNodes = 200_000
	// MaxMatrix is the largest number of jobs that one matrix may make.
	MaxMatrix = 256
)

// Problem is one reason to refuse a file.
type Problem struct {
	File string
	// Line and Column count from 1; 0 means that the problem is the file as a whole.
	Line, Column int
	// Feature names what is valid on GitHub but not supported here, "" for a plain mistake.
	Feature string
	Message string
	foreign bool // reported by actionlint's parser, not by this package
}

// String is "file:line:column: message".
func (p Problem) String() string {
	if p.Line == 0 {
		return p.File + ": " + p.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

// LoadError holds every problem found in a file, in file order.
type LoadError struct {
	File     string
	Problems []Problem
}

// Error lists the problems, one a line.
func (e *LoadError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Load parses and checks a workflow file. fileName is for messages and for github.workflow alone. The error
// is a *LoadError with all problems at once; a file that loads can be run in full.
func Load(fileName string, data []byte) (wf *Workflow, err error) {
	c := &checker{file: fileName}
	defer func() {
		// The parsers below are other people's and see outside data: a panic there is a bad file, not our end.
		if r := recover(); r != nil {
			c.add(nil, "", fmt.Sprintf("this file cannot be read: %v", r))
			wf, err = nil, c.result()
		}
	}()
	if len(data) > maxFile {
		c.add(nil, "", fmt.Sprintf("the file has %d bytes, more than the %d that are accepted; split it", len(data), maxFile))
		return nil, c.result()
	}
	var doc yaml.Node
	if yaml.Unmarshal(data, &doc) == nil && expandedNodes(&doc, map[*yaml.Node]int{}) > maxNodes {
		c.add(nil, "", fmt.Sprintf("its aliases expand to more than %d nodes; write them out or remove some", maxNodes))
		return nil, c.result()
	}
	src, parseErrors := actionlint.Parse(data)
	for _, e := range parseErrors {
		c.add(&actionlint.Pos{Line: e.Line, Col: e.Column}, "", e.Message)
		c.problems[len(c.problems)-1].foreign = true
	}
	if src == nil {
		return nil, c.result()
	}
	wanted := c.containers(src, &doc)
	c.rules(src)
	c.features(src)
	c.expressions(src)
	matrices := c.matrices(src, &doc)
	if len(c.problems) > 0 {
		return nil, c.result()
	}
	wf = buildWorkflow(fileName, src, matrices)
	for _, def := range wf.Jobs {
		found := wanted[strings.ToLower(def.ID)]
		def.Container, def.Services = found.job, found.services
	}
	wf.Secrets = secretNames(&doc)
	return wf, nil
}

// checker collects problems.
type checker struct {
	file     string
	problems []Problem
}

func (c *checker) add(pos *actionlint.Pos, feature, message string) {
	p := Problem{File: c.file, Feature: feature, Message: message}
	if pos != nil {
		p.Line, p.Column = pos.Line, pos.Col
	}
	c.problems = append(c.problems, p)
}

func (c *checker) result() *LoadError {
	for i := range c.problems {
		c.problems[i].foreign = false
	}
	slices.SortStableFunc(c.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Message, b.Message))
	})
	return &LoadError{File: c.file, Problems: slices.Compact(c.problems)}
}

// rules runs those of actionlint's rules that GitHub itself enforces. Its rules of taste stay out (a script
// that prints a pull request's title is risky, but runs), and so does its list of runner labels: ours differ.
func (c *checker) rules(src *actionlint.Workflow) {
	rules := []actionlint.Rule{
		actionlint.NewRuleEvents(), actionlint.NewRuleJobNeeds(), actionlint.NewRuleID(),
		actionlint.NewRuleEnvVar(), actionlint.NewRuleGlob(), actionlint.NewRulePermissions(),
	}
	visitor := actionlint.NewVisitor()
	for _, r := range rules {
		visitor.AddPass(r)
	}
	if err := visitor.Visit(src); err != nil {
		c.add(nil, "", err.Error())
	}
	for _, r := range rules {
		for _, e := range r.Errs() {
			c.add(&actionlint.Pos{Line: e.Line, Col: e.Column}, "", e.Message)
		}
	}
}

func (c *checker) unsupported(pos *actionlint.Pos, feature, instead string) {
	c.add(pos, feature, fmt.Sprintf("%s is not supported here; %s", feature, instead))
}

// features refuses what GitHub can do and this package cannot.
func (c *checker) features(src *actionlint.Workflow) {
	if src.Concurrency != nil {
		c.unsupported(src.Concurrency.Pos, "concurrency", "remove it, runs never wait for each other")
	}
	c.shell(defaultShell(src.Defaults))
	for _, job := range src.Jobs {
		c.jobFeatures(job)
		for _, step := range job.Steps {
			switch exec := step.Exec.(type) {
			case *actionlint.ExecAction:
				c.uses(exec.Uses, step.Pos)
			case *actionlint.ExecRun:
				c.shell(exec.Shell)
			}
		}
	}
}

// uses allows images and actions in the workspace. Actions of other repositories would have to be downloaded.
func (c *checker) uses(uses *actionlint.String, pos *actionlint.Pos) {
	name := text(uses)
	image, isImage := strings.CutPrefix(name, dockerPrefix)
	switch {
	case strings.Contains(name, "${{"):
		c.add(uses.Pos, "", "A template expression is not allowed in this context")
	case isImage && image == "":
		c.add(uses.Pos, "", noEmptyImage)
	case isImage, strings.HasPrefix(name, "./"):
	default:
		c.unsupported(posOr(uses, pos), "uses", "write a `run` step instead of the action, or use an image (docker://…) or an action in the workspace (./…)")
	}
}

func (c *checker) jobFeatures(job *actionlint.Job) {
	if job.WorkflowCall != nil {
		c.unsupported(posOr(job.WorkflowCall.Uses, job.Pos), "uses (reusable workflow)", "put its jobs into this file")
	}
	if job.Environment != nil {
		c.unsupported(job.Environment.Pos, "environment", "remove it, there are no approvals or environment secrets")
	}
	if job.Concurrency != nil {
		c.unsupported(job.Concurrency.Pos, "concurrency", "remove it, runs never wait for each other")
	}
	if job.Snapshot != nil {
		c.unsupported(posOr(job.Snapshot.ImageName, job.Pos), "snapshot", "remove it")
	}
	c.shell(defaultShell(job.Defaults))
}

func defaultShell(d *actionlint.Defaults) *actionlint.String {
	if d == nil || d.Run == nil {
		return nil
	}
	return d.Run.Shell
}

func (c *checker) shell(s *actionlint.String) {
	if s == nil || s.ContainsExpression() || s.Value == "bash" || s.Value == "sh" {
		return
	}
	c.add(s.Pos, "shell", fmt.Sprintf("shell %q is not supported here; use bash or sh", s.Value))
}

func posOr(s *actionlint.String, or *actionlint.Pos) *actionlint.Pos {
	if s == nil {
		return or
	}
	return s.Pos
}

// expandedNodes counts the nodes of a tree as if each alias were a copy, and stops counting past maxNodes.
func expandedNodes(n *yaml.Node, memo map[*yaml.Node]int) int {
	if n == nil {
		return 0
	}
	if count, ok := memo[n]; ok {
		return count
	}
	memo[n] = maxNodes + 1 // an alias inside its own anchor never ends
	count := 1
	if n.Alias != nil {
		count += expandedNodes(n.Alias, memo)
	}
	for _, child := range n.Content {
		count = min(count+expandedNodes(child, memo), maxNodes+1)
	}
	memo[n] = count
	return count
}
