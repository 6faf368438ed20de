package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/machost/steps"
)

// startWatchdog starts `bullpen host revert-guard` as a session of its own: it outlives the apply, its sudo and its SSH connection
// (HOST-7). It returns once the watchdog reports that it is running: a program that macOS kills as soon as it starts would have started,
// too.
func startWatchdog(root string) func(context.Context, string) error {
	return func(ctx context.Context, token string) error {
		binary, err := os.Executable()
		if err != nil {
			return fmt.Errorf("finding the running program: %w", err)
		}
		return startProgram(ctx, exec.Command(binary, "host", "revert-guard", "--token", token, "--root", root)) //nolint:gosec,noctx // this program, and not for as long as this process
	}
}

// watchdogPatience is how long a watchdog may take to report that it is running.
const watchdogPatience = 20 * time.Second

func startProgram(ctx context.Context, cmd *exec.Cmd) error {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe to the watchdog: %w", err)
	}
	defer theirs.Close()
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.ExtraFiles = []*os.File{ours}
	err = cmd.Start()
	_ = ours.Close()
	if err != nil {
		return err
	}
	go cmd.Wait() //nolint:errcheck // so that it is no zombie while this process lives
	deadline, cancel := context.WithTimeout(ctx, watchdogPatience)
	defer cancel()
	defer context.AfterFunc(deadline, func() { _ = theirs.SetReadDeadline(time.Unix(1, 0)) })()
	if _, err := io.ReadFull(theirs, make([]byte, len(watchdogReady))); err != nil {
		return fmt.Errorf("the watchdog was started and does not report that it is running: %w", err)
	}
	return nil
}

// watchdogReady is what the watchdog writes to its first file beside the standard ones.
const watchdogReady = "ready\n"

func sayReady() error {
	pipe := os.NewFile(3, "pipe to the apply")
	defer pipe.Close()
	_, err := io.WriteString(pipe, watchdogReady)
	return err
}

func newHostRevertGuardCommand() *cobra.Command {
	var root hostRoot
	var token string
	cmd := &cobra.Command{
		Use:    "revert-guard",
		Short:  "Revert the SSH firewall rules unless they are confirmed within a minute",
		Hidden: true, // `bullpen host apply` starts it
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			signal.Ignore(syscall.SIGHUP)
			host, err := root.open(true)
			if err != nil {
				return err
			}
			if err := sayReady(); err != nil {
				return fmt.Errorf("responding to the apply that started this: %w. Only bullpen host apply starts it", err)
			}
			return steps.RevertGuard(cmd.Context(), host, token, nil)
		},
	}
	cmd.Flags().StringVar(&token, "token", "", "name of the change (required)")
	root.add(cmd)
	cobra.CheckErr(cmd.MarkFlagRequired("token"))
	return cmd
}

// errNotReached is an answer other than yes.
var errNotReached = errors.New("the new SSH connection was not confirmed at the terminal")

// confirmOnTerminal has a person prove that the host can still be reached. An apply by hand is asked, too: sudo drops what would tell an
// SSH session from the console.
func confirmOnTerminal(in io.Reader, out io.Writer) func(context.Context, string) error {
	return func(ctx context.Context, _ string) error {
		_, _ = fmt.Fprint(out, "Only the networks of ssh.allowFrom can open SSH connections now. Open a NEW connection to this Mac, and answer \"yes\" here if it works;\n"+
			"otherwise the change is reverted within a minute. Does it work? ")
		answers := make(chan string, 1)
		go func() {
			line, _ := bufio.NewReader(in).ReadString('\n')
			answers <- strings.TrimSpace(line)
		}()
		select {
		case answer := <-answers:
			if strings.EqualFold(answer, "yes") {
				return nil
			}
			return errNotReached
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errNotReached, ctx.Err())
		}
	}
}
