package load

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// MaxMatrix is GitHub's limit of jobs that one matrix makes.
const MaxMatrix = 256

// Limits of a mix: they keep every sum far from overflowing.
const (
	maxWeight  = 1_000_000
	maxSeconds = 6 * 60 * 60
	maxEntries = 1000
)

// Mix is what is submitted: kinds of runs, drawn by weight.
type Mix struct {
	Runs []Kind `json:"runs"`
}

// Kind is one kind of run: a workflow of one job with a matrix.
type Kind struct {
	// Repository is owner/name; the owner is the account.
	Repository string `json:"repository"`
	// Labels are what the jobs ask for.
	Labels []string `json:"labels"`
	// Weight is its share among all kinds, by number of runs. Default 1.
	Weight int `json:"weight,omitempty"`
	// Jobs of one run, from 1 (default) to MaxMatrix.
	Jobs int `json:"jobs,omitempty"`
	// Seconds each job sleeps. Default 0.
	Seconds int `json:"seconds,omitempty"`
}

// DefaultMix is one job a run, for the pool of `bullpen up`.
func DefaultMix() Mix {
	return Mix{Runs: []Kind{{Repository: "acme/app", Labels: []string{"bullpen"}, Weight: 1, Jobs: 1}}}
}

// OneKind is a mix of one kind of run, which is checked.
func OneKind(kind Kind) (Mix, error) {
	kind.Weight = 1
	return Mix{Runs: []Kind{kind}}, kind.check()
}

var (
	repositoryName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}$`)
	labelName      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
)

// ParseMix reads a mix in YAML or JSON. A field that is not known is an error; what is left out gets its default.
func ParseMix(text []byte) (Mix, error) {
	var mix Mix
	if err := yaml.UnmarshalStrict(text, &mix); err != nil {
		return Mix{}, fmt.Errorf("reading the mix: %w", err)
	}
	if len(mix.Runs) == 0 || len(mix.Runs) > maxEntries {
		return Mix{}, fmt.Errorf("the mix has %d kinds of runs: write a list `runs` of 1 to %d, each with repository and labels", len(mix.Runs), maxEntries)
	}
	for i := range mix.Runs {
		kind := &mix.Runs[i]
		if kind.Weight == 0 {
			kind.Weight = 1
		}
		if kind.Jobs == 0 {
			kind.Jobs = 1
		}
		if err := kind.check(); err != nil {
			return Mix{}, fmt.Errorf("runs[%d]: %w", i, err)
		}
	}
	return mix, nil
}

func (k Kind) check() error {
	if !repositoryName.MatchString(k.Repository) {
		return fmt.Errorf("repository %q is not written owner/name", k.Repository)
	}
	if len(k.Labels) == 0 {
		return fmt.Errorf("labels are missing: name those of a pool, as runs-on does")
	}
	for _, label := range k.Labels {
		if !labelName.MatchString(label) { // it is written into a workflow file
			return fmt.Errorf("label %q is not possible: use letters, digits, and . _ - after the first", label)
		}
	}
	for _, field := range []struct {
		name               string
		value, least, most int
	}{{"weight", k.Weight, 1, maxWeight}, {"jobs", k.Jobs, 1, MaxMatrix}, {"seconds", k.Seconds, 0, maxSeconds}} {
		if field.value < field.least || field.value > field.most {
			return fmt.Errorf("%s is %d: give a number from %d to %d", field.name, field.value, field.least, field.most)
		}
	}
	return nil
}

// Workflow is the workflow file of a run with that number of jobs.
func (k Kind) Workflow(jobs int) string {
	var b strings.Builder
	b.WriteString("name: load\non: workflow_dispatch\njobs:\n  load:\n    runs-on: [" + strings.Join(quoted(k.Labels), ", ") +
		"]\n    strategy:\n      fail-fast: false\n      matrix:\n        n: [")
	for n := range jobs {
		if n > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(n + 1))
	}
	fmt.Fprintf(&b, "]\n    steps:\n    - run: sleep %d\n", k.Seconds)
	return b.String()
}

// quoted keeps a label such as 12 or true a text.
func quoted(labels []string) []string {
	out := make([]string, len(labels))
	for i, label := range labels {
		out[i] = strconv.Quote(label)
	}
	return out
}
