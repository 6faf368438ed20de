package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/fleet"
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
		"retire": completion(idleRunners), "runners logs": completion(runnerNames), "runners get": completion(runnerNames),
		"pool pause": pools, "pool drain": pools, "pool resume": pools, "pool set": pools, "pool scale": pools, "pool get": pools, "pools": pools,
	} {
		find(root, path).ValidArgsFunction = first(complete)
	}
	for _, verb := range []string{"get", "set-limits", adminapi.VerbSuspend, adminapi.VerbResume, "delete"} {
		find(root, "accounts "+verb).ValidArgsFunction = first(completion(accountNames))
	}
	for _, command := range []string{"jobs", "usage", "audit"} {
		completeFlag(find(root, command), "account", completion(accountNames))
	}
	for _, command := range []string{"runners", "audit"} {
		completeFlag(find(root, command), "pool", pools)
	}
	completeFlag(find(root, "runners"), "stage", separated(adminapi.RunnerStages()))
	completeFlag(find(root, "jobs"), "state", separated(cli.JobStateNames()))
	completeFlag(find(root, "jobs"), "conclusion", separated(adminapi.Conclusions()))
	completeFlag(find(root, "events"), "types", separated([]string{"Normal", "Warning"}))
	completeFlag(find(root, "doctor"), "only", separated(doctorParts))
	completeFlag(find(root, "accounts set-limits"), "platform", separated([]string{string(fleet.Linux), string(fleet.MacOS)}))
	for _, verb := range []string{"use-server", "set-server", "delete-server"} {
		find(root, "config "+verb).ValidArgsFunction = first(serverNames)
	}
	completeCommonFlags(root)
}

// completeCommonFlags completes the flags that many commands share.
func completeCommonFlags(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		completeCommonFlags(sub)
	}
	if _, found := cli.ConnectionOf(cmd.Flags()); found {
		completeFlag(cmd, "server", serverNames)
	}
	output := cmd.Flags().Lookup("output")
	if output == nil {
		return
	}
	if _, plain := output.Value.(*cli.Format); plain { // listOutput and getOutput complete theirs
		completeFlag(cmd, "output", cobra.FixedCompletions(cli.FormatNames(), cobra.ShellCompDirectiveNoFileComp))
	}
}

// separated completes a list of values with commas between them, each once.
func separated(values []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before, last := "", begun
		if comma := strings.LastIndex(begun, ","); comma >= 0 {
			before, last = begun[:comma+1], begun[comma+1:]
		}
		var fit []cobra.Completion
		for _, value := range values {
			if strings.HasPrefix(value, last) && !slices.Contains(strings.Split(before, ","), value) {
				fit = append(fit, before+value)
			}
		}
		return fit, cobra.ShellCompDirectiveNoFileComp
	}
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

// ask connects to the server that the flags given so far name, as the command itself would. A port-forward is started only for a server of the
// configuration file.
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
	conn.OnlyNamed = true
	defer conn.Close()
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
	return runnersOf(ctx, cmd, client, cli.RunnerStages{"idle"})
}

func runnerNames(ctx context.Context, cmd *cobra.Command, client *cli.Client) ([]cobra.Completion, error) {
	return runnersOf(ctx, cmd, client, nil)
}

func runnersOf(ctx context.Context, cmd *cobra.Command, client *cli.Client, stages cli.RunnerStages) ([]cobra.Completion, error) {
	runners, err := client.Runners(ctx, cli.RunnerFilter{Stages: stages, Most: adminapi.MaxPage})
	var names []cobra.Completion
	for _, runner := range runners {
		if runner.Namespace == namespaceOf(cmd) {
			names = append(names, cobra.CompletionWithDesc(runner.Name, "of pool "+runner.Pool))
		}
	}
	return names, err
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
