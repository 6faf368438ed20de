package cli_test

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/clusterevents"
)

var printed = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// somePools are in the order in which the server lists them.
func somePools() []adminapi.Pool {
	oldest := printed.Add(-time.Minute)
	return []adminapi.Pool{
		{Namespace: "runners", Name: "linux-16", Labels: []string{"linux-16", "GPU"}, Platform: "linux", Idle: 1, Demand: &adminapi.PoolDemand{Queued: 2, OldestQueued: &oldest}},
		{Namespace: "runners", Name: "linux-4", Labels: []string{"linux-4", "linux"}, Platform: "linux", Idle: 3},
		{Namespace: "other", Name: "macos", Labels: []string{"macos"}, Platform: "macos", Idle: 2, Problems: []adminapi.Problem{{Condition: "Saturated", Sentence: "3 jobs wait"}}},
	}
}

// output reads the flags of a command that lists rows, or gets one.
func output[T any](t *testing.T, list bool, args ...string) *cli.Output {
	t.Helper()
	o, flags := cli.OutputOf[T](), pflag.NewFlagSet("x", pflag.ContinueOnError)
	if list {
		o.ListFlags(flags)
	} else {
		o.GetFlags(flags)
	}
	require.NoError(t, flags.Parse(args), args)
	return &o
}

func listPools(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, cli.PoolRows(printed).Print(&out, output[adminapi.Pool](t, true, args...), somePools()), args)
	return out.String()
}

// Each flag means what it means to kubectl.
func TestRows_FormatsOfAList(t *testing.T) {
	for want, args := range map[string][]string{
		"pool/linux-16\npool/linux-4\npool/macos\n":                   {"-o", "name"},
		"linux-16\nlinux-4\nmacos\n":                                  {"-q"},
		"linux-4\nlinux-16\nmacos\n":                                  {"-q", "--sort-by", "name"},
		"macos\nlinux-16\nlinux-4\n":                                  {"-q", "--sort-by", "{.namespace}"},
		"linux-4\nmacos\nlinux-16\n":                                  {"-q", "--sort-by", ".demand.queued"},
		"linux-16 linux-4 macos":                                      {"-o", "jsonpath={.items[*].name}"},
		"linux-16=1\nmacos=2\nlinux-4=3\n":                            {"--sort-by=idle", "-o", `jsonpath={range .items[*]}{.name}={.idle}{"\n"}{end}`},
		"NAME       IDLE\nlinux-16   1\nlinux-4    3\nmacos      2\n": {"-o", "custom-columns=NAME:.name,IDLE:idle"},
		"linux-16   2\nlinux-4    <none>\nmacos      <none>\n":        {"-o", "custom-columns=NAME:.name,QUEUED:{.demand.queued}", "--no-headers"},
	} {
		require.Equal(t, want, listPools(t, args...), args)
	}
	table := listPools(t)
	require.Equal(t, table, listPools(t, "-o", "table"))
	require.True(t, strings.HasPrefix(table, "POOL "), table)
	require.Regexp(t, `(?m)^linux-16 +linux-16,GPU +0 +1 +0 +0 +2 +0 +1m00s +-$`, table)
	require.Contains(t, listPools(t, "-o", "wide"), "NAMESPACE")
	bare := listPools(t, "--no-headers", "--sort-by", "idle")
	require.NotContains(t, bare, "POOL")
	require.Regexp(t, `(?s)^linux-16 .*\nmacos .*\nlinux-4 `, bare)

	var back []adminapi.Pool
	require.NoError(t, json.Unmarshal([]byte(listPools(t, "-o", "json")), &back))
	require.Equal(t, somePools(), back)
	require.Contains(t, listPools(t, "-o", "yaml", "--sort-by", "platform"), "name: macos\n")
}

// Without rows, a script reads nothing, or an empty list.
func TestRows_Empty(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"No pools found. Apply a RunnerPool, such as examples/pool.yaml.\n", nil},
		{"", []string{"--no-headers"}},
		{"", []string{"-q"}},
		{"", []string{"-o", "name"}},
		{"[]\n", []string{"-o", "json"}},
		{"", []string{"-o", "jsonpath={.items[*].name}"}},
		{"NAME\n", []string{"-o", "custom-columns=NAME:.name"}},
	} {
		var out bytes.Buffer
		require.NoError(t, cli.PoolRows(printed).Print(&out, output[adminapi.Pool](t, true, c.args...), nil), c.args)
		require.Equal(t, c.want, out.String(), c.args)
	}
}

