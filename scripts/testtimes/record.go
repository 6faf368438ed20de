package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// testRun is one test binary's run.
type testRun struct {
	// Package is the base name of the binary, without its suffix, after the directory in which it ran.
	Dir string
	// Seconds is how long it ran.
	Seconds float64
	// CPU is the processor time, in seconds, of the binary and of the child processes that it waited for.
	CPU float64
}

// exitCode is the program's own, passed on.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit status %d", int(c)) }

// record runs the program as if it had been started directly, and appends what it took to the file. `go test` stops a
// binary that is out of time by SIGQUIT, which is forwarded, so that the binary prints its goroutines.
func record(file, program string, args []string) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGINT, syscall.SIGTERM)
	child := exec.Command(program, args...) //nolint:gosec,noctx // started as `go test` would; it ends by the signals that are forwarded
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	started := time.Now()
	if err := child.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", program, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = child.Process.Signal(s)
		case err := <-ended:
			return errors.Join(note(file, child.ProcessState, time.Since(started)), exitOf(err))
		}
	}
}

func note(file string, state *os.ProcessState, took time.Duration) error {
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("finding the package's directory: %w", err)
	}
	line, err := json.Marshal(testRun{Dir: filepath.Clean(dir), Seconds: took.Seconds(), CPU: (state.UserTime() + state.SystemTime()).Seconds()})
	if err != nil {
		return fmt.Errorf("encoding a test's time: %w", err)
	}
	out, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // named by the Makefile
	if err != nil {
		return fmt.Errorf("opening the file of times: %w", err)
	}
	_, err = out.Write(append(line, '\n'))
	return errors.Join(err, out.Close())
}

func exitOf(err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exitCode(exit.ExitCode())
	default: // by a signal
		return exitCode(2)
	}
}
