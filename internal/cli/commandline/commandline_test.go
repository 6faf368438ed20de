package commandline_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
)

// program is a small tree of commands.
func program() *cobra.Command {
	root := &cobra.Command{Use: "prog", SilenceUsage: true, SilenceErrors: true}
	nothing := func(*cobra.Command, []string) error { return nil }
	pool := &cobra.Command{Use: "pool", Short: "Pools"}
	pool.AddCommand(&cobra.Command{Use: "pause POOL", Args: cobra.ExactArgs(1), RunE: nothing}, &cobra.Command{Use: "drain POOL", Args: cobra.ExactArgs(1), RunE: nothing})
	jobs := &cobra.Command{Use: "jobs", Args: cobra.NoArgs, RunE: nothing}
	var limit int
	var share float64
	commandline.AtLeast(jobs.Flags(), &limit, "limit", 1, 100, "most jobs")
	jobs.Flags().Duration("every", time.Second, "interval")
	jobs.Flags().Int("jobs", 0, "number")
	jobs.Flags().Float64Var(&share, "share", 1, "share")
	jobs.Flags().Bool("hidden-jobz", false, "not to be suggested")
	_ = jobs.Flags().MarkHidden("hidden-jobz")
	node := &cobra.Command{Use: "node --name NAME", Args: cobra.NoArgs, RunE: nothing}
	for _, name := range []string{"name", "kubeconfig", "bootstrap", "cert", "key"} {
		node.Flags().String(name, "", "")
	}
	_ = node.MarkFlagRequired("name")
	node.MarkFlagsOneRequired("kubeconfig", "bootstrap")
	node.MarkFlagsMutuallyExclusive("kubeconfig", "bootstrap")
	node.MarkFlagsRequiredTogether("cert", "key")
	root.AddCommand(pool, jobs, node, &cobra.Command{Use: "arc FILE...", Args: cobra.MinimumNArgs(1), RunE: nothing}, &cobra.Command{Use: "run -- COMMAND", RunE: nothing})
	commandline.Prepare(root, commandline.Options{
		Hints: map[string]string{"POOL": "`prog pools` lists pools."}, Instead: map[string]string{"logs": "`prog pool logs`"},
	})
	return root
}

func execute(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	root, out, errs := program(), bytes.Buffer{}, bytes.Buffer{}
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

func TestPrepare_ErrorsNameTheFlagOrArgument(t *testing.T) {
	for says, args := range map[string][]string{
		"missing argument POOL: write `prog pool pause POOL`. `prog pools` lists pools.": {"pool", "pause"},
		"missing argument POOL: write `prog pool drain POOL`. `prog pools` lists pools.": {"pool", "drain", ""},
		"too many arguments: `prog pool pause POOL` takes 1, got 2: [\"a\" \"b\"]":       {"pool", "pause", "a", "b"},
		"`prog jobs` takes no arguments, got \"default\". See `prog jobs --help`":        {"jobs", "default"},
		"missing argument FILE: write `prog arc FILE...`":                                {"arc"},
		"unknown flag --job. Did you mean --jobs?":                                       {"jobs", "--job", "5"},
		"unknown flag --colour. See `prog jobs --help`.":                                 {"jobs", "--colour"},
		"unknown flag -x. See `prog jobs --help`":                                        {"jobs", "-x"},
		"--limit must be 1 or more, got \"0\"":                                           {"jobs", "--limit", "0"},
		"--limit must be 1 or more, got \"many\"":                                        {"jobs", "--limit", "many"},
		"--limit is out of range, got \"99999999999999999999\"":                          {"jobs", "--limit", "99999999999999999999"},
		"--jobs must be a whole number, got \"many\"":                                    {"jobs", "--jobs", "many"},
		"--share must be a number, got \"half\"":                                         {"jobs", "--share", "half"},
		"--every must be a duration such as 30s, 5m or 2h, got \"5\"":                    {"jobs", "--every", "5"},
		"--every needs a value. See `prog jobs --help`":                                  {"jobs", "--every"},
		"unknown command \"joobs\" of `prog`. Did you mean `prog jobs`?":                 {"joobs"},
		"unknown command \"explode\" of `prog pool`. See `prog pool --help`.":            {"pool", "explode"},
		"unknown command \"logs\" of `prog`: use `prog pool logs`":                       {"logs"},
	} {
		stdout, _, err := execute(t, args...)
		require.EqualError(t, err, says, args)
		require.Empty(t, stdout)
	}
}

func TestPrepare_FlagsThatBelongTogether(t *testing.T) {
	for says, args := range map[string][]string{
		"missing flag --name. See `prog node --help`":                       {"node", "--kubeconfig", "k"},
		"missing flag: give --kubeconfig or --bootstrap":                    {"node", "--name", "n"},
		"--kubeconfig and --bootstrap exclude each other: give one of them": {"node", "--name", "n", "--kubeconfig", "k", "--bootstrap", "b"},
		"--cert needs --key": {"node", "--name", "n", "--kubeconfig", "k", "--cert", "c"},
	} {
		_, _, err := execute(t, args...)
		require.EqualError(t, err, says, args)
	}
	_, _, err := execute(t, "node", "--name", "n", "--kubeconfig", "k", "--cert", "c", "--key", "k")
	require.NoError(t, err)
}

func TestPrepare_AGroupPrintsItsHelpAndFails(t *testing.T) {
	stdout, stderr, err := execute(t, "pool")
	require.EqualError(t, err, "missing subcommand of `prog pool`: drain, pause")
	require.Empty(t, stdout, "a script reads no help as output")
	require.Contains(t, stderr, "prog pool [command]")
	stdout, _, err = execute(t)
	require.NoError(t, err)
	require.Contains(t, stdout, "Available Commands", "the program alone is asked for help")
}

func TestPrepare_TakesWhatTheSynopsisHas(t *testing.T) {
	for _, args := range [][]string{{"pool", "pause", "a"}, {"arc", "a", "b", "c"}, {"jobs", "--limit", "1"}, {"run", "--", "a", "b"}} {
		_, _, err := execute(t, args...)
		require.NoError(t, err, args)
	}
}

func TestNear(t *testing.T) {
	names := []string{"jobs", "jobs-per-repository", "pool", "pools", "agent", "dev", "runners", "default", "up"}
	for word, want := range map[string][]string{
		"job": {"jobs", "jobs-per-repository"}, "defautl": {"default"}, "get": nil, "RUNNER": {"runners"}, "pols": {"pools", "jobs", "pool"}, "x": nil, "": nil, "u": {"up"},
	} {
		require.Equal(t, want, commandline.Near(word, names), word)
	}
}
