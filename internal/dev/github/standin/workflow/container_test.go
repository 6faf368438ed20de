package workflow

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLoad_RefusesContainersInGitHubsWords(t *testing.T) {
	for name, tc := range map[string]struct {
		lines        string
		line, column int
		message      string
	}{
		"list":                {"container: [debian]", 6, 16, "A sequence was not expected"},
		"unknown key":         {"container: {image: debian, imagee: x}", 6, 32, "Unexpected value 'imagee'"},
		"key in another case": {"container: {Image: debian}", 6, 17, "Unexpected value 'Image'"},
		"entrypoint of a job": {"container: {image: debian, entrypoint: sh}", 6, 32, "Unexpected value 'entrypoint'"},
		"same key twice":      {"container: {image: debian, image: x}", 6, 32, "'image' is already defined"},
		"only a prefix":       {"container: docker://", 6, 16, "Container image cannot be empty"},
		"image is a mapping":  {"container: {image: {a: b}}", 6, 24, "A mapping was not expected"},
		"port is empty":       {"container: {image: a, ports: ['']}", 6, 35, "Unexpected value ''"},
		"ports are a text":    {"container: {image: a, ports: 5432}", 6, 34, "Unexpected value '5432'"},
		"env is a list":       {"container: {image: a, env: [A=b]}", 6, 32, "A sequence was not expected"},
		"empty password":      {"container: {image: a, credentials: {username: u, password: ''}}", 6, 64, "Unexpected value ''"},
		"credentials' key":    {"container: {image: a, credentials: {user: u}}", 6, 41, "Unexpected value 'user'"},
		"env in image":        {"container: {image: '${{ env.A }}'}", 6, 24, "Unrecognized named-value: 'env'. Located at position 1 within expression: env.A"},
		"secrets in options":  {"container: {image: a, options: \"-e A=${{ 1 == secrets.A }}\"}", 6, 36, "Unrecognized named-value: 'secrets'. Located at position 6 within expression: 1 == secrets.A"},
		"services is a text":  {"services: postgres", 6, 15, "Unexpected value 'postgres'"},
		"services is a list":  {"services: [postgres]", 6, 15, "A sequence was not expected"},
		"service is empty":    {"services: {db: ''}", 6, 20, "Container image cannot be empty"},
		"service is null":     {"services: {db: }", 6, 20, "Container image cannot be empty"},
		"no image":            {"services: {db: {env: {A: b}}}", 6, 20, "Container image cannot be empty"},
		"service of a list":   {"services: {db: [postgres]}", 6, 20, "A sequence was not expected"},
		"service twice":       {"services: {db: postgres, DB: mysql}", 6, 30, "'DB' is already defined"},
		"insert":              {"services: {'${{ insert }}': {}}", 6, 16, "insert is not supported here; write the entries out"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load("ci.yml", []byte(oneJob(tc.lines)))
			var load *LoadError
			require.ErrorAs(t, err, &load)
			require.Equal(t, fmt.Sprintf("ci.yml:%d:%d: %s", tc.line, tc.column, tc.message), err.Error())
		})
	}
}

func TestLoad_RefusesActionsThatItCannotHave(t *testing.T) {
	for uses, message := range map[string]string{
		"docker://":         "ci.yml:5:20: Container image cannot be empty",
		"actions/setup@v1":  "ci.yml:5:20: uses is not supported here",
		"./${{ matrix.a }}": "ci.yml:5:20: A template expression is not allowed in this context",
	} {
		_, err := Load("ci.yml", []byte("on: push\njobs:\n  a:\n    runs-on: x\n    steps: [{uses: '"+uses+"'}]\n"))
		require.ErrorContains(t, err, message)
	}
}

func TestLoad_TakesContainersAsGitHubDoes(t *testing.T) {
	for _, lines := range []string{
		"container: debian", "container: ''", "container: ", "container: {image: ''}", "container: docker://debian", "container: '${{ fromJSON(needs.x.outputs.y) }}'",
		"container: {image: 12}", "container: {image: a, ports: [80, '8080:80/tcp'], options: --cpus 1, volumes: ['v:/x:ro'], env: {A: 1, B: true, C: }}",
		"container: {image: a, env: '${{ matrix.env }}', ports: '${{ fromJSON(github.ref) }}'}",
		"container: {image: a, env: {A: '${{ secrets.T }}', B: '${{ env.X }}', C: '${{ runner.os }}'}}",
		"container: {image: a, credentials: {username: '${{ github.actor }}', password: '${{ secrets.T }}'}}",
		"services: {db: postgres, '5': {image: mysql, entrypoint: x, command: 'y z'}}", "services: '${{ fromJSON(vars.S) }}'",
	} {
		mustLoad(t, oneJob(lines))
	}
}

// firstMessage is the message of the first job of a workflow.
func firstMessage(t *testing.T, wf *Workflow) *Message {
	t.Helper()
	run, err := NewRun(wf, Event{Name: wf.Events[0]})
	require.NoError(t, err)
	ready := run.Next()
	require.NotEmpty(t, ready)
	m, err := JobMessage(ready[0], testParams)
	require.NoError(t, err)
	return m
}

