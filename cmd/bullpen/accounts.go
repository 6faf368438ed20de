package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

func newAccountsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "accounts",
		Aliases: []string{"account"},
		Short:   "Show, limit, suspend and delete accounts",
		Long: `Accounts are the GitHub organizations and users whose jobs run here. ACCOUNT is a login, or @ and an ID.

Your kubeconfig authenticates you; the cluster's roles (bullpen-viewer, bullpen-admin) authorize you.`,
		Example: "  bullpen accounts list\n  bullpen accounts set-limits acme --platform linux --jobs 60 --cpu 120",
	}
	cmd.AddCommand(
		newAccountsListCommand(), newAccountsGetCommand(), newAccountsSetLimitsCommand(),
		newAccountsVerbCommand(adminapi.VerbSuspend), newAccountsVerbCommand(adminapi.VerbResume), newAccountsDeleteCommand(),
	)
	return cmd
}

// connection is how administrators' commands find the server: `bullpen up` on this machine comes last.
func connection() *cli.Connection {
	return &cli.Connection{DefaultStateDir: defaultStateDir}
}

func newAccountsListCommand() *cobra.Command {
	conn, output, deleted, watch := connection(), cli.OutputOf[adminapi.Account](), false, cli.Watch{}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List accounts with their usage and limits",
		Long: `List accounts with their usage and limits, by platform. CLOSEST is the limit with the highest usage. At 100% no further job starts;
a job that needs more than what is left stays queued earlier.`,
		Example: `  bullpen accounts list
  bullpen accounts list --watch
  bullpen accounts list -o wide --deleted
  bullpen accounts list --sort-by queued
  bullpen accounts list -o json | jq '.[] | select(.state != "active")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := conn.Client()
			if err != nil {
				return err
			}
			return watch.Run(cmd.Context(), cmd.OutOrStdout(), func(ctx context.Context, out io.Writer) error {
				accounts, err := client.Accounts(ctx, deleted)
				if err != nil {
					return err
				}
				return cli.AccountRows().Print(out, &output, accounts)
			})
		},
	}
	conn.Flags(cmd.Flags())
	watch.Flags(cmd.Flags())
	listOutput(cmd, &output)
	cmd.Flags().BoolVar(&deleted, "deleted", false, "include deleted accounts")
	return cmd
}

func newAccountsGetCommand() *cobra.Command {
	conn, output := connection(), cli.OutputOf[adminapi.Account]()
	cmd := &cobra.Command{
		Use:     "get ACCOUNT",
		Short:   "Show one account",
		Example: "  bullpen accounts get acme -o wide\n  bullpen accounts get @4711 -o yaml\n  bullpen accounts get acme -o jsonpath='{.state}'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := conn.Client()
			if err != nil {
				return err
			}
			account, err := client.Account(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := cli.AccountRows().PrintOne(cmd.OutOrStdout(), &output, account); err != nil {
				return err
			}
			if output.ForPeople() {
				for _, refusal := range account.Refusals {
					fmt.Fprintf(cmd.OutOrStdout(), "%s\n", refusal.Sentence)
				}
			}
			return nil
		},
	}
	conn.Flags(cmd.Flags())
	getOutput(cmd, &output)
	return cmd
}

func printAccount(cmd *cobra.Command, format cli.Format, account adminapi.Account) error {
	return cli.Print(cmd.OutOrStdout(), format, account, cli.AccountTable([]adminapi.Account{account}))
}

// limitFlags are the limits of set-limits.
type limitFlags struct {
	platform, cpu, memory string
	jobs, perRepository   int64
}

func (l *limitFlags) change(cmd *cobra.Command) (adminapi.LimitsChange, error) {
	var change adminapi.LimitsChange
	set := cmd.Flags().Changed
	if l.platform != string(fleet.Linux) && l.platform != string(fleet.MacOS) {
		return change, fmt.Errorf("--platform must be linux or macos, got %q", l.platform)
	}
	if set("jobs") {
		change.Jobs = &l.jobs
	}
	if set("jobs-per-repository") {
		change.JobsPerRepository = &l.perRepository
	}
	if set("cpu") {
		milli, err := fleet.ParseCPU(l.cpu)
		if err != nil {
			return change, fmt.Errorf("--cpu must be a number of CPUs such as 4, 0.5 or 500m, got %q", l.cpu)
		}
		change.MilliCPU = &milli
	}
	if set("memory") {
		mebibytes, err := fleet.ParseMemory(l.memory)
		if err != nil {
			return change, fmt.Errorf("--memory must be an amount such as 512Mi, 64Gi or 1Ti, got %q", l.memory)
		}
		change.MemoryMB = &mebibytes
	}
	if change == (adminapi.LimitsChange{}) {
		return change, errors.New("missing flag: give --jobs, --cpu, --memory or --jobs-per-repository")
	}
	return change, nil
}

func newAccountsSetLimitsCommand() *cobra.Command {
	conn, format, reason, version := connection(), cli.FormatTable, "", int64(0)
	var limits limitFlags
	cmd := &cobra.Command{
		Use:   "set-limits ACCOUNT",
		Short: "Change the limits of an account",
		Long: `Change the limits of an account on one platform. Other limits stay as they are.

A change takes effect at once, on every server. Lowering a limit below the usage stops no job: no further one starts
until enough have completed. With --jobs-per-repository, runners of the account are registered at the job's repository,
which needs the App's repository permission "Administration: write". 0 removes that limit.`,
		Example: `  bullpen accounts set-limits acme --jobs 60 --cpu 120 --memory 256Gi
  bullpen accounts set-limits acme --platform macos --jobs 4
  bullpen accounts set-limits acme --jobs-per-repository 10 --reason "one monorepo starves the others"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := limits.change(cmd)
			if err != nil {
				return err
			}
			client, err := conn.Client()
			if err != nil {
				return err
			}
			account, err := setLimits(cmd, client, args[0], version, adminapi.ChangeLimits{
				Platforms: map[string]adminapi.LimitsChange{limits.platform: change}, Reason: reason,
			})
			if err != nil {
				return err
			}
			if nothing := cli.NothingRuns(account, limits.platform); nothing != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), "Warning: "+nothing)
			}
			return printAccount(cmd, format, account)
		},
	}
	conn.Flags(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &format)
	f := cmd.Flags()
	f.StringVar(&limits.platform, "platform", string(fleet.Linux), "linux or macos")
	commandline.AtLeast(f, &limits.jobs, "jobs", 0, 0, "maximum number of concurrent jobs")
	f.StringVar(&limits.cpu, "cpu", "", "maximum number of CPUs, such as 120 or 500m")
	f.StringVar(&limits.memory, "memory", "", "maximum memory, such as 256Gi")
	commandline.AtLeast(f, &limits.perRepository, "jobs-per-repository", 0, 0, "maximum number of concurrent jobs of one repository; 0 for no limit")
	commandline.AtLeast(f, &version, "if-version", 0, 0, "fail unless the account has this version (default: the current version)")
	f.StringVar(&reason, "reason", "", "reason, for the audit log")
	return cmd
}

// setLimits changes the given version of the account, or the current one. A concurrent change is a conflict, and is not overwritten.
func setLimits(
	cmd *cobra.Command, client *cli.Client, ref string, version int64, change adminapi.ChangeLimits,
) (adminapi.Account, error) {
	account, err := adminapi.Account{Version: version}, error(nil)
	if version == 0 {
		if account, err = client.Account(cmd.Context(), ref); err != nil {
			return account, err
		}
	}
	changed, err := client.ChangeLimits(cmd.Context(), ref, account.ETag(), change)
	var refused *cli.APIError
	if errors.As(err, &refused) && refused.Status == http.StatusPreconditionFailed {
		return changed, fmt.Errorf("conflict: %s has changed since version %d. Check `bullpen accounts get %s` and retry", ref, account.Version, ref)
	}
	return changed, err
}

func newAccountsVerbCommand(verb string) *cobra.Command {
	conn, format, reason := connection(), cli.FormatTable, ""
	cmd := &cobra.Command{
		Use:   "suspend ACCOUNT",
		Short: "Stop starting an account's jobs",
		Long: `Suspend an account: its queued jobs stay queued, and running jobs continue. This is independent of GitHub's own
suspension of the App: jobs start only if neither is on.`,
		Example: "  bullpen accounts suspend acme --reason \"mining; see ticket 812\"",
		Args:    cobra.ExactArgs(1),
	}
	if verb == adminapi.VerbResume {
		cmd.Use, cmd.Short = "resume ACCOUNT", "Start a suspended account's jobs again"
		cmd.Long = `Undo the suspension of an account: its queued jobs start at once. An account that GitHub has also suspended stays suspended.`
		cmd.Example = "  bullpen accounts resume acme"
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := conn.Client()
		if err != nil {
			return err
		}
		act, already := client.Suspend, "already suspended"
		if verb == adminapi.VerbResume {
			act, already = client.Resume, "not suspended by an administrator"
		}
		before, err := client.Account(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		account, err := act(cmd.Context(), args[0], reason)
		if err != nil {
			return err
		}
		if account.Version == before.Version {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s is %s; nothing was changed.\n", account.Login, already)
		}
		return printAccount(cmd, format, account)
	}
	conn.Flags(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &format)
	cmd.Flags().StringVar(&reason, "reason", "", "reason, for the audit log")
	return cmd
}

func newAccountsDeleteCommand() *cobra.Command {
	conn, reason, purge, yes := connection(), "", false, false
	cmd := &cobra.Command{
		Use:   "delete ACCOUNT",
		Short: "Delete an account that has uninstalled the App",
		Long: `Delete an account that has uninstalled the App and has no running jobs. Its queued jobs become stale, and its limits
are deleted. Its history follows by the retention rules, or at once with --purge. The audit log keeps the changes.

An account that installs the App again starts with the default limits. It is still suspended if an administrator had
suspended it, unless it was purged.`,
		Example: "  bullpen accounts delete acme --yes\n  bullpen accounts delete acme --purge --yes --reason \"asked to be forgotten\"",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				return fmt.Errorf("deleting %s cannot be undone. Confirm with --yes", args[0])
			}
			client, err := conn.Client()
			if err != nil {
				return err
			}
			if err := client.DeleteAccount(cmd.Context(), args[0], reason, purge); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), args[0]+" deleted.")
			return err
		},
	}
	conn.Flags(cmd.Flags())
	f := cmd.Flags()
	f.BoolVar(&purge, "purge", false, "delete its history at once too")
	f.BoolVar(&yes, "yes", false, "confirm the deletion")
	f.StringVar(&reason, "reason", "", "reason, for the audit log")
	return cmd
}
