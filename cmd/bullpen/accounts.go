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
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

func newAccountsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "accounts",
		Aliases: []string{"account"},
		Short:   "Show, limit, suspend and delete accounts",
		Long: `Accounts are the GitHub organizations and users whose jobs are served. An account is named by its login, or by
@ and its id.

You are who your kubeconfig says; what you may do is decided by the cluster's roles (bullpen-viewer, bullpen-operator).`,
		Example: "  bullpen accounts list\n  bullpen accounts set-limits acme --platform linux --jobs 60 --cpu 120",
	}
	cmd.AddCommand(
		newAccountsListCommand(), newAccountsGetCommand(), newAccountsSetLimitsCommand(),
		newAccountsVerbCommand(adminapi.VerbSuspend), newAccountsVerbCommand(adminapi.VerbResume), newAccountsDeleteCommand(),
	)
	return cmd
}

// connection is how operators' commands find the server: `bullpen up` on this machine is looked for last.
func connection() *cli.Connection {
	return &cli.Connection{DefaultStateDir: defaultStateDir}
}

func newAccountsListCommand() *cobra.Command {
	conn, format, deleted, watch := connection(), cli.FormatTable, false, cli.Watch{}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List accounts with what they use and what they may use",
		Long: `Lists accounts with what they use and what they may use, by platform. CLOSEST is the limit that is reached first and how much of it
is in use: at 100% nothing further begins, and a job that needs more than what is left waits before that.`,
		Example: "  bullpen accounts list\n  bullpen accounts list --watch\n  bullpen accounts list -o wide --deleted\n  bullpen accounts list -o json | jq '.[] | select(.state != \"active\")'",
		Args:    cobra.NoArgs,
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
				if accounts == nil {
					accounts = []adminapi.Account{}
				}
				return cli.Print(out, format, accounts, cli.AccountTable(accounts))
			})
		},
	}
	conn.Flags(cmd.Flags())
	watch.Flags(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &format)
	cmd.Flags().BoolVar(&deleted, "deleted", false, "show deleted accounts too")
	return cmd
}

func newAccountsGetCommand() *cobra.Command {
	conn, format := connection(), cli.FormatTable
	cmd := &cobra.Command{
		Use:     "get ACCOUNT",
		Short:   "Show one account",
		Example: "  bullpen accounts get acme -o wide\n  bullpen accounts get @4711 -o yaml",
		Args:    oneAccount,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := conn.Client()
			if err != nil {
				return err
			}
			account, err := client.Account(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := printAccount(cmd, format, account); err != nil {
				return err
			}
			if format == cli.FormatTable || format == cli.FormatWide {
				for _, refusal := range account.Refusals {
					fmt.Fprintf(cmd.OutOrStdout(), "%s\n", refusal.Sentence)
				}
			}
			return nil
		},
	}
	conn.Flags(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &format)
	return cmd
}

func oneAccount(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return fmt.Errorf("name one account: `%s LOGIN`; `bullpen accounts list` shows those there are", cmd.CommandPath())
	}
	return nil
}

func printAccount(cmd *cobra.Command, format cli.Format, account adminapi.Account) error {
	return cli.Print(cmd.OutOrStdout(), format, account, cli.AccountTable([]adminapi.Account{account}))
}

// limitFlags are the limits that set-limits was given.
type limitFlags struct {
	platform, cpu, memory string
	jobs, perRepository   int64
}

func (l *limitFlags) change(cmd *cobra.Command) (adminapi.LimitsChange, error) {
	var change adminapi.LimitsChange
	set := cmd.Flags().Changed
	if l.platform != string(fleet.Linux) && l.platform != string(fleet.MacOS) {
		return change, fmt.Errorf("--platform %q: it is linux or macos", l.platform)
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
			return change, fmt.Errorf("--cpu: %w", err)
		}
		change.MilliCPU = &milli
	}
	if set("memory") {
		mebibytes, err := fleet.ParseMemory(l.memory)
		if err != nil {
			return change, fmt.Errorf("--memory: %w", err)
		}
		change.MemoryMB = &mebibytes
	}
	if change == (adminapi.LimitsChange{}) {
		return change, errors.New("which limit? give at least one of --jobs, --cpu, --memory and --jobs-per-repository")
	}
	return change, nil
}

