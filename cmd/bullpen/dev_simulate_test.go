//go:build !production

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/dev/simulate"
)

const simulatePolicies = `
accounts: {"*": unlimited}
policies:
- name: one
  pools:
  - name: linux
    spec: {labels: [linux-4], resources: {cpu: "4", memory: 16Gi}, replicas: 1}
- name: two
  pools:
  - name: linux
    spec: {labels: [linux-4], resources: {cpu: "4", memory: 16Gi}, replicas: 2}
`

// simulated runs the command and returns what it prints.
func simulated(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := newDevSimulateCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceUsage = true
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestSimulate_ComparesPolicies(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	policies := file("policies.yaml", simulatePolicies)
	trace := file("trace.csv", "queued_at,account,pool,duration_seconds\n0,acme,linux,60\n0,acme,linux,60\n")
	series := filepath.Join(dir, "series.csv")
	args := []string{"--trace", trace, "--policies", policies, "--boot", "10s", "--mint", "1s", "--connect", "1s", "--series", series, "-o", "json"}
	first, err := simulated(t, args...)
	require.NoError(t, err)
	var results []simulate.Result
	require.NoError(t, json.Unmarshal([]byte(first), &results))
	require.Len(t, results, 2)
	require.Equal(t, []float64{74, 2}, []float64{results[0].Wait.Max, results[1].Wait.Max})
	lines, err := os.ReadFile(series)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(lines), "policy,pool,seconds,queued,busy,idle,starting,desired\none,linux,0,"), "%s", lines)
	require.Contains(t, string(lines), "\ntwo,linux,0,")
	again, err := simulated(t, args...)
	require.NoError(t, err)
	require.Equal(t, first, again)

	_, err = simulated(t, "--trace", file("bad.csv", "queued_at,account,pool,duration_seconds\n0,acme,linux,long\n"), "--policies", policies)
	require.ErrorContains(t, err, "bad.csv: line 2, column 14 (duration_seconds): expected a number of seconds")
	_, err = simulated(t, "--trace", trace)
	require.ErrorContains(t, err, "--policies")
	_, err = simulated(t, "--trace", trace, "--policies", policies, "--boot", "soon")
	require.ErrorContains(t, err, "--boot")
	_, err = simulated(t, "--trace", file("other.csv", "queued_at,account,pool,duration_seconds\n0,acme,mac,1\n"), "--policies", policies)
	require.ErrorContains(t, err, `names the pool "mac"`)
}

// The recording contains the jobs that ran, from when they were queued: pending approval is no queue of ours.
func TestRecorded_IsWhatRan(t *testing.T) {
	at := func(s int) *time.Time { t := time.Unix(int64(s), 0).UTC(); return &t }
	job := adminapi.Job{Account: "acme", Repository: "acme/app", Labels: []string{"linux-4"}, QueuedAt: *at(10), StartedAt: at(30), CompletedAt: at(90)}
	approved, never, running := job, job, job
	approved.ApprovedAt, approved.QueuedAt = at(25), *at(5)
	never.StartedAt, running.CompletedAt = nil, nil
	want := simulate.Job{QueuedAt: *at(10), Account: "acme", Repository: "acme/app", Labels: []string{"linux-4"}, Duration: time.Minute}
	later := want
	later.QueuedAt = *at(25)
	require.Equal(t, simulate.Trace{want, later}, recorded([]adminapi.Job{approved, never, running, job}))
}
