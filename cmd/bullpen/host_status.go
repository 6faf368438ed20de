package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/machost/steps"
)

// hostStatus is what `bullpen host status -o json` prints.
type hostStatus struct {
	Applied *machost.Applied `json:"applied,omitempty"` // none: never applied as a whole, or an apply is under way
	Wanted  string           `json:"wanted,omitempty"`  // the drift hash of --config and the program that is installed
	Drift   *bool            `json:"drift,omitempty"`   // with --config
}

func newHostStatusCommand() *cobra.Command {
	var root hostRoot
	var config, output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the configuration last applied to this Mac, and whether another differs",
		Long: `Show the configuration that was last applied to this Mac completely, and the time of the last change. With --config, also show whether that
file, or the installed program, differs (drift). It reads what was recorded; "bullpen host apply --plan" checks the Mac itself.`,
		Example: `  bullpen host status
  bullpen host status --config host.yaml -o json | jq .drift`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("--output must be text or json, got %q", output)
			}
			host, err := root.open(false)
			if err != nil {
				return err
			}
			status, err := readHostStatus(host, config)
			if err != nil {
				return err
			}
			if output == "json" {
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(status)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), status.text())
			return err
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "configuration of the Mac (YAML)")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	root.add(cmd)
	return cmd
}

func readHostStatus(host machost.Local, configFile string) (hostStatus, error) {
	var status hostStatus
	applied, err := machost.ReadApplied(host)
	switch {
	case err == nil:
		status.Applied = &applied
	case !errors.Is(err, fs.ErrNotExist):
		return status, err
	}
	if configFile == "" {
		return status, nil
	}
	config, err := readHostConfig(configFile)
	if err != nil {
		return status, err
	}
	digest, err := fileSHA256(strings.TrimSuffix(host.Root, "/") + steps.BinaryPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return status, err
	}
	status.Wanted = config.DriftHash(digest)
	drift := status.Applied == nil || status.Applied.Hash != status.Wanted
	status.Drift = &drift
	return status, nil
}

func (s hostStatus) text() string {
	var b strings.Builder
	if s.Applied == nil {
		b.WriteString("No configuration is applied completely: an apply is in progress, has failed, or was never started. Run `bullpen host apply`.\n")
	} else {
		fmt.Fprintf(&b, "Applied:  %.12s, by bullpen %s\nChanged:  %s\nSteps:    %s\n",
			s.Applied.Hash, s.Applied.Version, s.Applied.Time.Format(time.RFC3339), strings.Join(s.Applied.Steps, ", "))
	}
	switch {
	case s.Drift == nil:
	case *s.Drift:
		fmt.Fprintf(&b, "Desired:  %.12s: differs. `bullpen host apply --plan` shows the differences\n", s.Wanted)
	default:
		b.WriteString("Desired:  the same\n")
	}
	return b.String()
}