func newAccountsSetLimitsCommand() *cobra.Command {
	conn, format, reason, version := connection(), cli.FormatTable, "", int64(0)
	var limits limitFlags
	cmd := &cobra.Command{
		Use:   "set-limits ACCOUNT",
		Short: "Change what an account may use",
		Long: `Changes what an account may use on one platform; a limit that is not named stays as it is.

A change holds at once, on every server. Lowering a limit below what is in use ends no job: it starts no further one
until enough have ended. With --jobs-per-repository, runners of the account are registered at the job's repository,
which needs the App's repository permission "Administration: write"; 0 takes the cap away.`,
		Example: `  bullpen accounts set-limits acme --jobs 60 --cpu 120 --memory 256Gi
  bullpen accounts set-limits acme --platform macos --jobs 4
  bullpen accounts set-limits acme --jobs-per-repository 10 --reason "one monorepo starves the others"`,
		Args: oneAccount,
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
				fmt.Fprintln(cmd.ErrOrStderr(), "note: "+nothing)
			}
			return printAccount(cmd, format, account)
		},
	}
	conn.Flags(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &format)
	f := cmd.Flags()
	f.StringVar(&limits.platform, "platform", string(fleet.Linux), "linux or macos")
	f.Int64Var(&limits.jobs, "jobs", 0, "most jobs at a time")
	f.StringVar(&limits.cpu, "cpu", "", "most CPUs, like 120 or 500m")
	f.StringVar(&limits.memory, "memory", "", "most memory, like 256Gi")
	f.Int64Var(&limits.perRepository, "jobs-per-repository", 0, "most jobs of one repository at a time; 0 for no such bound")
	f.Int64Var(&version, "if-version", 0, "change only this version of the account (default: the one there is now)")
	f.StringVar(&reason, "reason", "", "why, for the audit log")
	return cmd
}

// setLimits changes the version that was named, or the one that is there now, so that a change that somebody else makes
// meanwhile is not overwritten unseen.
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
		return changed, fmt.Errorf("%s was changed by somebody else meanwhile: look at it with `bullpen accounts get %s` and decide anew", ref, ref)
	}
	return changed, err
}

func newAccountsVerbCommand(verb string) *cobra.Command {
	conn, format, reason := connection(), cli.FormatTable, ""
	cmd := &cobra.Command{
		Use:   "suspend ACCOUNT",
		Short: "Withhold an account's jobs",
		Long: `Withholds the account's queued jobs: none is started, none is lost. What runs ends normally. This stands beside
GitHub's own suspension of the App: both must be off for the account to run.`,
		Example: "  bullpen accounts suspend acme --reason \"mining; see ticket 812\"",
		Args:    oneAccount,
	}
	if verb == adminapi.VerbResume {
		cmd.Use, cmd.Short = "resume ACCOUNT", "Let a suspended account's jobs go on"
		cmd.Long = `Takes back an operator's suspension; queued jobs go on at once. An account that GitHub has suspended too stays so.`
		cmd.Example = "  bullpen accounts resume acme"
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := conn.Client()
		if err != nil {
			return err
		}
		act := client.Suspend
		if verb == adminapi.VerbResume {
			act = client.Resume
		}
		account, err := act(cmd.Context(), args[0], reason)
		if err != nil {
			return err
		}
		return printAccount(cmd, format, account)
	}
	conn.Flags(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &format)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit log")
	return cmd
}

func newAccountsDeleteCommand() *cobra.Command {
	conn, reason, purge, yes := connection(), "", false, false
	cmd := &cobra.Command{
		Use:   "delete ACCOUNT",
		Short: "Forget an account that has uninstalled the App",
		Long: `Forgets an account of which nothing runs and that has uninstalled the App. Its queued jobs end as stale, for good;
its limits go. Its history goes as the retention rules say, or at once with --purge. The audit log keeps what was done.

An account that installs the App again is back, with the default limits. An operator's suspension is still there then,
unless the account was purged.`,
		Example: "  bullpen accounts delete acme --yes\n  bullpen accounts delete acme --purge --yes --reason \"asked to be forgotten\"",
		Args:    oneAccount,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				return fmt.Errorf("this cannot be undone: repeat it with --yes to delete %s", args[0])
			}
			client, err := conn.Client()
			if err != nil {
				return err
			}
			if err := client.DeleteAccount(cmd.Context(), args[0], reason, purge); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), args[0]+" is deleted.")
			return err
		},
	}
	conn.Flags(cmd.Flags())
	f := cmd.Flags()
	f.BoolVar(&purge, "purge", false, "delete its history at once, too")
	f.BoolVar(&yes, "yes", false, "do it")
	f.StringVar(&reason, "reason", "", "why, for the audit log")
	return cmd
}