func TestJobMessage_SendsContainersUnevaluated(t *testing.T) {
	m := firstMessage(t, mustLoad(t, `on: push
jobs:
  a:
    runs-on: x
    strategy: {matrix: {go: ['1.26']}}
    container:
      image: golang:${{ matrix.go }}
      env: {CGO_ENABLED: 0}
    services:
      postgres:
        image: postgres:17
        ports: ['15432:5432']
        options: --health-cmd pg_isready
    steps: [{run: 'true'}]
`))
	data, err := json.Marshal(m)
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, json.Unmarshal(data, &got))
	want := func(text string) (v any) {
		require.NoError(t, json.Unmarshal([]byte(text), &v))
		return v
	}
	require.Equal(t, want(`{"type":2,"map":[
		{"Key":"image","Value":{"type":3,"expr":"format('golang:{0}', matrix.go)"}},
		{"Key":"env","Value":{"type":2,"map":[{"Key":"CGO_ENABLED","Value":"0"}]}}]}`), got["jobContainer"])
	require.Equal(t, want(`{"type":2,"map":[{"Key":"postgres","Value":{"type":2,"map":[
		{"Key":"image","Value":"postgres:17"},
		{"Key":"ports","Value":{"type":1,"seq":["15432:5432"]}},
		{"Key":"options","Value":"--health-cmd pg_isready"}]}}]}`), got["jobServiceContainers"])
	require.Equal(t, "true", m.Variables[VarContainerHooks].Value)
	require.Equal(t, "true", m.Variables[VarServiceCommand].Value)
	requireRoundTrip(t, m)

	m = firstMessage(t, mustLoad(t, oneJob()))
	data, err = json.Marshal(m)
	require.NoError(t, err)
	require.NotContains(t, string(data), "jobContainer")
	require.NotContains(t, string(data), "jobServiceContainers")
}

func TestJobMessage_NamesStepsAsGitHubDoes(t *testing.T) {
	m := firstMessage(t, mustLoad(t, `on: push
jobs:
  a:
    runs-on: x
    steps:
      - run: a
      - {run: b, id: b}
      - run: c
      - uses: docker://ghcr.io/acme/tool:1.2
        with: {entrypoint: /bin/sh, who: me, args: -c "a b"}
      - uses: ./mine
      - uses: ./mine
`))
	var names []string
	for _, s := range m.Steps {
		names = append(names, s.Name)
	}
	require.Equal(t, []string{"__run", "b", "__run_2", "__ghcr_io_acme_tool_1_2", "__self", "__self_2"}, names)
	require.Equal(t, Reference{Type: "containerRegistry", Image: "ghcr.io/acme/tool:1.2"}, m.Steps[3].Reference)
	require.Equal(t, Reference{Type: "repository", RepositoryType: "self", Path: "./mine"}, m.Steps[4].Reference)
	require.Nil(t, m.Steps[4].Inputs)
	require.Equal(t, []TokenPair{
		{Token{Text: "entrypoint"}, Token{Text: "/bin/sh"}}, {Token{Text: "who"}, Token{Text: "me"}}, {Token{Text: "args"}, Token{Text: `-c "a b"`}},
	}, m.Steps[3].Inputs.Pairs)
}

func evalScope() Scope {
	return Scope{Contexts: NewObject(
		"github", NewObject("actor", "me"), "matrix", NewObject("go", "1.26", "list", []any{"1:1", 2.0}, "env", NewObject("A", 1.0)), "needs", NewObject(), "strategy", NewObject(),
		"vars", NewObject(), "env", NewObject("E", "e"), "secrets", NewObject("T", "hidden"), "runner", NewObject("os", "Linux"), "steps", NewObject(), "job", NewObject(),
	)}
}

func TestEvalContainer_GivesWhatTheFileSays(t *testing.T) {
	m := firstMessage(t, mustLoad(t, oneJob(`container: {image: 'docker://golang:${{ matrix.go }}', options: --cpus 1, volumes: ['a:/b'], ports: '${{ matrix.list }}',
        env: {A: '${{ secrets.T }}', a.b: '${{ env.E }}-${{ runner.os }}', N: 1}, credentials: {username: '${{ github.actor }}', password: '${{ secrets.T }}'}}`)))
	c, err := evalScope().EvalContainer(m.JobContainer)
	require.NoError(t, err)
	require.Equal(t, &Container{
		Image: "golang:1.26", Options: "--cpus 1", Volumes: []string{"a:/b"}, Ports: []string{"1:1", "2"},
		Env: []Pair{{"A", "hidden"}, {"a.b", "e-Linux"}, {"N", "1"}}, Username: "me", Password: "hidden",
	}, c)
}

func TestEvalContainer_AnEmptyImageIsNone(t *testing.T) {
	for _, token := range []*Token{nil, {Kind: TokenNull}, {}, {Text: "docker://"}, {Kind: TokenExpression, Text: "matrix.none"}, {Kind: TokenMapping}} {
		c, err := evalScope().EvalContainer(token)
		require.NoError(t, err)
		require.Nil(t, c)
	}
	services, err := evalScope().EvalServices(&Token{Kind: TokenMapping, Pairs: []TokenPair{{Token{Text: "db"}, Token{Kind: TokenExpression, Text: "matrix.none"}}}})
	require.NoError(t, err)
	require.Equal(t, []Container{{Name: "db"}}, services)
}

