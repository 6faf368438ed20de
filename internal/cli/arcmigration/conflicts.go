package arcmigration

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// findConflicts finds labels that more than one of the results serves, among everything that was given together, and says how many. The jobs
// that ask for such a label belong to no pool (CLAIM-12), and wait until one of the results is changed.
func findConflicts(all []*conversion) int {
	found := 0
	var pools, owners []*conversion
	for _, c := range all {
		switch {
		case c.object.Outcome != Converted:
		case c.kind == v1alpha1.KindRunnerPool:
			pools = append(pools, c)
		default:
			owners = append(owners, c)
		}
	}
	for i, c := range pools {
		for _, first := range pools[:i] {
			if first.object.Outcome == Converted && c.object.Outcome == Converted {
				found += c.conflictWithPool(first)
			}
		}
	}
	for i, c := range owners {
		for _, pool := range pools {
			if pool.object.Outcome == Converted {
				found += c.conflictWithRunners(pool)
			}
		}
		for _, first := range owners[:i] {
			c.countsTwice(first)
		}
	}
	return found
}

// servedLabels are the labels that an object's runners are registered with, as GitHub compares them.
func (c *conversion) servedLabels() []string {
	spec := c.registered()
	if c.kind == v1alpha1.KindRunnerPool {
		spec, _ = c.made["spec"].(fields)
	}
	labels, _ := spec["labels"].([]any)
	var found []string
	for _, label := range labels {
		text, _ := label.(string)
		found = append(found, strings.ToLower(strings.TrimSpace(text)))
	}
	return found
}

// labelAt is where an object's label is written, or what it comes from.
func (c *conversion) labelAt(label string) *value {
	at := "spec.labels"
	if c.kind != v1alpha1.KindRunnerPool {
		at = c.registeredPath() + ".labels"
	}
	return c.origin(itemPath(at, slices.Index(c.servedLabels(), label)))
}

// source names what an object was made of.
func (c *conversion) source() string {
	return fmt.Sprintf("%s (%s, document %d, line %d)", c.object.Reference, c.file, c.number, c.object.Line)
}

// conflictWithPool finds what the pools of two scale sets both serve. Of two pools of one name the second is not made.
func (c *conversion) conflictWithPool(first *conversion) int {
	mine, others := c.servedLabels(), first.servedLabels()
	var shared []string
	for i, label := range mine {
		switch at := slices.Index(others, label); {
		case at < 0:
		case i > 0 && at > 0:
			shared = append(shared, label)
		default:
			c.fail(c.labelAt(label), fmt.Sprintf("the label %s is that of the pool of %s as well, and jobs that ask for it would wait for ever: a label by which workflows choose a pool belongs to one pool alone, in whatever runner group", label, first.source()),
				"have one pool with the runners of both (raise its autoscaling.maxReplicas; a pool serves every organization and repository that has installed the App), give one of them another name, or convert with --to RunnerDeployment, whose runners may share labels and are in groups of their own")
			c.object.Outcome, c.object.Into, c.made = NotConverted, nil, nil
			return 0
		}
	}
	for _, label := range shared {
		for _, pair := range [][2]*conversion{{c, first}, {first, c}} {
			pair[0].todo(pair[0].labelAt(label), fmt.Sprintf("the label %s is that of the pool of %s as well: jobs that ask for it, and for nothing that only one of them has, would wait for ever", label, pair[1].source()),
				"remove it from one of the pools")
		}
	}
	return len(shared)
}

// conflictWithRunners finds what runners that register by themselves serve as well as a pool.
func (c *conversion) conflictWithRunners(pool *conversion) int {
	found := 0
	others := pool.servedLabels()
	for _, label := range c.servedLabels() {
		if slices.Contains(systemLabels, label) || !slices.Contains(others, label) {
			continue
		}
		found++
		c.todo(c.labelAt(label), fmt.Sprintf("the label %s is that of the pool of %s as well: GitHub gives a job that asks for it to either, and the pool starts a runner for it nevertheless", label, pool.source()),
			"give one of them another label, or convert both to RunnerDeployments with --to RunnerDeployment")
	}
	return found
}

// countsTwice says that two owners would each have a runner for the same job.
func (c *conversion) countsTwice(first *conversion) {
	if !c.countsJobs() || !first.countsJobs() || !samePlace(c.registered(), first.registered()) {
		return
	}
	var shared []string
	for _, label := range c.servedLabels() {
		if !slices.Contains(systemLabels, label) && slices.Contains(first.servedLabels(), label) {
			shared = append(shared, label)
		}
	}
	if len(shared) == 0 {
		return
	}
	c.find(Changed, c.labelAt(shared[0]), fmt.Sprintf("the runners of %s have the labels %s as well, and both owners would make a runner for each job that asks for them", first.source(), strings.Join(shared, ", ")),
		"give them labels that differ, or let one of them alone have autoscaling.jobs")
}

func (c *conversion) countsJobs() bool {
	spec, _ := c.made["spec"].(fields)
	scaling, _ := spec["autoscaling"].(fields)
	return scaling["jobs"] != nil
}

// samePlace says whether runners may be given the same jobs, by where they are registered.
func samePlace(a, b fields) bool {
	if a["enterprise"] != nil || b["enterprise"] != nil {
		return true
	}
	place := func(spec fields) string {
		organization, _ := spec["organization"].(string)
		repository, _ := spec["repository"].(string)
		return strings.ToLower(organization+repository) + "/" // one of them is set
	}
	return strings.HasPrefix(place(a), place(b)) || strings.HasPrefix(place(b), place(a))
}

// refuseTwins has no two objects of one name be made: the second would overwrite the first.
func refuseTwins(all []*conversion) {
	seen := map[Reference]*conversion{}
	for _, c := range all {
		if c.object.Outcome != Converted {
			continue
		}
		if first := seen[*c.object.Into]; first != nil {
			c.fail(c.nameAt(), fmt.Sprintf("%s is made of %s, document %d, line %d already", c.object.Into, first.file, first.number, first.root.line),
				"give one of them another name, or convert them by themselves")
			c.object.Outcome, c.object.Into = NotConverted, nil
			continue
		}
		seen[*c.object.Into] = c
	}
}
