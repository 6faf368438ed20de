package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
)

// Commands act on a stand-in only if it is that of the server that they would otherwise ask: one that is named elsewhere is not mixed up with it.
func TestConnection_LocalIsTheServersOwnUp(t *testing.T) {
	up := func(standIn bool) string {
		dir := t.TempDir()
		status, err := json.Marshal(map[string]any{"admin": "http://127.0.0.1:8", "kubeconfig": "k", "github": "http://127.0.0.1:9/", "standIn": standIn})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "status.json"), status, 0o600))
		return dir
	}
	fake, app := up(true), up(false)
	env := map[string]string{}
	local := func(c cli.Connection) (cli.Site, error) {
		c.Getenv = func(name string) string { return env[name] }
		return c.Local()
	}
	here := func() (string, error) { return fake, nil }
	for name, conn := range map[string]cli.Connection{
		"of this machine": {DefaultStateDir: here}, "of a directory": {StateDir: fake}, "by its URL": {DefaultStateDir: here, Server: "http://127.0.0.1:8/"},
	} {
		site, err := local(conn)
		require.NoError(t, err, name)
		require.Equal(t, fake, site.StateDir, name)
		require.Equal(t, "http://127.0.0.1:9", site.GitHub, name)
		require.Equal(t, filepath.Join(fake, "secrets", "admin-token"), site.AdminTokenFile, name)
	}
	var elsewhere *cli.NotLocalError
	_, err := local(cli.Connection{StateDir: app})
	require.ErrorAs(t, err, &elsewhere)
	require.True(t, elsewhere.Up)
	env[cli.EnvServer] = "https://bullpen.example.com"
	for name, conn := range map[string]cli.Connection{
		"the environment's": {DefaultStateDir: here}, "the flag's": {Server: "https://bullpen.example.com", StateDir: fake},
		"without the mode": {Server: "https://bullpen.example.com"},
	} {
		_, err := local(conn)
		require.ErrorAs(t, err, &elsewhere, name)
		require.Equal(t, cli.NotLocalError{Server: "https://bullpen.example.com"}, *elsewhere, name)
	}
	delete(env, cli.EnvServer)
	_, err = local(cli.Connection{DefaultStateDir: func() (string, error) { return t.TempDir(), nil }})
	require.ErrorAs(t, err, &elsewhere)
	require.Equal(t, cli.NotLocalError{}, *elsewhere, "the server is in the kubeconfig's cluster")
}

// The kubeconfig that `bullpen up` prints leads to its server: no command then looks for a release in that cluster.
func TestConnection_AKubeconfigOfAnUpNamesIt(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "control-plane", "kubeconfig", "admin.kubeconfig")
	write := func(kubeconfig string) {
		status, err := json.Marshal(map[string]any{
			"admin": "http://127.0.0.1:8", "kubeconfig": kubeconfig, "github": "http://127.0.0.1:9", "standIn": true, "metrics": map[string]string{"controller": "http://127.0.0.1:7"},
		})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "status.json"), status, 0o600))
	}
	write(own)
	nowhere := func() (string, error) { return filepath.Join(dir, "none"), nil }
	connection := func(exported string, c cli.Connection) *cli.Connection {
		c.Getenv = func(name string) string { return map[string]string{"KUBECONFIG": exported}[name] }
		return &c
	}
	for name, c := range map[string]*cli.Connection{
		"exported": connection(own, cli.Connection{DefaultStateDir: nowhere}), "a flag": connection("", cli.Connection{DefaultStateDir: nowhere, Kubeconfig: own}),
	} {
		site, here, err := c.Site()
		require.NoError(t, err, name)
		require.True(t, here, name)
		require.Equal(t, dir, site.StateDir, name)
		require.Equal(t, "http://127.0.0.1:7", site.Controller, name)
		site, err = c.Local()
		require.NoError(t, err, name)
		require.Equal(t, "http://127.0.0.1:9", site.GitHub, name)
	}
	elsewhere := map[string]*cli.Connection{
		"a context of it":              connection(own, cli.Connection{DefaultStateDir: nowhere, Context: "x"}),
		"a flag and its context":       connection("", cli.Connection{DefaultStateDir: nowhere, Kubeconfig: own, Context: "x"}),
		"another kubeconfig":           connection(filepath.Join(dir, "control-plane", "other"), cli.Connection{DefaultStateDir: nowhere}),
		"a program without bullpen up": connection(own, cli.Connection{}),
	}
	for name, c := range elsewhere {
		_, here, err := c.Site()
		require.NoError(t, err, name)
		require.False(t, here, name)
	}
	write("/another/kubeconfig")
	_, here, err := connection(own, cli.Connection{DefaultStateDir: nowhere}).Site()
	require.NoError(t, err)
	require.False(t, here, "it is not what that `bullpen up` wrote")
}

