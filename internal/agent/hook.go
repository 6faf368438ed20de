package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	envJIT      = "ACTIONS_RUNNER_INPUT_JITCONFIG"
	envHook     = "ACTIONS_RUNNER_HOOK_JOB_STARTED"
	envHookDone = "ACTIONS_RUNNER_HOOK_JOB_COMPLETED"
	// envTellsVersion makes GitHub's runner exit with 7 when GitHub no longer supports its version; without it the code is 1, as for any
	// other error.
	envTellsVersion = "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE"
)

// hookScript is what the runner calls before a job's first step. It is plain shell, because nothing else is sure to be
// in the user's image, and it never fails the job for our sake. A hook of the image's own runs after it.
func hookScript(f files, own string) string {
	lines := []string{
		"#!/bin/sh",
		"# Tells the Bullpen agent that a job has started: from here on a stop waits for it, and the pod shows it.",
		// The parent's name is what proves later that a worker ran, however soon it ended.
		`{ read -r name < "/proc/$PPID/comm" && echo "$name"; } > ` + quote(f.jobStarted) + " 2>/dev/null || :",
		"rm -f " + quote(f.jobless) + " " + quote(f.jobCompleted) + " || :",
	}
	if own != "" {
		lines = append(lines,
			"if command -v bash >/dev/null 2>&1; then exec bash -e "+quote(own)+"; fi",
			"exec sh -e "+quote(own))
	}
	return strings.Join(lines, "\n") + "\n"
}

// hookDoneScript is what a static runner calls after a job's last step. A hook of the image's own runs before it, and fails the
// job as it would without us.
func hookDoneScript(f files, own string) string {
	lines := []string{
		"#!/bin/sh",
		"# Tells the Bullpen agent that a job's last step is over: the runner may take another one soon.",
		"code=0",
	}
	if own != "" {
		lines = append(lines, "if command -v bash >/dev/null 2>&1; then bash -e "+quote(own)+" || code=$?; else sh -e "+quote(own)+" || code=$?; fi")
	}
	return strings.Join(append(lines,
		": > "+quote(f.jobCompleted)+" || :",
		"# Asked to stop: the listener is held before this job ends, so that it takes no other. For some seconds at most.",
		"n=0",
		"while [ -e "+quote(f.last)+" ] && [ ! -e "+quote(f.held)+" ] && [ $n -lt 100 ]; do n=$((n+1)); sleep 0.05 || sleep 1 || :; done",
		`exit "$code"`), "\n") + "\n"
}

// quote makes one shell word.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// writeHook places the script that reports a job's start and returns the variable that names it; empty when the image has a
// hook that is no shell script and so cannot be chained to.
func writeHook(f files, environ []string) (string, error) {
	return placeHook(environ, envHook, f.hook, func(own string) string { return hookScript(f, own) })
}

// writeHookDone is writeHook for a job's end.
func writeHookDone(f files, environ []string) (string, error) {
	return placeHook(environ, envHookDone, f.hookDone, func(own string) string { return hookDoneScript(f, own) })
}

func placeHook(environ []string, variable, path string, script func(own string) string) (string, error) {
	own, _ := lookup(environ, variable)
	if own != "" && filepath.Ext(own) != ".sh" {
		return "", nil
	}
	if err := os.WriteFile(path, []byte(script(own)), 0o700); err != nil {
		return "", fmt.Errorf("writing the hook that reports a job: %w", err)
	}
	return variable + "=" + path, nil
}

// lookup finds the last value of a variable, which is the one that counts.
func lookup(environ []string, name string) (value string, found bool) {
	for _, entry := range environ {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value, found = v, true
		}
	}
	return value, found
}

// without drops variables by name.
func without(environ []string, names ...string) []string {
	var kept []string
	for _, entry := range environ {
		drop := false
		for _, name := range names {
			drop = drop || strings.HasPrefix(entry, name+"=")
		}
		if !drop {
			kept = append(kept, entry)
		}
	}
	return kept
}
