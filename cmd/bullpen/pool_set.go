package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
	"github.com/bullpen-ci/bullpen/internal/cli/poolchange"
)

// writesFields is how both commands write.
const writesFields = `It patches the RunnerPool with your own rights in the cluster (get and patch on runnerpools.bullpen.dev), as kubectl does. A field that another
client manages with server-side apply, such as a GitOps tool, is not changed unless --force-conflicts is given. Sizes (replicas, autoscaling,
minIdle, maxReplicas) are also changed if bullpen up or Helm manages them: bullpen up keeps the new size, and for Helm a warning says what to
do. For a field that another client has written, such as Helm 3 or kubectl apply, a warning names it: it may revert the change. Repeating the
command changes nothing.`

// poolFlags are the values of the fields of a pool.
type poolFlags struct {
	replicas, minIdle, maxReplicas        int64
	autoscaling                           bool
	cooldown, stabilization, idle, maxAge time.Duration
	queueing, image                       string
}

func (p *poolFlags) add(f *pflag.FlagSet) {
	commandline.AtLeast(f, &p.replicas, "replicas", 0, 0, "number of runners without autoscaling, busy ones included")
	f.BoolVar(&p.autoscaling, "autoscaling", false, "set the number of runners from queued and running jobs")
	commandline.AtLeast(f, &p.minIdle, "min-idle", 0, 0, "idle runners to keep in addition to those that jobs need")
	commandline.AtLeast(f, &p.maxReplicas, "max-replicas", 1, 1, "maximum number of runners with autoscaling, busy ones included (also --max)")
	f.DurationVar(&p.cooldown, "scale-down-cooldown", 0, "minimum time between two scale-downs")
	f.DurationVar(&p.stabilization, "stabilization", 0, "how long fewer runners must have been enough before a scale-down; at most 1h")
	f.DurationVar(&p.idle, "idle-timeout", 0, "how long a runner may be idle before it is replaced; 0 for no timeout")
	f.DurationVar(&p.maxAge, "max-runner-age", 0, "maximum age of an idle runner, at least 1m; 0 for no maximum")
	f.StringVar(&p.queueing, "queueing", "", "order of jobs: FIFO or FairShare")
	f.StringVar(&p.image, "image", "", "image of the runners; idle ones are replaced")
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "max" {
			name = "max-replicas"
		}
		return pflag.NormalizedName(name)
	})
}

// settings are the fields whose flags were given.
func (p *poolFlags) settings(f *pflag.FlagSet) ([]poolchange.Setting, error) {
	if order := v1alpha1.Queueing(p.queueing); f.Changed("queueing") && order != v1alpha1.QueueingFIFO && order != v1alpha1.QueueingFairShare {
		return nil, fmt.Errorf("--queueing must be FIFO or FairShare, got %q", p.queueing)
	}
	if f.Changed("image") && strings.TrimSpace(p.image) == "" {
		return nil, errors.New("--image must not be empty")
	}
	values := map[string]any{
		"replicas": p.replicas, "autoscaling": p.autoscaling, "min-idle": p.minIdle, "max-replicas": p.maxReplicas,
		"scale-down-cooldown": poolchange.Duration(p.cooldown), "stabilization": poolchange.Duration(p.stabilization),
		"idle-timeout": poolchange.Duration(p.idle), "max-runner-age": poolchange.Duration(p.maxAge), "queueing": p.queueing, "image": p.image,
	}
	var settings []poolchange.Setting
	var flags []string
	for _, field := range poolchange.Fields() {
		flags = append(flags, "--"+field.Flag)
		if f.Changed(field.Flag) {
			settings = append(settings, poolchange.Set(field.Flag, values[field.Flag]))
		}
	}
	if len(settings) == 0 {
		last := len(flags) - 1
		return nil, errors.New("missing flag: give " + strings.Join(flags[:last], ", ") + " or " + flags[last])
	}
	return settings, nil
}

func newPoolSetCommand() *cobra.Command {
	values := poolFlags{}
	cmd := newPoolChangeCommand("set POOL", "Change the size and other fields of a pool", func(cmd *cobra.Command) ([]poolchange.Setting, error) {
		return values.settings(cmd.Flags())
	})
	cmd.Long = `Change fields of a RunnerPool; those without a flag stay. Busy runners are not affected. Values that have no effect are rejected: --replicas
of an autoscaled pool, and --min-idle of one that is not.

` + writesFields + `

Exit codes: 0 the pool has these values, 1 it failed.`
	cmd.Example = `  bullpen pool set linux-4cpu --min-idle 3 --max-replicas 40
  bullpen pool set linux-4cpu --autoscaling --max 40
  bullpen pool set linux-4cpu --autoscaling=false --replicas 10
  bullpen pool set linux-4cpu --idle-timeout 12h --queueing FairShare -n bullpen-runners -o json`
	values.add(cmd.Flags())
	completeFlag(cmd, "queueing", cobra.FixedCompletions([]cobra.Completion{string(v1alpha1.QueueingFIFO), string(v1alpha1.QueueingFairShare)},
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func newPoolScaleCommand() *cobra.Command {
	replicas := int64(0)
	cmd := newPoolChangeCommand("scale POOL --replicas N", "Set the number of runners of a pool without autoscaling", func(*cobra.Command) ([]poolchange.Setting, error) {
		return []poolchange.Setting{poolchange.Set("replicas", replicas)}, nil
	})
	cmd.Long = `Set the number of runners of a pool, busy ones included. Idle runners beyond it are removed, busy ones finish their jobs. The size of an
autoscaled pool is between minIdle and maxReplicas: the command fails, and bullpen pool set changes these.

` + writesFields + `

Exit codes: 0 the pool has this number, 1 it failed.`
	cmd.Example = "  bullpen pool scale linux-4cpu --replicas 10\n  bullpen pool scale linux-4cpu --replicas 0"
	commandline.AtLeast(cmd.Flags(), &replicas, "replicas", 0, 0, "number of runners")
	cobra.CheckErr(cmd.MarkFlagRequired("replicas"))
	return cmd
}

// newPoolChangeCommand is a command that changes fields of a pool.
func newPoolChangeCommand(use, short string, settings func(*cobra.Command) ([]poolchange.Setting, error)) *cobra.Command {
	conn, format, change := connection(), cli.FormatTable, cli.PoolChange{}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			change.Pool = args[0]
			if change.Settings, err = settings(cmd); err != nil {
				return err
			}
			config, err := ownCluster(conn)
			if err != nil {
				return err
			}
			changed, err := cli.SetPool(cmd.Context(), config, change)
			if err != nil {
				return err
			}
			for _, warning := range changed.Warnings {
				fmt.Fprintln(cmd.ErrOrStderr(), "Warning: "+warning)
			}
			for _, note := range changed.Notes {
				fmt.Fprintln(cmd.ErrOrStderr(), note)
			}
			if already := changed.Already(); already != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s; nothing was changed.\n", already)
			}
			return cli.Print(cmd.OutOrStdout(), format, changed, cli.PoolSettingsTable(changed))
		},
	}
	f := cmd.Flags()
	ownClusterFlags(f, conn)
	f.StringVarP(&change.Namespace, "namespace", "n", "bullpen-runners", "namespace of the pool")
	f.BoolVar(&change.ForceConflicts, "force-conflicts", false, "also change fields that another client manages with server-side apply")
	cli.OutputFlag(f, &format)
	return cmd
}
