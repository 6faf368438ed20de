package servicename

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/options"
)

func TestResolve(t *testing.T) {
	for _, c := range []struct {
		what     string
		declared []Declared
		images   []string
		want     []string
	}{
		{"all are known", []Declared{{"db", "postgres:17"}, {"cache", "redis"}}, []string{"postgres:17", "redis"}, []string{"db", "cache"}},
		{"no log", nil, []string{"postgres:17", "ghcr.io/acme/redis@sha256:0"}, []string{"postgres", "redis"}},
		{"one image twice", nil, []string{"postgres:16", "postgres:17", "x/postgres"}, []string{"postgres", "postgres-2", "postgres-3"}},
		{"one image twice, with names", []Declared{{"a", "postgres:17"}, {"b", "postgres:17"}}, []string{"postgres:17", "postgres:17"}, []string{"a", "b"}},
		{"expressions", []Declared{{"a", ""}, {"b", ""}}, []string{"x", "y"}, []string{"a", "b"}},
		{"an expression was empty, and it shows which", []Declared{{"a", "x"}, {"b", ""}, {"c", "z"}}, []string{"x", "z"}, []string{"a", "c"}},
		{"an expression was empty, and it does not show which", []Declared{{"a", ""}, {"b", ""}, {"c", "z"}}, []string{"y", "z"}, []string{"y", "c"}},
		{"with docker://", []Declared{{"db", "docker://postgres"}}, []string{"postgres"}, []string{"db"}},
		{"a masked image", []Declared{{"db", "ghcr.io/***/db"}}, []string{"ghcr.io/acme/db"}, []string{"db"}},
		{"another job's log", []Declared{{"db", "mysql"}}, []string{"postgres", "redis"}, []string{"postgres", "redis"}},
		{"fewer than asked for", []Declared{{"db", "mysql"}}, []string{"mysql", "redis"}, []string{"mysql", "redis"}},
		{"a masked name", []Declared{{"***", "mysql"}, {"b", "redis"}}, []string{"mysql", "redis"}, []string{"mysql", "b"}},
		{"a name that would forge a line of /etc/hosts", []Declared{{"db\n6.6.6.6 github.com", "mysql"}}, []string{"mysql"}, []string{"mysql"}},
		{"one name twice", []Declared{{"db", "mysql"}, {"db", "redis"}}, []string{"mysql", "redis"}, []string{"db", "redis"}},
		{"localhost", []Declared{{"localhost", "mysql"}}, []string{"mysql"}, []string{"mysql"}},
		{"a declared name is an image's", []Declared{{"redis", "mysql"}, {"***", "redis"}}, []string{"mysql", "redis"}, []string{"redis", "redis-2"}},
		{"an odd image", nil, []string{"***", ""}, []string{"service", "service-2"}},
	} {
		require.Equal(t, c.want, Resolve(c.declared, c.images), c.what)
	}
}

func TestBaseName(t *testing.T) {
	for image, want := range map[string]string{
		"postgres": "postgres", "postgres:17": "postgres", "localhost:5000/acme/web:v1@sha256:0": "web", "docker://redis": "redis",
		"registry.example:5000/Db": "db", "": "service", "a/": "service", "localhost": "service",
	} {
		require.Equal(t, want, BaseName(image), image)
	}
}

// log is the beginning of a worker's log, with the services of a job's message.
func log(services string) string {
	return `[2026-11-24 10:00:00Z INFO HostContext] Well known directory 'Bin': '/home/runner/bin'
[2026-11-24 10:00:01Z INFO Worker] Message received.
[2026-11-24 10:00:01Z INFO Worker] Job message:
 {
  "fileTable": [".github/workflows/w.yaml"],
  "mask": [],
  "jobDisplayName": "t",
  "jobServiceContainers": ` + services + `,
  "messageType": "PipelineAgentJobRequest"
}
[2026-11-24 10:00:01Z INFO JobRunner] Job ID 1
`
}

