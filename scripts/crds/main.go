// Command crds makes the definitions of charts/bullpen/crds small. `make generate` runs it at the top of the repository, after
// controller-gen.
//
// A pod's template brings some 600 KB of Kubernetes' own descriptions, twice what an annotation may hold: `kubectl apply` without
// --server-side keeps the last configuration in one and is refused at 256 KB, a Helm release holds all definitions in one Secret of 1 MB, and
// each API server keeps them in memory. They say what `kubectl explain pod.spec` says. Our own descriptions, of everything
// above, stay.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// kubernetes are the fields below which everything is Kubernetes' own, by the path before them. The named fields keep their own
// description.
var kubernetes = [][]string{
	{"template", "spec"},
	{"workVolumeClaim"},
	{"volumeClaimTemplates", "[]", "spec"},
}

func main() {
	if err := run("charts/bullpen/crds"); err != nil {
		fmt.Fprintln(os.Stderr, "crds: run it at the top of the repository:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		before, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		after, err := small(before)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if bytes.Equal(before, after) {
			continue
		}
		if err := os.WriteFile(file, after, 0o644); err != nil { //nolint:gosec // no secret
			return err
		}
	}
	return nil
}

// small returns a definition without the descriptions. One that has none of those fields is returned as it is.
func small(definition []byte) ([]byte, error) {
	var object map[string]any
	if err := yaml.Unmarshal(definition, &object); err != nil {
		return nil, err
	}
	spec, _ := object["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	changed := false
	for _, version := range versions {
		fields, _ := version.(map[string]any)
		schema, _ := fields["schema"].(map[string]any)
		root, _ := schema["openAPIV3Schema"].(map[string]any)
		walk(root, nil, &changed)
	}
	if !changed {
		return definition, nil
	}
	text, err := yaml.Marshal(object)
	if err != nil {
		return nil, err
	}
	return append([]byte("---\n"), text...), nil
}

// walk looks for the fields of kubernetes, of whatever is not Kubernetes' own.
func walk(schema map[string]any, path []string, changed *bool) {
	for _, end := range kubernetes {
		if ends(path, end) && pods(schema) {
			strip(schema, false, changed)
			return
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		if below, ok := property.(map[string]any); ok {
			walk(below, append(path[:len(path):len(path)], name), changed)
		}
	}
	if items, ok := schema["items"].(map[string]any); ok {
		walk(items, append(path[:len(path):len(path)], "[]"), changed)
	}
}

// pods tells Kubernetes' types from ours of the same place: a template of ours has a spec of ours.
func pods(schema map[string]any) bool {
	properties, _ := schema["properties"].(map[string]any)
	_, pod := properties["containers"]
	_, claim := properties["accessModes"]
	return pod || claim
}

func ends(path, end []string) bool {
	if len(path) < len(end) {
		return false
	}
	for i, name := range end {
		if path[len(path)-len(end)+i] != name {
			return false
		}
	}
	return true
}

// strip takes every description below a schema, and its own unless it is the first.
func strip(schema map[string]any, own bool, changed *bool) {
	if _, described := schema["description"].(string); described && own {
		delete(schema, "description")
		*changed = true
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, property := range properties {
		if below, ok := property.(map[string]any); ok {
			strip(below, true, changed)
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if below, ok := schema[key].(map[string]any); ok {
			strip(below, true, changed)
		}
	}
}
