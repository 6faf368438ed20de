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

// manifestLimit is how much is read of one file.
const manifestLimit = 32 << 20

// exitLeft is the exit code of --strict where something was left.
const exitLeft = 3

// migrationError ends the command with a code of its own. Its text is empty where the report is for scripts, so that standard
// error holds that alone.
type migrationError struct {
	text string
	code int
}

func (e migrationError) Error() string { return e.text }

func migrationResult(result *arcmigration.Result, strict, forPeople bool) error {
	failed := migrationError{code: 1, text: fmt.Sprintf("%d objects could not be converted, %d files could not be read, %d labels belong to more than one result: the report above says why",
		result.Summary[string(arcmigration.NotConverted)], len(result.Problems), result.Conflicts)}
	left := migrationError{code: exitLeft, text: fmt.Sprintf("%d fields were dropped, or must be seen to: the report above says which", result.Left())}
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
		Short: "Convert manifests of actions-runner-controller, and say what cannot be converted",
		Long: `Convert manifests of actions-runner-controller. The new manifests go to standard output, and to standard error a report of every
field that could not be carried over, that changes its meaning, or that an administrator must see to. Nothing is left out in silence, and
the command connects to no cluster. A file may hold several documents, Lists, and what helm template prints; - is standard input.

  actions.summerwind.dev   Runner, RunnerReplicaSet, RunnerDeployment, RunnerSet: the kind of the same name
                           HorizontalRunnerAutoscaler: the autoscaling of its target, which must be among the files
  actions.github.com       AutoscalingRunnerSet, and the values of its Helm chart, in a file or in a HelmRelease (Flux), an
                           Application (Argo CD) or a HelmChart (k3s): a RunnerPool, or a RunnerDeployment for container mode
                           kubernetes and with --to RunnerDeployment

It exits with 1 if something could not be read or converted, or if two results serve the same label; what could be converted is printed
nevertheless. With --strict it exits with 3 if a field was dropped or must be seen to.`,
		Example: `  bullpen-migrate arc runners.yaml --namespace bullpen-runners > bullpen.yaml
  kubectl get runnerdeployments.actions.summerwind.dev,hra -A -o yaml | bullpen-migrate arc - -o json 2> report.json # unverified: no cluster with those kinds was at hand`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("--output %s is not known: use text or json", output)
			}
			if options.To != "" && options.To != v1alpha1.KindRunnerPool && options.To != v1alpha1.KindRunnerDeployment {
				return fmt.Errorf("--to %s is not known: use RunnerPool or RunnerDeployment", options.To)
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
	f.StringVarP(&options.Namespace, "namespace", "n", "", "namespace of everything that is made: that of the runners (default: where each object was)")
	f.StringVar(&options.RuntimeClass, "runtime-class", "", "runtime class of microVMs for runners with a Docker daemon that name none (default: kata, and the report says so)")
	f.StringVar(&options.Name, "name", "", "name for Helm values that name no scale set: that of the Helm release")
	f.StringVar(&options.To, "to", "", "kind that scale sets become: RunnerPool or RunnerDeployment (default: RunnerPool, and RunnerDeployment for container mode kubernetes)")
	f.StringVarP(&output, "output", "o", "text", "form of the report: text or json")
	f.BoolVar(&strict, "strict", false, "exit with 3 if a field was dropped, or must be seen to")
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
			return nil, err
		}
		defer file.Close()
		from = file
	}
	content, err := io.ReadAll(io.LimitReader(from, manifestLimit+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(content) > manifestLimit {
		return nil, fmt.Errorf("%s has more than %d MiB: convert it in parts", name, manifestLimit>>20)
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
