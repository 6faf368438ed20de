package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"

	"github.com/bullpen-ci/bullpen/charts"
	"github.com/bullpen-ci/bullpen/internal/controller/chartjobs"
)

// newChartCommand groups what the Helm chart's hooks run.
func newChartCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "chart",
		Short: "Hooks of the Helm chart: before an upgrade, before an uninstallation, and its test",
	}
	cmd.AddCommand(newChartCRDsCommand(), newChartDrainCommand(), newChartTestCommand())
	return cmd
}

func newChartCRDsCommand() *cobra.Command {
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "crds",
		Short: "Update the CustomResourceDefinitions of a cluster to this version",
		Long: `Update the CustomResourceDefinitions of a cluster to this version, and wait until they are served. Helm installs
missing ones and never updates them, so the chart runs this before an upgrade.`,
		Example: "  bullpen chart crds --kubeconfig admin.kubeconfig",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, err := dynamicClient(kubeconfig)
			if err != nil {
				return err
			}
			files, err := charts.CRDs()
			if err != nil {
				return err
			}
			documents := make([][]byte, len(files))
			for i, file := range files {
				documents[i] = file.Content
			}
			return chartjobs.ApplyCRDs(cmd.Context(), cluster, documents, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig (default: the pod's ServiceAccount)")
	return cmd
}

func newChartDrainCommand() *cobra.Command {
	var kubeconfig string
	options := chartjobs.DrainOptions{Every: 2 * time.Second}
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Delete RunnerPools, and wait for their last runner",
		Long: `Delete RunnerPools, and wait until they no longer exist. Idle runners are removed at once, busy ones after their jobs. This needs
the server and the controller, so the chart runs it before it is uninstalled.`,
		Example: "  bullpen chart drain --namespace bullpen-runners --selector app.kubernetes.io/instance=bullpen",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, err := dynamicClient(kubeconfig)
			if err != nil {
				return err
			}
			return chartjobs.Drain(cmd.Context(), cluster, options, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig (default: the pod's ServiceAccount)")
	cmd.Flags().BoolVar(&options.SelfRegistering, "self-registering", false, "also delete all self-registering runners, and wait for them")
	cmd.Flags().StringVar(&options.Namespace, "namespace", "bullpen-runners", "namespace of the pools")
	cmd.Flags().StringVar(&options.Selector, "selector", "", "label selector of the pools, such as app.kubernetes.io/instance=bullpen (required)")
	return cmd
}

func newChartTestCommand() *cobra.Command {
	var patience time.Duration
	cmd := &cobra.Command{
		Use:     "test URL...",
		Short:   "Request each URL until it responds 200 OK",
		Example: "  bullpen chart test http://bullpen-dispatch.bullpen-system.svc/readyz",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, urls []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			return chartjobs.Test(ctx, &http.Client{Timeout: 5 * time.Second}, urls, time.Second, cmd.OutOrStdout())
		},
	}
	cmd.Flags().DurationVar(&patience, "timeout", time.Minute, "time after which it fails")
	return cmd
}

func dynamicClient(kubeconfig string) (dynamic.Interface, error) {
	config, err := clusterConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "bullpen-chart"
	made, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	return made, nil
}
