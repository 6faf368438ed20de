package workflow

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const dockerAction = `
name: Greet
inputs:
  who: {description: whom, default: world}
  how: {required: true}
runs:
  using: Docker
  image: Dockerfile
  pre-entrypoint: /pre.sh
  entrypoint: /main.sh
  post-entrypoint: /post.sh
  args: [hello, "${{ inputs.who }}", 3]
  env: {A: b}
`

func TestParseAction(t *testing.T) {
	a, err := ParseAction("action.yml", []byte(dockerAction))
	require.NoError(t, err)
	require.Equal(t, &Action{
		Name: "Greet", Inputs: []Pair{{"who", "world"}, {"how", ""}}, Using: "docker", Image: "Dockerfile", Entrypoint: "/main.sh", PostEntrypoint: "/post.sh",
		Args: []string{"hello", "${{ inputs.who }}", "3"}, Env: []Pair{{"A", "b"}}, PostIf: "always()", Pre: true,
	}, a)
	require.True(t, a.HasPost())
	a, err = ParseAction("action.yml", []byte("runs: {using: node20, main: i.js, post: p.js, post-if: success()}"))
	require.NoError(t, err)
	require.Equal(t, &Action{Using: "node20", Main: "i.js", Post: "p.js", PostIf: "success()"}, a)
}

func TestParseAction_RefusesInGitHubsWords(t *testing.T) {
	for text, message := range map[string]string{
		"":                               "Missing 'using' value",
		"a: [":                           "is not YAML",
		"[]":                             "Missing 'using' value. 'using' requires 'composite', 'docker', 'node12', 'node16', 'node20' or 'node24'.",
		"runs: {using: docker}":          "You are using a Container Action but an image is not provided in a/action.yml.",
		"runs: {using: node20}":          "You are using a JavaScript Action but there is not an entry JavaScript file provided in a/action.yml.",
		"runs: {using: composite}":       "is a composite action, which is not supported here",
		"runs: {using: rust}":            "'using: rust' is not supported, use 'docker', 'node12', 'node16', 'node20' or 'node24' instead.",
		"x: &a [*a]\nruns: {using: x}\n": "expand to more than",
	} {
		_, err := ParseAction("a/action.yml", []byte(text))
		require.ErrorIs(t, err, ErrAction)
		require.ErrorContains(t, err, message)
	}
}

func TestIsDockerfile(t *testing.T) {
	for image, want := range map[string]bool{
		"Dockerfile": true, "a/Dockerfile": true, "Dockerfile.dev": true, "my.dockerfile": true, "docker://x/Dockerfile": false, "DOCKER://Dockerfile": false, "alpine": false, "Dockerfile/x": false,
	} {
		require.Equal(t, want, IsDockerfile(image), image)
	}
	require.Equal(t, "alpine", WithoutDocker("Docker://alpine"))
}

func FuzzParseAction(f *testing.F) {
	f.Add([]byte(dockerAction))
	f.Add([]byte("runs: {using: node20, main: i.js, post: p.js}"))
	f.Add([]byte("x: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := ParseAction("action.yml", data)
		if err != nil {
			require.ErrorIs(t, err, ErrAction)
			return
		}
		require.True(t, a.Main != "" || a.Image != "")
		require.NotEmpty(t, a.PostIf)
	})
}