func TestEvalContainer_RefusesInGitHubsWords(t *testing.T) {
	for lines, message := range map[string]string{
		"container: {image: a, credentials: {username: u, password: '${{ secrets.NONE }}'}}": "The template is not valid. Unexpected value ''",
		"container: {image: '${{ fromJSON(''[1]'') }}'}":                                     "The template is not valid. A sequence was not expected",
		"container: {image: a, options: '${{ github }}'}":                                    "The template is not valid. A mapping was not expected",
		"container: '${{ fromJSON(''{\"a\":1}'') }}'":                                        "The template is not valid. Unexpected value 'a'",
		"container: {image: a, ports: '${{ matrix.go }}'}":                                   "The template is not valid. Unexpected value '1.26'",
	} {
		m := firstMessage(t, mustLoad(t, oneJob(lines)))
		_, err := evalScope().EvalContainer(m.JobContainer)
		require.EqualError(t, err, message)
		require.ErrorIs(t, err, ErrTemplate)
	}
	_, err := evalScope().EvalContainer(&Token{Kind: TokenExpression, Text: "secrets.T"})
	require.ErrorIs(t, err, ErrExpression, "an image cannot be a secret")
}

func TestLoad_NamesTheSecretsOfAFile(t *testing.T) {
	wf := mustLoad(t, `on: push
env: {A: "${{ secrets.one }}"}
jobs:
  a:
    runs-on: x
    container: {image: a, credentials: {username: u, password: "${{ secrets['TWO'] }}"}}
    steps: [{run: "${{ secrets.GITHUB_TOKEN }} ${{ secrets.ONE }} ${{ toJSON(secrets) }}"}]
`)
	require.Equal(t, []string{"ONE", "TWO"}, wf.Secrets)
}

// ordinaryFiles are workflows after common practice.
func ordinaryFiles(t testing.TB) []string {
	files, err := filepath.Glob("testdata/ordinary/*.yml")
	require.NoError(t, err)
	require.Len(t, files, 10)
	return files
}

func TestOrdinaryWorkflows_LoadAndEvaluate(t *testing.T) {
	for _, file := range ordinaryFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			wf := mustLoad(t, string(data))
			run, err := NewRun(wf, Event{Name: "push", GitHub: NewObject("repository", "acme/app", "sha", strings.Repeat("a", 40), "actor", "me")})
			require.NoError(t, err)
			wanted := 0
			for !run.Done() {
				for _, job := range run.Next() {
					m, err := JobMessage(job, testParams)
					require.NoError(t, err)
					requireRoundTrip(t, m)
					contexts := m.Contexts()
					for name, v := range map[string]Value{
						"env": NewObject(), "secrets": NewObject("DB_PASSWORD", "x", "REGISTRY_TOKEN", "y"), "runner": NewObject("os", "Linux"), "job": NewObject(), "steps": NewObject(),
					} {
						contexts.Set(name, v)
					}
					c, err := (Scope{Contexts: contexts}).EvalContainer(m.JobContainer)
					require.NoError(t, err)
					services, err := (Scope{Contexts: contexts}).EvalServices(m.JobServiceContainers)
					require.NoError(t, err)
					if c != nil {
						wanted++
					}
					wanted += len(services)
					for _, s := range m.Steps {
						if s.Reference.Type != ReferenceScript {
							wanted++
						}
					}
					_, err = run.Complete(job.Key, Success, nil)
					require.NoError(t, err)
				}
			}
			require.Positive(t, wanted, "no job of the file wants a container")
		})
	}
}

func FuzzEvalContainer(f *testing.F) {
	for _, lines := range []string{
		"container: debian", "container: {image: a, env: {A: '${{ secrets.T }}'}, ports: '${{ matrix.list }}'}",
		"services: {db: {image: a, entrypoint: b, credentials: {username: u, password: p}}}", "services: '${{ fromJSON(''{}'') }}'",
	} {
		wf, err := Load("f.yml", []byte(oneJob(lines)))
		require.NoError(f, err)
		for _, t := range []*Token{wf.Jobs[0].Container, wf.Jobs[0].Services} {
			if t != nil {
				data, err := json.Marshal(t)
				require.NoError(f, err)
				f.Add(data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var token Token
		if json.Unmarshal(data, &token) != nil {
			return
		}
		if c, err := evalScope().EvalContainer(&token); err == nil && c != nil {
			require.NotEmpty(t, c.Image)
			require.Empty(t, c.Entrypoint+c.Command, "a job's container has none")
		}
		services, err := evalScope().EvalServices(&token)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, s := range services {
			require.NotEmpty(t, s.Name)
			require.False(t, seen[strings.ToLower(s.Name)])
			seen[strings.ToLower(s.Name)] = true
		}
	})
}
