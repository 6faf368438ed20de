package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
)

// A shell that completes a name blocks the terminal: it gets a response within completionTime with at most completionNames names, or none.
const (
	completionTime  = 3 * time.Second
	completionNames = 200
)

// names lists the values of an argument or flag of cmd, from the server that its flags name. After an error there are none.
type names func(ctx context.Context, cmd *cobra.Command, client *cli.Client) ([]cobra.Completion, error)

// completeNames completes names of the fleet wherever a command of root takes one.
func completeNames(root *cobra.Command) {
	pools := completion(poolNames)
	for path, complete := range map[string]cobra.CompletionFunc{
		"job": completion(jobIDs(true)), "why": completion(jobIDs(false)), "cancel": completion(jobIDs(false)),
		"retire":     completion(idleRunners),
		"pool pause": pools, "pool drain": pools, "pool resume": pools,
	} {
		find(root, path).ValidArgsFunction = first(complete)
	}
	for _, verb := range []string{"get", "set-limits", adminapi.VerbSuspend, adminapi.VerbResume, "delete"} {
		find(root, "accounts "+verb).ValidArgsFunction = first(completion(accountNames))
	}
	for _, command := range []string{"jobs", "usage", "audit"} {
		completeFlag(find(root, command), "account", completion(accountNames))
	}
	completeFlag(find(root, "runners"), "pool", pools)
	completeFlag(find(root, "runners"), "stage", cobra.FixedCompletions(cli.RunnerStageNames(), cobra.ShellCompDirectiveNoFileComp))
	completeFlag(find(root, "jobs"), "state", cobra.FixedCompletions(cli.JobStateNames(), cobra.ShellCompDirectiveNoFileComp))
}

func find(root *cobra.Command, path string) *cobra.Command {
	cmd, rest, err := root.Find(strings.Fields(path))
	if err != nil || len(rest) > 0 {
		panic(fmt.Sprintf("completing names of an unknown command: %s", path)) // every run of every test fails
	}
	return cmd
}

func completeFlag(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(fmt.Sprintf("completing --%s of %s: %v", flag, cmd.CommandPath(), err))
	}
}

// first offers names for the first argument alone: no command takes two.
func first(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, begun)
	}
}

// completion asks the server. Errors are not printed: they would end up in the line that the user is typing.
func completion(list names) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, stop := context.WithTimeout(cmd.Context(), completionTime)
		defer stop()
		offered, err := ask(ctx, cmd, list)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var fit []cobra.Completion
		for _, name := range offered {
			if strings.HasPrefix(name, begun) && len(fit) < completionNames {
				fit = append(fit, name)
			}
		}
		return fit, cobra.ShellCompDirectiveNoFileComp
	}
}

// ask connects to the server that the flags given so far name, as the command itself would.
func ask(ctx context.Context, cmd *cobra.Command, list names) ([]cobra.Completion, error) {
	conn, flags := connection(), pflag.NewFlagSet("completion", pflag.ContinueOnError)
	conn.Flags(flags)
	var wrong []error
	flags.VisitAll(func(flag *pflag.Flag) {
		if given := cmd.Flags().Lookup(flag.Name); given != nil && given.Changed {
			wrong = append(wrong, flag.Value.Set(given.Value.String()))
		}
	})
	if err := errors.Join(wrong...); err != nil {
		return nil, fmt.Errorf("reading the flags given: %w", err)
	}
	client, err := conn.Client()
	if err != nil {
		return nil, err
	}
	return list(ctx, cmd, client)
}

func jobIDs(ended bool) names {
	return func(ctx context.Context, _ *cobra.Command, client *cli.Client) ([]cobra.Completion, error) {
		jobs, err := client.Jobs(ctx, cli.JobFilter{Ended: ended, Most: completionNames})
		var ids []cobra.Completion
		for _, job := range jobs {
			ids = append(ids, cobra.CompletionWithDesc(strconv.FormatInt(job.ID, 10), string(cli.StateOf(job))+" in "+job.Repository))
		}
		return ids, err
	}
}

// idleRunners are those that can be retired.
func idleRunners(ctx context.Context, cmd *cobra.Command, client *cli.Client) ([]cobra.Completion, error) {
	runners, err := client.Runners(ctx, cli.RunnerFilter{Stages: []string{"idle"}, Most: adminapi.MaxPage})
	var idle []cobra.Completion
	for _, runner := range runners {
		if runner.Namespace == namespaceOf(cmd) {
			idle = append(idle, cobra.CompletionWithDesc(runner.Name, "of pool "+runner.Pool))
		}
	}
	return idle, err
}

// poolNames are those of the command's namespace, or all if it takes none.
func poolNames(ctx context.Context, cmd *cobra.Command, client *cli.Client) ([]cobra.Completion, error) {
	list, err := client.Pools(ctx)
	var pools []cobra.Completion
	for _, pool := range list.Pools {
		if namespace := namespaceOf(cmd); namespace == "" || namespace == pool.Namespace {
			pools = append(pools, cobra.CompletionWithDesc(pool.Name, strings.Join(pool.Labels, ",")))
		}
	}
	return pools, err
}

func accountNames(ctx context.Context, cmd *cobra.Command, client *cli.Client) ([]cobra.Completion, error) {
	accounts, err := client.Accounts(ctx, cmd.Name() == "delete") // a deleted one can still be purged
	var logins []cobra.Completion
	for _, account := range accounts {
		logins = append(logins, cobra.CompletionWithDesc(account.Login, string(account.State)))
	}
	return logins, err
}

// namespaceOf is the value of -n, or its default; empty if the command has no such flag.
func namespaceOf(cmd *cobra.Command) string {
	if flag := cmd.Flags().Lookup("namespace"); flag != nil {
		return flag.Value.String()
	}
	return ""
}
