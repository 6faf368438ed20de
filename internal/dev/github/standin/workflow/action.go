package workflow

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"
)

// ErrAction marks an action.yml that cannot be used.
var ErrAction = errors.New("bad action")

// Action is what an action.yml says. Its texts may hold ${{ }}.
type Action struct {
	Name   string
	Inputs []Pair // with their defaults, in file order
	// Using is docker, node20 or node24; a composite action is refused.
	Using string
	// Image, Entrypoint, PostEntrypoint, Args and Env are of docker. Args is nil where the file has none: then the step gives them.
	Image, Entrypoint, PostEntrypoint string
	Args                              []string
	Env                               []Pair
	// Main and Post are scripts of node. PostIf is the condition of Post, and of PostEntrypoint.
	Main, Post, PostIf string
	// Pre indicates that the file asks for a step before the job.
	Pre bool
}

// maxAction is the largest action.yml accepted, in bytes.
const maxAction = 256 << 10

// ParseAction reads an action.yml. The name is for messages. The error wraps [ErrAction].
func ParseAction(name string, data []byte) (action *Action, err error) {
	defer func() {
		if r := recover(); r != nil { // the parser is another's, and sees outside data
			action, err = nil, fmt.Errorf("%w: %s cannot be read: %v", ErrAction, name, r)
		}
	}()
	var doc yaml.Node
	switch {
	case len(data) > maxAction:
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrAction, name, maxAction)
	case yaml.Unmarshal(data, &doc) != nil || resolve(&doc) == nil:
		return nil, fmt.Errorf("%w: %s is not YAML", ErrAction, name)
	case expandedNodes(&doc, map[*yaml.Node]int{}) > maxNodes:
		return nil, fmt.Errorf("%w: the aliases of %s expand to more than %d nodes", ErrAction, name, maxNodes)
	}
	a := &Action{Name: scalarText(child(&doc, "name"))}
	for _, in := range entries(child(&doc, "inputs")) {
		a.Inputs = append(a.Inputs, Pair{in.name, scalarText(child(in.value, "default"))})
	}
	runs := child(&doc, "runs")
	a.Using = strings.ToLower(scalarText(child(runs, "using")))
	a.PostIf = cmp.Or(scalarText(child(runs, "post-if")), "always()")
	switch a.Using {
	case "docker":
		a.docker(runs)
		if a.Image == "" {
			return nil, fmt.Errorf("%w: You are using a Container Action but an image is not provided in %s.", ErrAction, name)
		}
	case "node12", "node16", "node20", "node24":
		a.Main, a.Post = scalarText(child(runs, "main")), scalarText(child(runs, "post"))
		a.Pre = child(runs, "pre") != nil
		if a.Main == "" {
			return nil, fmt.Errorf("%w: You are using a JavaScript Action but there is not an entry JavaScript file provided in %s.", ErrAction, name)
		}
	case "composite":
		return nil, fmt.Errorf("%w: %s is a composite action, which is not supported here; write its steps into the workflow", ErrAction, name)
	case "":
		return nil, fmt.Errorf("%w: Missing 'using' value. 'using' requires 'composite', 'docker', 'node12', 'node16', 'node20' or 'node24'.", ErrAction)
	default:
		return nil, fmt.Errorf("%w: 'using: %s' is not supported, use 'docker', 'node12', 'node16', 'node20' or 'node24' instead.", ErrAction, a.Using)
	}
	return a, nil
}

func (a *Action) docker(runs *yaml.Node) {
	a.Image, a.Entrypoint = scalarText(child(runs, "image")), scalarText(child(runs, "entrypoint"))
	a.PostEntrypoint, a.Pre = scalarText(child(runs, "post-entrypoint")), child(runs, "pre-entrypoint") != nil
	if args := resolve(child(runs, "args")); args != nil && args.Kind == yaml.SequenceNode {
		a.Args = []string{}
		for _, item := range args.Content {
			a.Args = append(a.Args, scalarText(item))
		}
	}
	for _, v := range entries(child(runs, "env")) {
		a.Env = append(a.Env, Pair{v.name, scalarText(v.value)})
	}
}

// HasPost indicates that the action has a step after the job.
func (a *Action) HasPost() bool { return a.Post != "" || a.PostEntrypoint != "" }

type entry struct {
	name  string
	value *yaml.Node
}

func entries(n *yaml.Node) []entry {
	n = resolve(n)
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	var out []entry
	for i := 0; i+1 < len(n.Content); i += 2 {
		out = append(out, entry{scalarText(n.Content[i]), n.Content[i+1]})
	}
	return out
}

func scalarText(n *yaml.Node) string {
	n = resolve(n)
	if n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return ToString(fromYAML(n))
}

// IsDockerfile reports whether the image of an action names a file to build it from.
func IsDockerfile(image string) bool {
	if hasDockerPrefix(image) {
		return false
	}
	base := strings.ToLower(image[strings.LastIndexByte(image, '/')+1:])
	return strings.HasPrefix(base, "dockerfile.") || strings.HasSuffix(base, "dockerfile")
}

func hasDockerPrefix(image string) bool {
	return len(image) >= len(dockerPrefix) && strings.EqualFold(image[:len(dockerPrefix)], dockerPrefix)
}

// WithoutDocker is an image without docker://.
func WithoutDocker(image string) string {
	if hasDockerPrefix(image) {
		return image[len(dockerPrefix):]
	}
	return image
}
