//go:build !production

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/bullpen-ci/bullpen/internal/dev/onebox"
)

func newDemoCommand() *cobra.Command {
	var f oneboxFlags
	var jobs int
	var keep bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a workflow while everything is restarted and changed",
		Long: `Start Bullpen on this machine with a pool of idle runners, and run a workflow of many jobs. While they run, restart the
server, the controller and the node agents, change the pool's template, scale it to zero and back, cordon the node, and
rename the pool. It prints a summary. It succeeds if each job ran exactly once with the expected conclusion, no busy pod
was deleted, each change took effect, and no process is left.

The workflow is examples/demo.yaml with the jobs of examples/macos.yaml. Jobs run as processes of this machine, without
isolation. Those for macOS run on a node that stands in for a Mac, with a fake Tart ("bullpen dev tart").

With --containers (Linux, root), jobs run in containers on a kubelet. In place of those for macOS there are the jobs of
examples/services.yaml, with a database as a service. The kubelet and the container runtime are restarted, too. It
succeeds only if nothing is left of the node: no mount, cgroup, network link, process or file.`,
		Example: `  bullpen demo

  # In containers
  sudo bullpen demo --containers

  # A longer run
  bullpen demo --jobs 500 --runners 16`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.containers && !cmd.Flags().Changed("jobs") {
				jobs = onebox.DemoContainerJobs
			}
			opts := onebox.DemoOptions{Jobs: jobs, Runners: f.runners, Keep: keep, Timeout: timeout, Out: cmd.OutOrStdout()}
			opts.StateDir, opts.Assets, opts.Ungated = f.stateDir, f.assets, !f.policies
			var err error
			if opts.SecretsFile, err = onebox.CheckSecrets(f.secretsFile); err != nil {
				return err
			}
			opts.Containers = f.containers
			opts.FastUnsafe = f.stateDir == "" // temporary data needs no fsync
			opts.Report = onebox.NewPrinter(opts.Out, f.json).Report
			if f.json {
				encoder := json.NewEncoder(cmd.OutOrStdout())
				opts.Out = io.Discard
				opts.Verdict = func(v onebox.Verdict) { _ = encoder.Encode(v) } // the reader may have exited
			} else {
				describeTerminal(&opts)
			}
			return onebox.Demo(cmd.Context(), opts)
		},
	}
	f.register(cmd, onebox.DemoDefaultRunners)
	cmd.Flags().IntVar(&jobs, "jobs", onebox.DemoDefaultJobs, fmt.Sprintf("number of jobs in the workflow (default with --containers: %d)", onebox.DemoContainerJobs))
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the temporary state directory")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "timeout of the jobs (default: 10m, plus 3s for each job)")
	return cmd
}

// describeTerminal records whether standard output is a terminal, and its current size.
func describeTerminal(opts *onebox.DemoOptions) {
	out, isFile := opts.Out.(*os.File)
	if !isFile || !term.IsTerminal(int(out.Fd())) || os.Getenv("TERM") == "dumb" {
		return
	}
	opts.Terminal = true
	opts.Color = os.Getenv("NO_COLOR") == ""
	opts.Size = func() (int, int) {
		width, height, err := term.GetSize(int(out.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			return 80, 24
		}
		return width, height
	}
}
