package faultpoint_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/gobuild"
)

// helper is a program that passes a point five times and then prints its clock.
const helper = `package main

import (
	"fmt"
	"os"
	"time"

	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
)

func main() {
	defer fmt.Println("a deferred call ran")
	for i := range 5 {
		fmt.Println("passing", i+1)
		faultpoint.Reached(faultpoint.Point(os.Args[1]))
	}
	fmt.Println("skew", faultpoint.Now().Sub(time.Now()).Round(time.Second))
}
`

// build compiles the helper with these flags. It lies inside the module, or it could not import an internal package.
func build(t *testing.T, flags ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp(".", "_helper-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(helper), 0o600))
	binary := filepath.Join(t.TempDir(), "helper")
	require.NoError(t, gobuild.Build(binary, "./"+dir, flags...))
	return binary
}

// run returns the helper's output, and its end.
func run(t *testing.T, binary, dir string) (string, *os.ProcessState) {
	t.Helper()
	command := exec.CommandContext(await.Context(t), binary, string(faultpoint.MintAnswered))
	command.Env = append(os.Environ(), "BULLPEN_FAULTPOINT_DIR="+dir)
	output, _ := command.Output()
	return string(output), command.ProcessState
}

func TestReached_KillsAtTheNthPassing(t *testing.T) {
	binary := build(t, "-tags", "faultpoints")
	for nth, content := range map[int]string{1: "", 3: "3\n"} {
		dir := t.TempDir()
		file := filepath.Join(dir, string(faultpoint.MintAnswered))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		output, state := run(t, binary, dir)
		require.Equal(t, syscall.SIGKILL, state.Sys().(syscall.WaitStatus).Signal())
		require.Equal(t, nth, strings.Count(output, "passing"))
		require.NotContains(t, output, "deferred")
		require.NoFileExists(t, file, "the next process lives")
		output, state = run(t, binary, dir)
		require.True(t, state.Success())
		require.Contains(t, output, "a deferred call ran")
	}

	dir := t.TempDir()
	for name, content := range map[string]string{
		string(faultpoint.MintRecorded): "", string(faultpoint.MintAnswered) + "." + strconv.Itoa(os.Getpid()): "",
		string(faultpoint.MintAnswered): "6", "clock": "-90s",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	output, state := run(t, binary, dir)
	require.True(t, state.Success(), "another point, another process, and more passings than there are")
	require.Contains(t, output, "skew -1m30s")
}

func TestReached_IsNothingWithoutTheTag(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, string(faultpoint.MintAnswered))
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "clock"), []byte("-90s"), 0o600))
	output, state := run(t, build(t), dir)
	require.True(t, state.Success())
	require.Contains(t, output, "skew 0s")
	require.FileExists(t, file)
	require.False(t, faultpoint.Enabled)
	require.Empty(t, faultpoint.Environment())
	require.WithinDuration(t, time.Now(), faultpoint.Now(), time.Second)
}

func TestPoints_EachOnce(t *testing.T) {
	seen := map[faultpoint.Point]bool{}
	for _, p := range append(faultpoint.Points(), faultpoint.HostPoints()...) {
		require.False(t, seen[p], "%s", p)
		seen[p] = true
		require.Contains(t, []string{"server", "controller", "node", "host"}, p.Component())
	}
}
