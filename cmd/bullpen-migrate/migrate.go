package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/cli/arcmigration"
)

// manifestLimit bounds the size of a file.
const manifestLimit = 32 << 20

// exitLeft is the exit code of --strict when a field was dropped or needs attention.
const exitLeft = 3

// migrationError has the exit code. Its text is empty with a report in JSON, so that standard error is valid JSON.
type migrationError struct {
	text string
	code int
}

func (e migrationError) Error() string { return e.text }

func migrationResult(result *arcmigration.Result, strict, forPeople bool) error {
	failed := migrationError{code: 1, text: fmt.Sprintf("%d objects were not converted, %d files could not be read, %d labels are in more than one result. See the report above",
		result.Summary[string(arcmigration.NotConverted)], len(result.Problems), result.Conflicts)}
	left := migrationError{code: exitLeft, text: fmt.Sprintf("%d fields were dropped or need attention. See the report above", result.Left())}
	if !forPeople {
		failed.text, left.text = "", ""
	}
	switch {
	case result.Failed():
		return failed
	case strict && result.Left() > 0:
		return left
	}
	return nil
}

func newARCCommand() *cobra.Command {
	var options arcmigration.Options
	var output string
	var strict bool
	cmd := &cobra.Command{
		Use:   "arc FILE...",
		Short: "Convert manifests of actions-runner-controller, and report what could not be converted",
		Long: `Convert manifests of actions-runner-controller. Manifests are written to standard output. A report is written to standard error: every
field that was dropped, that changes its meaning, or that needs attention. The command does not connect to a cluster. A file may contain
several documents, Lists, or the output of helm template; - is standard input.

  actions.summerwind.dev   Runner, RunnerReplicaSet, RunnerDeployment, RunnerSet: the kind of the same name
                           HorizontalRunnerAutoscaler: the autoscaling of its target, which must be among the files
  actions.github.com       AutoscalingRunnerSet, and the values of its Helm chart, in a file or in a HelmRelease (Flux), an
                           Application (Argo CD) or a HelmChart (k3s): a RunnerPool, or a RunnerDeployment for container mode
                           kubernetes and with --to RunnerDeployment

Exit code 1: an object could not be read or converted, or two results have the same label. The other objects are written all the same.
Exit code 3, with --strict: a field was dropped or needs attention.`,
		Example: `  bullpen-migrate arc runners.yaml --namespace bullpen-runners > bullpen.yaml
  kubectl get runnerdeployments.actions.summerwind.dev,hra -A -o yaml | bullpen-migrate arc - -o json 2> report.json # unverified: no cluster with those kinds was at hand`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("invalid value %q for --output: must be text or json", output)
			}
			if options.To != "" && options.To != v1alpha1.KindRunnerPool && options.To != v1alpha1.KindRunnerDeployment {
				return fmt.Errorf("invalid value %q for --to: must be RunnerPool or RunnerDeployment", options.To)
			}
			inputs, err := readManifests(files, cmd.InOrStdin())
			if err != nil {
				return err
			}
			result := arcmigration.Convert(inputs, options)
			if err := result.WriteYAML(cmd.OutOrStdout()); err != nil {
				return err
			}
			if err := printMigration(cmd.ErrOrStderr(), result, output); err != nil {
				return err
			}
			return migrationResult(result, strict, output == "text")
		},
	}
	f := cmd.Flags()
	f.StringVarP(&options.Namespace, "namespace", "n", "", "namespace of all converted objects (default: that of the original)")
	f.StringVar(&options.RuntimeClass, "runtime-class", "", "RuntimeClass of microVMs, for runners with a Docker daemon that name none (default: kata, with a finding in the report)")
	f.StringVar(&options.Name, "name", "", "name of the Helm release, for values without runnerScaleSetName")
	f.StringVar(&options.To, "to", "", "kind to convert scale sets to: RunnerPool or RunnerDeployment (default: RunnerPool, or RunnerDeployment with container mode kubernetes)")
	f.StringVarP(&output, "output", "o", "text", "format of the report: text or json")
	f.BoolVar(&strict, "strict", false, "exit with code 3 if a field was dropped or needs attention")
	return cmd
}

func readManifests(files []string, stdin io.Reader) ([]arcmigration.Input, error) {
	var inputs []arcmigration.Input
	for _, name := range files {
		content, err := readManifest(name, stdin)
		if err != nil {
			return nil, err
		}
		if name == "-" {
			name = "standard input"
		}
		inputs = append(inputs, arcmigration.Input{Name: name, Content: content})
	}
	return inputs, nil
}

func readManifest(name string, stdin io.Reader) ([]byte, error) {
	from := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("reading the manifests: %w", err)
		}
		defer file.Close()
		from = file
	}
	content, err := io.ReadAll(io.LimitReader(from, manifestLimit+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(content) > manifestLimit {
		return nil, fmt.Errorf("%s is larger than %d MiB. Split it, and convert each part", name, manifestLimit>>20)
	}
	return content, nil
}

func printMigration(w io.Writer, result *arcmigration.Result, output string) error {
	if output == "text" {
		return result.Print(w)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(&result.Report)
}
