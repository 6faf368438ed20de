package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/node"
)

func newNodeStatusCommand() *cobra.Command {
	var stateDir, output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the status of this machine's node agent: the node, its conditions, resources and pods",
		Long: `Show the status of the node agent of a state directory: its connection to the API server, the node's conditions and resources, and each pod
with its containers and what it is waiting for. It asks the agent through a socket in the state directory, so it works without the API server,
as the agent's user. If no agent is running, it shows the last recorded status and its age.`,
		Example: `  bullpen node status --state-dir /var/lib/bullpen-node
  bullpen node status --state-dir /var/lib/bullpen-node -o json | jq '.pods[] | select(.waitsFor)'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output must be table or json, got %q", output)
			}
			dir, err := filepath.Abs(stateDir)
			if err != nil {
				return fmt.Errorf("resolving --state-dir: %w", err)
			}
			report, running, err := node.ReadReport(cmd.Context(), dir)
			if err != nil {
				return err
			}
			if output == "json" {
				return printReportJSON(cmd.OutOrStdout(), report, running)
			}
			return printReport(cmd.OutOrStdout(), report, running, time.Now())
		},
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", "", "the node agent's state directory (required)")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cobra.CheckErr(cmd.MarkFlagRequired("state-dir"))
	return cmd
}

func printReportJSON(w io.Writer, report node.Report, running bool) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Running bool `json:"running"`
		node.Report
	}{running, report})
}

// printReport is for people.
func printReport(w io.Writer, r node.Report, running bool, now time.Time) error {
	out := tabwriter.NewWriter(w, 0, 4, 3, ' ', 0)
	line := func(cells ...string) { // Flush tells what went wrong
		for i := range cells {
			cells[i] = printable(cells[i])
		}
		_, _ = fmt.Fprintln(out, strings.Join(cells, "\t"))
	}
	_, _ = fmt.Fprintf(out, "Node %s, sandbox %s: %s\n", r.Node, r.Sandbox, agentState(r, running, now))
	if r.Problem != "" {
		_, _ = fmt.Fprintf(out, "The node status could not be updated: %s\n", r.Problem)
	}
	line()
	line("CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE")
	for _, c := range r.Conditions {
		line(c.Type, c.Status, age(c.Since, now), cmp.Or(c.Reason, "-"), c.Message)
	}
	line()
	line("RESOURCE", "CAPACITY", "ALLOCATABLE")
	for _, resource := range r.Resources {
		line(resource.Name, resource.Capacity, resource.Allocatable)
	}
	line()
	if len(r.Pods) == 0 {
		line("No pods.")
		return out.Flush()
	}
	line("POD", "PHASE", "CONTAINER", "STATE", "SINCE", "DETAIL")
	for _, p := range r.Pods {
		pod, phase := p.Namespace+"/"+p.Name, p.Phase
		if len(p.Containers) == 0 {
			line(pod, phase, "-", "-", "-", "")
		}
		for _, c := range p.Containers {
			line(pod, phase, c.Name, c.State, age(c.Since, now), c.Detail)
			pod, phase = "", ""
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	for _, p := range r.Pods {
		for _, what := range p.WaitsFor {
			if _, err := fmt.Fprintf(w, "\n%s/%s is waiting: %s", p.Namespace, p.Name, printable(what)); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}

// printable keeps what a job, or Tart, wrote from moving the terminal's cursor or the table's columns.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}

func agentState(r node.Report, running bool, now time.Time) string {
	switch {
	case !running:
		return fmt.Sprintf("NO AGENT IS RUNNING; last status %s ago (runners continue without it)", age(r.At, now))
	case r.LeaseRenewed.IsZero():
		return "the agent is running, but has not renewed the node's lease yet: it cannot reach the API server, or is not authorized"
	}
	return fmt.Sprintf("the agent is running, lease renewed %s ago", age(r.LeaseRenewed, now))
}

func age(since, now time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return max(now.Sub(since), 0).Truncate(time.Second).String()
}
