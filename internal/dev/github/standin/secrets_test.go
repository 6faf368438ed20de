package standin_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	devrunner "github.com/bullpen-ci/bullpen/internal/dev/runner"
)

func TestParseSecrets(t *testing.T) {
	got, err := standin.ParseSecrets("# comment\n\nA=b=c\r\n  token = x \nKEY<<END\n-----\n A=b\n-----\nEND\nEMPTY=\n")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"A": "b=c", "TOKEN": " x ", "KEY": "-----\n A=b\n-----", "EMPTY": ""}, got)
}

func TestParseSecrets_NamesTheLineAndNoValue(t *testing.T) {
	for text, message := range map[string]string{
		"A=b\nhunter22":         "line 2 is neither NAME=VALUE nor NAME<<END",
		"=hunter22":             "line 1 is neither",
		"A<<":                   "line 1 is neither",
		"A<<END\nhunter22\n":    "the value that begins in line 1 has no end",
		"A-B=hunter22":          "line 1: the name of a secret has letters",
		"9=hunter22":            "doesn't begin with a digit",
		"github_token=hunter22": "the name GITHUB_TOKEN is GitHub's",
		"A=" + strings.Repeat("hunter22", 10_000): "the value of A has 80000 bytes",
	} {
		_, err := standin.ParseSecrets(text)
		require.ErrorContains(t, err, message)
		require.NotContains(t, err.Error(), "hunter22")
	}
}

func FuzzParseSecrets(f *testing.F) {
	f.Add("A=b\nKEY<<END\nx\nEND\n# c")
	f.Fuzz(func(t *testing.T, text string) {
		secrets, err := standin.ParseSecrets(text)
		if err != nil {
			return
		}
		for name := range secrets {
			require.NotEmpty(t, name)
			require.Equal(t, strings.ToUpper(name), name)
		}
	})
}

// A job gets the stand-in's secrets, and its log has none of them. One that is not set is empty, and the submission says so.
func TestSecrets_ReachTheJobAndNoLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *standin.Options) {
		o.Secrets = map[string]string{"TOKEN": "hunter22", "TWO_LINES": "first line\nsecond line"}
	})
	run := w.submit(`
on: push
jobs:
  t:
    runs-on: [self-hosted, linux]
    steps:
      - run: test "${{ secrets.token }}${{ secrets.NONE }}$T" = hunter22hunter22
        env: {T: "${{ secrets.TOKEN }}"}
      - run: printf '%s\n' "${{ secrets.TWO_LINES }}" | tr a-z A-Z
`)
	require.Equal(t, []string{"NONE"}, run.MissingSecrets)
	require.Equal(t, "secrets.NONE is not set, and empty in the jobs of ci.yaml. Set secrets in the file of --secrets-file", run.SecretsWarning())
	require.Equal(t, "secrets.A, secrets.B are not set, and empty in the jobs of f. Set secrets in the file of --secrets-file",
		standin.RunView{File: "f", MissingSecrets: []string{"A", "B"}}.SecretsWarning())
	_, config := w.mintConfig("one", "self-hosted", "linux")
	r, err := devrunner.New(devrunner.Options{JIT: config, WorkDir: t.TempDir()})
	require.NoError(t, err)
	require.NoError(t, r.Run(w.ctx))
	job := w.job(run, "t")
	log, err := w.in.Admin.JobLog(w.ctx, job.ID)
	require.NoError(t, err)
	require.Equal(t, "success", job.Conclusion, log)
	require.NotContains(t, log, "hunter22")
	require.NotContains(t, log, "second line")
	require.Contains(t, log, "SECOND LINE")
}
