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
		Short: "Show what was applied to this Mac last, and whether a configuration differs from it",
		Long: `Shows what was applied to this Mac last as a whole, and when something was changed for it. With --config it also says whether that file, or the program that is
installed, asks for something else by now (drift). It looks at what was recorded; "bullpen host apply --plan" looks at the Mac itself.`,
		Example: `  bullpen host status
  bullpen host status --config host.yaml -o json | jq .drift`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("-o %q: use text or json", output)
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
	cmd.Flags().StringVar(&config, "config", "", "file that says what the Mac is to be (YAML)")
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
		b.WriteString("Nothing is applied as a whole: an apply is under way, has failed, or never was. Run \"bullpen host apply\".\n")
	} else {
		fmt.Fprintf(&b, "Applied:  %.12s, by bullpen %s\nChanged:  %s\nSteps:    %s\n",
			s.Applied.Hash, s.Applied.Version, s.Applied.Time.Format(time.RFC3339), strings.Join(s.Applied.Steps, ", "))
	}
	switch {
	case s.Drift == nil:
	case *s.Drift:
		fmt.Fprintf(&b, "Wanted:   %.12s: it differs; \"bullpen host apply --plan\" says in what\n", s.Wanted)
	default:
		b.WriteString("Wanted:   the same\n")
	}
	return b.String()
}
