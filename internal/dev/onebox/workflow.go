package onebox

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits of the demonstration's workflow.
const (
	// maxMatrix is GitHub's limit of jobs that one matrix makes.
	maxMatrix = 256
	// demoFixed are the jobs of examples/demo.yaml beside the matrix: prepare, expected-failure, after-failure, summary.
	demoFixed = 4
	// demoMacJobs are those of examples/macos.yaml, and demoServiceJobs those of examples/services.yaml.
	demoMacJobs     = 4
	demoServiceJobs = 2
	// DemoMinJobs and DemoMaxJobs bound the jobs of DemoWorkflow.
	DemoMinJobs = demoFixed + 1
	DemoMaxJobs = demoFixed + 20*maxMatrix
	// DemoDefaultJobs is the number in both files as they are.
	DemoDefaultJobs = demoFixed + 20 + demoMacJobs
)

// demoExpected is the conclusion that a job of the demonstration must have, by its key ("build/3").
func demoExpected(key string) string {
	id, _, _ := strings.Cut(key, "/")
	switch id {
	case "expected-failure":
		return "failure"
	case "after-failure":
		return "skipped"
	default:
		return "success"
	}
}

// DemoWorkflow is examples/demo.yaml with a matrix that gives it the number of jobs. Beyond GitHub's limit for one matrix, the job is
// repeated: build, build-2, ….
func DemoWorkflow(file []byte, jobs int) ([]byte, error) {
	if jobs < DemoMinJobs || jobs > DemoMaxJobs {
		return nil, fmt.Errorf("--jobs must be between %d and %d, got %d", DemoMinJobs, DemoMaxJobs, jobs)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(file, &document); err != nil {
		return nil, fmt.Errorf("reading the demonstration's workflow: %w", err)
	}
	all := rootValue(document.Content, "jobs")
	build := valueOf(all, "build")
	needs := valueOf(valueOf(all, "summary"), "needs")
	checks := valueOf(valueOf(all, "summary"), "steps")
	if build == nil || needs == nil || checks == nil || valueOf(valueOf(valueOf(build, "strategy"), "matrix"), "shard") == nil {
		return nil, errors.New("the demonstration's workflow has no job build with a matrix of shards, or no summary that needs it")
	}
	left := jobs - demoFixed
	for n := 1; left > 0; n++ {
		count := min(left, maxMatrix)
		left -= count
		if n == 1 {
			setShards(build, count)
			continue
		}
		name := "build-" + strconv.Itoa(n)
		more := clone(build)
		setShards(more, count)
		all.Content = append(all.Content, scalar(name), more)
		needs.Content = append(needs.Content, scalar(name))
		run := valueOf(checks.Content[0], "run")
		run.Value += fmt.Sprintf("test \"${{ needs.%s.result }}\" = success\n", name)
	}
	return encodeWorkflow(&document)
}

func encodeWorkflow(document *yaml.Node) ([]byte, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(document); err != nil {
		return nil, fmt.Errorf("writing the demonstration's workflow: %w", err)
	}
	return out.Bytes(), nil
}

// mixedWorkflow is DemoWorkflow with some of its jobs replaced by all of another file, which has that many: the summary waits for all.
func mixedWorkflow(file, others []byte, count, jobs int) ([]byte, error) {
	if jobs < DemoMinJobs+count || jobs > DemoMaxJobs {
		return nil, fmt.Errorf("--jobs must be between %d and %d, got %d", DemoMinJobs+count, DemoMaxJobs, jobs)
	}
	content, err := DemoWorkflow(file, jobs-count)
	if err != nil {
		return nil, err
	}
	var document, more yaml.Node
	if err := errors.Join(yaml.Unmarshal(content, &document), yaml.Unmarshal(others, &more)); err != nil {
		return nil, fmt.Errorf("reading the demonstration's workflows: %w", err)
	}
	all, added := rootValue(document.Content, "jobs"), rootValue(more.Content, "jobs")
	summary := valueOf(all, "summary")
	needs, steps := valueOf(summary, "needs"), valueOf(summary, "steps")
	if added == nil || needs == nil || steps == nil {
		return nil, errors.New("the demonstration's workflows have no summary, or no jobs to add")
	}
	for i := 0; i+1 < len(added.Content); i += 2 {
		name := added.Content[i]
		all.Content = append(all.Content, name, added.Content[i+1])
		needs.Content = append(needs.Content, scalar(name.Value))
		run := valueOf(steps.Content[0], "run")
		run.Value += fmt.Sprintf("test \"${{ needs.%s.result }}\" = success\n", name.Value)
	}
	return encodeWorkflow(&document)
}

func setShards(build *yaml.Node, count int) {
	shards := valueOf(valueOf(valueOf(build, "strategy"), "matrix"), "shard")
	shards.Content = nil
	for n := 1; n <= count; n++ {
		shards.Content = append(shards.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(n)})
	}
}

func rootValue(documents []*yaml.Node, key string) *yaml.Node {
	if len(documents) == 0 {
		return nil
	}
	return valueOf(documents[0], key)
}

// valueOf is the value of a key in a mapping, or nil.
func valueOf(mapping *yaml.Node, key string) *yaml.Node {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func scalar(value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
}

func clone(node *yaml.Node) *yaml.Node {
	if node == nil {
		return nil
	}
	copied := *node
	copied.Content = make([]*yaml.Node, len(node.Content))
	for i, inner := range node.Content {
		copied.Content[i] = clone(inner)
	}
	return &copied
}