func TestFromWorkerLog(t *testing.T) {
	for _, c := range []struct {
		services string
		want     []Declared
	}{
		{`{"type":2,"map":[{"Key":"postgres","Value":{"type":2,"map":[{"Key":"image","Value":"postgres:17"},{"Key":"ports","Value":{"type":1,"seq":["5432"]}}]}},
			{"Key":"cache","Value":"redis:7"}]}`, []Declared{{"postgres", "postgres:17"}, {"cache", "redis:7"}}},
		{`{"type":2,"file":1,"line":4,"col":7,"map":[{"Key":{"type":0,"file":1,"line":4,"col":7,"lit":"db"},"Value":{"type":2,"map":[{"Key":{"type":0,"lit":"Image"},"Value":{"type":0,"lit":"mysql"}}]}}]}`,
			[]Declared{{"db", "mysql"}}},
		{`{"type":2,"map":[{"Key":"a","Value":{"type":2,"map":[{"Key":"image","Value":{"type":3,"expr":"matrix.image"}}]}},{"Key":"b","Value":{"type":3,"expr":"matrix.b"}}]}`,
			[]Declared{{"a", ""}, {"b", ""}}},
		{`{"type":2,"map":[{"Key":"a","Value":{"type":2,"map":[{"Key":"image","Value":""}]}},{"Key":"b","Value":"redis"},{"Key":"c","Value":{"type":7}}]}`, []Declared{{"b", "redis"}}},
		{`{"type":2,"map":[{"Key":"a","Value":{"type":2,"map":[{"Key":{"type":4,"directive":"insert"},"Value":{"type":3,"expr":"matrix"}},{"Key":"image","Value":"x"}]}}]}`, []Declared{{"a", ""}}},
		{`{"type":2,"map":[{"Key":"a","Value":{"type":2,"map":[{"Key":"ports","Value":{"type":1,"seq":[]}}]}}]}`, []Declared{{"a", ""}}},
		{`{"type":2,"map":[]}`, nil},
		// The job has the secrets 2, 1 and true.
		{`{"type":***,"file":***,"x":***,"y":-***5,"map":[{"Key":{"type":0,"line":***,"lit":"db ***\"***"},"Value":"mysql"},{"Key":"b","Value":{"map":[{"Key":"image","Value":{"type":***,"lit":"r"}}]}}]}`,
			[]Declared{{`db ***"***`, "mysql"}, {"b", "r"}}},
		{`null`, nil},
	} {
		got, ok := FromWorkerLog(strings.NewReader(log(c.services)))
		require.True(t, ok, c.services)
		require.Equal(t, c.want, got, c.services)
	}
}

func TestFromWorkerLog_NotThere(t *testing.T) {
	whole := log(`{"type":2,"map":[{"Key":"db","Value":"mysql"}]}`)
	for _, text := range []string{
		"", "[2026] Worker\n", "Job message:", "Job message: none\n", whole[:strings.Index(whole, `"map"`)],
		log(`{"type":3,"expr":"fromJSON(needs.a.outputs.services)"}`), log(`"redis"`), log(`5`), log(`[]`), log(`{"type":"2"}`),
		log(`{"type":2,"map":[{"Key":{"type":3,"expr":"x"},"Value":"redis"}]}`), log(`{"type":2,"map":[{"Key":{"type":4,"directive":"insert"},"Value":{"type":3,"expr":"x"}}]}`),
	} {
		got, ok := FromWorkerLog(strings.NewReader(text))
		require.False(t, ok, text)
		require.Nil(t, got)
	}
	// What looks like the message, and is not.
	got, ok := FromWorkerLog(strings.NewReader("Job message: see below\nJob message:\n {broken\n" + whole))
	require.True(t, ok)
	require.Equal(t, []Declared{{"db", "mysql"}}, got)
}

func FuzzFromWorkerLog(f *testing.F) {
	for _, services := range []string{`{"type":2,"map":[{"Key":"db","Value":{"type":2,"map":[{"Key":"image","Value":"mysql"}]}}]}`, `{"type":3}`, `"x"`, `{"type":2,"map":[{"Key":{"lit":"a"},"Value":null}]}`, `{"type":***,"map":[{"Key":"a***\\"","Value":***}]}`} {
		f.Add(log(services), "mysql", "x/y:1")
	}
	f.Fuzz(func(t *testing.T, text, one, two string) {
		declared, ok := FromWorkerLog(strings.NewReader(text))
		if !ok {
			require.Nil(t, declared)
		}
		images := []string{one, two, one}
		for _, d := range declared {
			images = append(images, d.Image)
		}
		names := Resolve(declared, images)
		seen := map[string]bool{}
		for _, name := range names {
			require.True(t, options.IsHostName(name), fmt.Sprintf("%q", name))
			require.False(t, seen[name], "%q twice", name)
			seen[name] = true
		}
		require.Len(t, names, len(images))
	})
}
