package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// What people mistype is answered with the flag or the argument, what it must be, and what to do; never in the words of a library.
func TestRun_MistakesAreExplained(t *testing.T) {
	for want, args := range map[string][]string{
		"missing argument POOL: write `bullpen pool pause POOL`. `bullpen pools` lists pools.":                                  {"pool", "pause"},
		"missing argument JOB: write `bullpen why JOB`. `bullpen jobs` lists job IDs.":                                          {"why"},
		"too many arguments: `bullpen job JOB` takes 1, got 2: [\"1\" \"2\"]":                                                   {"job", "1", "2"},
		"`bullpen jobs` takes no arguments, got \"queued\". See `bullpen jobs --help`":                                          {"jobs", "queued"},
		"--limit must be 1 or more, got \"many\"":                                                                               {"jobs", "--limit", "many"},
		"--limit must be 1 or more, got \"0\"":                                                                                  {"audit", "--limit", "0"},
		"--watch-every must be a duration such as 30s, 5m or 2h, got \"5\"":                                                     {"status", "--watch-every", "5"},
		"--jobs must be 0 or more, got \"-3\"":                                                                                  {"accounts", "set-limits", "acme", "--jobs", "-3"},
		"--output must be table, wide, json, yaml, name, jsonpath=TEMPLATE or custom-columns=HEADER:FIELD, got \"xml\"":         {"pools", "-o", "xml"},
		"--output must be table, wide, json, yaml, csv, jsonpath=TEMPLATE or custom-columns=HEADER:FIELD, got \"name\"":         {"usage", "-o", "name"},
		"--output must be table, wide, json or yaml, got \"name\"":                                                              {"pool", "scale", "linux", "--replicas", "1", "-o", "name"},
		"--output must be jsonpath= and a JSONPath template in braces, such as jsonpath='{.items[*].id}', got \"jsonpath=.id\"": {"jobs", "-o", "jsonpath=.id"},
		"--output must be jsonpath= and a JSONPath template in braces, such as jsonpath='{.id}', got \"jsonpath={.id\"":         {"job", "1", "-o", "jsonpath={.id"},
		"--output must be custom-columns= and HEADER:FIELD, separated by commas, such as custom-columns=NAMESPACE:.namespace, got \"custom-columns=NAME\"": {
			"runners", "-o", "custom-columns=NAME",
		},
		"--output must be custom-columns= with fields of namespace, name, pool, stage, node, createdAt, account, jobId, runnerName, claimedAt, got \"custom-columns=N:.metadata.name\"": {
			"runners", "-o", "custom-columns=N:.metadata.name",
		},
		"--sort-by must be a field of id, at, author, actor, user, statedUser, credential, manager, action, accountId, account, pool, before, after, reason, got \"AGE\"": {"audit", "--sort-by", "AGE"},
		"--output and --quiet exclude each other: give one of them":                                                                       {"pools", "-q", "-o", "json"},
		"--sort-by and --watch exclude each other: give one of them":                                                                      {"events", "--watch", "--sort-by", "count"},
		"--selector must be labels of runs-on, separated by commas, such as linux-4 or linux-4,!gpu. They have no values, got \"size=4\"": {"pools", "-l", "size=4"},
		"missing flag --replicas. See `bullpen pool scale --help`":                                                                        {"pool", "scale", "linux"},
		"missing argument POOL: write `bullpen pool set POOL`. `bullpen pools` lists pools.":                                              {"pool", "set"},
		"missing argument POD: write `bullpen runners get POD`. `bullpen runners` lists runners.":                                         {"runner", "get"},
		"--max-replicas must be 1 or more, got \"0\"":                                                                                     {"pool", "set", "linux", "--max", "0"},
		"--queueing must be FIFO or FairShare, got \"LIFO\"":                                                                              {"pool", "set", "linux", "--queueing", "LIFO"},
		"missing flag: give --replicas, --autoscaling, --min-idle, --max-replicas, --scale-down-cooldown, --stabilization, --idle-timeout, --max-runner-age, --queueing or --image": {"pool", "set", "linux"},
		"--state must be pending approval, queued, blocked, no pool, elsewhere, assigned, running or completed, got \"lost\"":                                                       {"jobs", "--state", "lost"},
		"unknown flag --statee. Did you mean --state?":                                                     {"jobs", "--statee", "queued"},
		"missing subcommand of `bullpen pool`: drain, get, list, pause, resume, scale, set":                {"pool"},
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
