package arcmigration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/internal/cli/arcmigration"
)

// leaves are the paths of what a manifest says, found by another reader than the converter's own. Null says nothing.
func leaves(given any, path string, found map[string]any) {
	switch given := given.(type) {
	case map[string]any:
		for key, child := range given {
			below := path + "." + key
			if path == "" {
				below = key
			}
			if strings.ContainsAny(key, "./:\" \t") || key == "" {
				below = fmt.Sprintf("%s[%q]", path, key)
			}
			leaves(child, below, found)
		}
		if len(given) > 0 {
			return
		}
	case []any:
		for i, child := range given {
			leaves(child, fmt.Sprintf("%s[%d]", path, i), found)
		}
		if len(given) > 0 {
			return
		}
	case nil:
		return
	}
	found[path] = given
}

// spokenOf reports whether the report says of the path, or of what it lies in, that it is not carried.
func spokenOf(object arcmigration.Object, path string) bool {
	for _, finding := range object.Findings {
		carried := finding.Verdict == arcmigration.Changed || finding.Verdict == arcmigration.ToDo
		within := strings.HasPrefix(path, finding.Path)
		if within && len(path) > len(finding.Path) {
			next := path[len(finding.Path)]
			within = next == '.' || next == '['
		}
		if within && !carried {
			return true
		}
	}
	return false
}

// A value that occurs nowhere else is in the output, or the report names it. This holds for fields that the converter knows, and for
// unknown ones.
func TestConvert_WhatIsNotInTheOutputIsInTheReport(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &generator{t: t}
		object := g.object()
		g.intrude(object)
		content, err := yaml.Marshal(object)
		require.NoError(t, err)
		result := arcmigration.Convert([]arcmigration.Input{{Name: "x", Content: content}}, arcmigration.Options{})
		require.Empty(t, result.Problems, "%s", content)
		var text strings.Builder
		require.NoError(t, result.WriteYAML(&text))
		if result.Failed() {
			return // refused with a reason; what may be refused is another test's
		}
		said := map[string]any{}
		leaves(object, "", said)
		for path, given := range said {
			marker, isText := given.(string)
			if !isText || !strings.HasPrefix(marker, "m") || !strings.HasSuffix(marker, "z") {
				continue
			}
			g.looked++
			if strings.Contains(text.String(), marker) || spokenOf(result.Objects[0], path) {
				continue
			}
			var report strings.Builder
			_ = result.Print(&report)
			t.Fatalf("%s: %s is lost in silence\n%s\nbecame\n%s\n%s", path, marker, content, text.String(), report.String())
		}
		require.NotZero(t, g.looked, "nothing was checked")
	})
}

// Objects that are made as the old kinds' schemas say are converted, not refused.
func TestConvert_OrdinaryObjectsAreNotRefused(t *testing.T) {
	converted := 0
	rapid.Check(t, func(t *rapid.T) {
		g := &generator{t: t}
		content, err := yaml.Marshal(g.object())
		require.NoError(t, err)
		result := arcmigration.Convert([]arcmigration.Input{{Name: "x", Content: content}}, arcmigration.Options{})
		var report strings.Builder
		require.NoError(t, result.Print(&report))
		require.False(t, result.Failed(), "%s\n%s", content, report.String())
		converted++
	})
	require.NotZero(t, converted)
}

// Any input is converted or the report says why not, and nothing panics. Everything that the report does not name was read: the tree of a
// converted object has no unread leaf.
func FuzzConvert(f *testing.F) {
	for _, content := range examples(f) {
		f.Add(content)
	}
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("{{ if }}\n"))
	f.Add([]byte("kind: List\nitems: [{kind: List, items: [1]}, null, []]"))
	f.Fuzz(func(t *testing.T, content []byte) {
		result := arcmigration.Convert([]arcmigration.Input{{Name: "x", Content: content}}, arcmigration.Options{})
		var text, report strings.Builder
		require.NoError(t, result.WriteYAML(&text))
		require.NoError(t, result.Print(&report))
		var made any
		for _, document := range strings.Split(text.String(), "\n---\n") {
			require.NoError(t, yaml.Unmarshal([]byte(document), &made))
		}
		for _, object := range result.Objects {
			require.NotEmpty(t, object.Outcome)
			for _, path := range arcmigration.Overlooked(result, object) {
				require.Fail(t, "overlooked", "%s in %s", path, content)
			}
		}
	})
}