func TestParseRun(t *testing.T) {
	for text, want := range map[string]struct {
		id         int64
		repository string
	}{
		"27182818284": {27182818284, ""},
		"https://github.com/acme/app/actions/runs/27182818284":              {27182818284, "acme/app"},
		"https://github.com/acme/app/actions/runs/27182818284/job/31415":    {27182818284, "acme/app"},
		"https://github.com/acme/app/actions/runs/27182818284/attempts/2":   {27182818284, "acme/app"},
		"https://ghe.example.com/acme/app/actions/runs/5":                   {5, "ghe.example.com/acme/app"},
		"https://ghe.example.com:8443/actions/runs/actions/runs/6?pr=1#top": {6, "ghe.example.com:8443/actions/runs"},
	} {
		id, repository, err := cli.ParseRun(text)
		require.NoError(t, err, text)
		require.Equal(t, want.id, id, text)
		require.Equal(t, want.repository, repository, text)
	}
	for text, says := range map[string]string{
		"": "invalid run", "0": "invalid run", "-5": "invalid run", "ci.yaml": "`bullpen jobs -o wide` lists run IDs",
		"https://github.com/acme/app": "not a run URL", "https://github.com/acme/app/actions/runs": "not a run URL", "https://github.com/a/b/actions/runs/x": "invalid run",
	} {
		_, _, err := cli.ParseRun(text)
		require.ErrorContains(t, err, says, text)
	}
}

// Where GitHub has the run, the error has the page to open and the command to type.
func TestAtGitHub_NamesThePageAndTheCommand(t *testing.T) {
	job := adminapi.Job{
		ID: 31, RunID: 27, Repository: "acme/app", URL: "https://github.com/acme/app/actions/runs/27/job/31", RunURL: "https://github.com/acme/app/actions/runs/27",
	}
	require.EqualError(t, cli.CancelJobAtGitHub(job), "job 31 was not cancelled: GitHub cancels whole runs only. "+
		"Cancel run 27 at https://github.com/acme/app/actions/runs/27 or with `gh run cancel 27 --repo acme/app`")
	require.EqualError(t, cli.LogAtGitHub(job), "the log of job 31 is at GitHub. "+
		"Read it at https://github.com/acme/app/actions/runs/27/job/31 or with `gh run view --job 31 --log --repo acme/app`")
	job.RunURL = "https://ghe.example.com/acme/app/actions/runs/27"
	require.ErrorContains(t, cli.LogAtGitHub(job), "--repo ghe.example.com/acme/app`", "gh asks the host that is named")
	job.URL, job.RunURL = "", ""
	require.EqualError(t, cli.LogAtGitHub(job), "the log of job 31 is at GitHub. Read it with `gh run view --job 31 --log --repo acme/app`")
	require.EqualError(t, cli.CancelRunAtGitHub(27, "", ""), "run 27 was not cancelled: it runs at GitHub. Cancel it with `gh run cancel 27 --repo OWNER/NAME`")
	require.EqualError(t, cli.CancelRunAtGitHub(27, "https://github.com/acme/app/actions/runs/27", "acme/app"),
		"run 27 was not cancelled: it runs at GitHub. Cancel it at https://github.com/acme/app/actions/runs/27 or with `gh run cancel 27 --repo acme/app`")
}