// One row is itself in JSON and in templates, and no list.
func TestRows_FormatsOfOne(t *testing.T) {
	one := somePools()[2]
	print := func(args ...string) string {
		t.Helper()
		var out bytes.Buffer
		require.NoError(t, cli.PrintPool(&out, output[adminapi.Pool](t, false, args...), one, printed))
		return out.String()
	}
	require.Contains(t, print(), "\nSaturated: 3 jobs wait\n")
	require.Equal(t, "pool/macos\n", print("-o", "name"))
	require.Equal(t, "macos\n", print("-q"))
	require.Equal(t, "2", print("-o", "jsonpath={.idle}"))
	require.Equal(t, "macos   Saturated\n", print("--no-headers", "-o", "custom-columns=P:.name,X:.problems[0].condition"))
	require.Equal(t, 1, strings.Count(print("--no-headers"), "\n"), "a script reads one line")
	var back adminapi.Pool
	require.NoError(t, json.Unmarshal([]byte(print("-o", "json")), &back))
	require.Equal(t, one, back)
}

// An ID of eleven digits is printed whole.
func TestRows_NumbersStayWhole(t *testing.T) {
	jobs := []adminapi.Job{{ID: 31415926535, State: "queued"}}
	for want, args := range map[string][]string{
		"31415926535": {"-o", "jsonpath={.items[0].id}"}, "31415926535\n": {"-q"}, "job/31415926535\n": {"-o", "name"}, "ID\n31415926535\n": {"-o", "custom-columns=ID:.id"},
	} {
		var out bytes.Buffer
		require.NoError(t, cli.JobRows(printed).Print(&out, output[adminapi.Job](t, true, args...), jobs))
		require.Equal(t, want, out.String(), args)
	}
}

// What others wrote moves no cursor in custom columns either.
func TestRows_CustomColumnsArePrintable(t *testing.T) {
	var out bytes.Buffer
	o := output[adminapi.Job](t, true, "-o", "custom-columns=NAME:.name")
	require.NoError(t, cli.JobRows(printed).Print(&out, o, []adminapi.Job{{Name: "a\x1b[2Jb"}}))
	require.Equal(t, "NAME\na [2Jb\n", out.String())
}

func TestOutput_Refusals(t *testing.T) {
	parse := func(args ...string) error {
		o, flags := cli.OutputOf[adminapi.MonthUsage](), pflag.NewFlagSet("x", pflag.ContinueOnError)
		flags.SetOutput(io.Discard)
		o.CSV, o.Nameless = true, true
		o.ListFlags(flags)
		return flags.Parse(args)
	}
	require.NoError(t, parse("-o", "csv", "--sort-by", "jobs"))
	require.ErrorContains(t, parse("-o", "name"), "must be table, wide, json, yaml, csv, jsonpath=TEMPLATE or custom-columns=HEADER:FIELD")
	require.ErrorContains(t, parse("-o", "jsonpath={"), "such as jsonpath='{.items[*].account}'")
	require.ErrorContains(t, parse("-o", "custom-columns=A"), "such as custom-columns=ACCOUNT:.account")
	require.ErrorContains(t, parse("-o", "custom-columns=A:.foo"), "fields of account, accountId, month")
	require.ErrorContains(t, parse("--sort-by", "foo"), "a field of account, accountId, month")
	require.Error(t, parse("-q"), "usage has no names")

	var out bytes.Buffer
	err := cli.PoolRows(printed).Print(&out, output[adminapi.Pool](t, true, "-o", "jsonpath={.items[7].name}"), somePools())
	require.ErrorContains(t, err, "`-o json` shows the fields, and the list is at .items")
	err = cli.PoolRows(printed).Print(&out, output[adminapi.Pool](t, true, "--sort-by", "labels"), somePools())
	require.ErrorContains(t, err, "--sort-by labels: not a field to sort by")
	require.Empty(t, out.String())
}

// CSV follows --sort-by and --no-headers.
func TestPrintUsage_CSV(t *testing.T) {
	usage := []adminapi.MonthUsage{{Account: "b", JobSeconds: 10}, {Account: "a", JobSeconds: 9}}
	print := func(args ...string) string {
		t.Helper()
		o, flags := cli.OutputOf[adminapi.MonthUsage](), pflag.NewFlagSet("x", pflag.ContinueOnError)
		o.CSV, o.Nameless = true, true
		o.ListFlags(flags)
		require.NoError(t, flags.Parse(args))
		var out bytes.Buffer
		require.NoError(t, cli.PrintUsage(&out, &o, usage))
		return out.String()
	}
	require.Regexp(t, `(?s)^account,.*\nb,.*\na,`, print("-o", "csv"))
	require.Regexp(t, `^a,.*\nb,.*\n$`, print("-o", "csv", "--sort-by", "jobSeconds", "--no-headers"))
	require.Regexp(t, `(?s)^ACCOUNT .*\na .*\nb `, print("--sort-by", "account"))
}

