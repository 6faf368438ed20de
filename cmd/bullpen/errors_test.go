package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// What people mistype is answered with the flag or the argument, what it must be, and what to do; never in the words of a library.
func TestRun_MistakesAreExplained(t *testing.T) {
	for want, args := range map[string][]string{
		"missing argument POOL: write `bullpen pool pause POOL`. `bullpen pools` lists pools.":             {"pool", "pause"},
		"missing argument JOB: write `bullpen why JOB`. `bullpen jobs` lists job IDs.":                     {"why"},
		"too many arguments: `bullpen job JOB` takes 1, got 2: [\"1\" \"2\"]":                              {"job", "1", "2"},
		"`bullpen jobs` takes no arguments, got \"queued\". See `bullpen jobs --help`":                     {"jobs", "queued"},
		"--limit must be 1 or more, got \"many\"":                                                          {"jobs", "--limit", "many"},
		"--limit must be 1 or more, got \"0\"":                                                             {"audit", "--limit", "0"},
		"--watch-every must be a duration such as 30s, 5m or 2h, got \"5\"":                                {"status", "--watch-every", "5"},
		"--jobs must be 0 or more, got \"-3\"":                                                             {"accounts", "set-limits", "acme", "--jobs", "-3"},
		"--output must be table, wide, json or yaml, got \"xml\"":                                          {"pools", "-o", "xml"},
		"--state must be pending approval, queued, blocked, assigned, running or completed, got \"lost\"":  {"jobs", "--state", "lost"},
		"unknown flag --statee. Did you mean --state?":                                                     {"jobs", "--statee", "queued"},
		"missing subcommand of `bullpen pool`: drain, pause, resume":                                       {"pool"},
		"unknown command \"pauze\" of `bullpen pool`. Did you mean `bullpen pool pause`?":                  {"pool", "pauze"},
		"unknown command \"get\" of `bullpen`: use `bullpen pools`, `bullpen runners` or `bullpen jobs`":   {"get"},
		"invalid job \"foo\": expected a numeric job ID or a GitHub job URL. `bullpen jobs` lists job IDs": {"why", "foo"},
		"not a job URL: https://github.com/a/b/actions/runs/1 (expected …/runs/RUN/job/JOB)":               {"job", "https://github.com/a/b/actions/runs/1"},
	} {
		root := newRootCommand()
		root.SetArgs(args)
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		require.EqualError(t, root.ExecuteContext(t.Context()), want, args)
	}
}
