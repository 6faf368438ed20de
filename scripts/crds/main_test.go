package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// mostAnnotation is the maximum total size of an object's annotations, in bytes.
const mostAnnotation = 256 << 10

func TestCRDs_FitIntoAnAnnotationAndKeepOurWords(t *testing.T) {
	files, err := filepath.Glob("../../charts/bullpen/crds/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		again, err := small(text)
		require.NoError(t, err)
		require.Equal(t, string(text), string(again), "%s: run make generate", file)
		var object map[string]any
		require.NoError(t, yaml.Unmarshal(text, &object))
		applied, err := json.Marshal(object)
		require.NoError(t, err)
		require.Less(t, len(applied), mostAnnotation*9/10, file)
	}
	text, err := os.ReadFile("../../charts/bullpen/crds/bullpen.dev_runnersets.yaml")
	require.NoError(t, err)
	for _, ours := range []string{
		"Template of the pod.", "VolumeClaimTemplates are the volumes", "WorkVolumeClaim is the volume", "Labels of the runner, in",
	} {
		require.True(t, strings.Contains(string(text), ours), ours)
	}
	require.False(t, strings.Contains(string(text), "List of containers belonging to the pod"))
}

func TestSmall_TouchesKubernetesTypesAlone(t *testing.T) {
	const definition = `
spec:
  versions:
    - schema:
        openAPIV3Schema:
          description: ours
          properties:
            template:
              description: ours
              properties:
                spec:
                  description: ours
                  properties:
                    containers: {description: gone, items: {description: gone, properties: {name: {description: gone, maxLength: 3}}}}
                    description: {description: gone, type: string}
            other:
              properties:
                template: {properties: {spec: {properties: {image: {description: ours}}}}}
`
	text, err := small([]byte(definition))
	require.NoError(t, err)
	require.NotContains(t, string(text), "gone")
	require.Equal(t, 4, strings.Count(string(text), "description: ours"))
	require.Contains(t, string(text), "maxLength: 3")
	require.Contains(t, string(text), "type: string", "a field that is named description is none")
}