// A watch of events prints each in the format, one after the other.
func TestPrintEvent_Formats(t *testing.T) {
	e := clusterevents.Event{At: printed, Count: 2, Type: "Warning", Reason: "Failed", Kind: "Pod", Name: "linux-1", Message: "no"}
	for want, args := range map[string][]string{
		"Failed: no\n": {"-o", `jsonpath={.reason}: {.message}{"\n"}`}, "2   Failed\n": {"-o", "custom-columns=N:.count,R:.reason"}, "event/\n": {"-o", "name"},
	} {
		var out bytes.Buffer
		require.NoError(t, cli.PrintEvent(&out, output[clusterevents.Event](t, true, args...), e))
		require.Equal(t, want, out.String(), args)
	}
	shown := screen{}
	require.NoError(t, cli.PrintEvent(&shown, &cli.Output{}, e))
	require.Contains(t, shown.String(), string(cli.Yellow)+"Warning\x1b[0m  Failed")
}

// States are coloured on a terminal, and colours move no column.
func TestTables_Colours(t *testing.T) {
	runners := []adminapi.Runner{{Name: "a", Stage: "idle"}, {Name: "b", Stage: "starting"}, {Name: "c", Stage: "finished"}, {Name: "d", Stage: "busy"}}
	accounts := []adminapi.Account{
		{Login: "a", State: adminapi.AccountActive, Budgets: []adminapi.Budget{{Platform: "linux", Limits: adminapi.Limits{Jobs: 1, MilliCPU: 1, MemoryMB: 1}, Usage: adminapi.Usage{Jobs: 1}}}},
		{Login: "b", State: adminapi.AccountSuspended, SuspendedByAdministrator: true}, {Login: "c", State: adminapi.AccountDeleted},
	}
	pools := somePools()
	pools[0].Demand.Blocked, pools[1].Deleting = map[string]int64{"account_limit": 7}, true
	for _, c := range []struct {
		table cli.Table
		has   []string
		plain string
	}{
		{cli.RunnerTable(runners, printed), []string{string(cli.Green) + "idle", string(cli.Yellow) + "starting", string(cli.Grey) + "finished"}, "busy"},
		{cli.AccountTable(accounts), []string{string(cli.Yellow) + "suspended (administrator)", string(cli.Grey) + "deleted", string(cli.Red) + "100% jobs"}, "active"},
		{cli.PoolTable(pools, printed), []string{string(cli.Red) + "Saturated", string(cli.Yellow) + "7", string(cli.Grey) + "deleting"}, "linux-4"},
		{cli.EventTable([]clusterevents.Event{{Type: "Warning"}, {Type: "Normal"}}, printed), []string{string(cli.Yellow) + "Warning"}, "Normal"},
	} {
		var plain bytes.Buffer
		coloured := screen{}
		require.NoError(t, cli.Print(&plain, cli.FormatTable, nil, c.table))
		require.NoError(t, cli.Print(&coloured, cli.FormatTable, nil, c.table))
		for _, text := range c.has {
			require.Contains(t, coloured.String(), text+"\x1b[0m")
		}
		require.NotContains(t, coloured.String(), "m"+c.plain+"\x1b")
		require.NotContains(t, plain.String(), "\x1b")
		require.Equal(t, plain.String(), uncoloured.Replace(coloured.String()))
	}
}

func TestLabelSelector(t *testing.T) {
	for text, want := range map[string][]string{
		"linux-4": {"linux-4"}, "LINUX": {"linux-4"}, "gpu": {"linux-16"}, "!gpu": {"linux-4", "macos"}, "linux-4,linux": {"linux-4"}, "linux-16, !gpu": {}, "!macos,!linux": {"linux-16"},
	} {
		var selector cli.LabelSelector
		require.NoError(t, selector.Set(text), text)
		names := []string{}
		for _, pool := range cli.PoolsIn("", &selector, somePools()) {
			names = append(names, pool.Name)
		}
		require.Equal(t, want, names, text)
		require.False(t, selector.Empty())
	}
	var all, twice cli.LabelSelector
	require.True(t, all.Empty())
	require.Len(t, cli.PoolsIn("", &all, somePools()), 3)
	require.Len(t, cli.PoolsIn("runners", &all, somePools()), 2)
	require.NoError(t, twice.Set("linux"))
	require.NoError(t, twice.Set("linux-16"))
	require.Empty(t, cli.PoolsIn("", &twice, somePools()), "flags add up")
	for _, bad := range []string{"", "a,", "a=b", "a==b", "a!=b", "a in (b)", "!", "a b"} {
		require.ErrorContains(t, new(cli.LabelSelector).Set(bad), "They have no values", bad)
	}
}
