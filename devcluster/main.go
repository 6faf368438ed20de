package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	_ "time/tzdata" // CronJob time zones, on machines without a zone database

	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl's credential plugins
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// program runs one of the bundled commands. args is the whole argument vector, with the program's own name first;
// the result is the process's exit code. A program may also end the process itself.
type program func(args []string) int

// programs are the commands in this executable, by the name that starts each.
func programs() map[string]program {
	return map[string]program{
		"etcd": func(args []string) int {
			etcdmain.Main(args)
			return 0
		},
		"kube-apiserver":          func([]string) int { return cli.Run(apiserver.NewAPIServerCommand()) },
		"kube-controller-manager": func([]string) int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
		"kube-scheduler":          func([]string) int { return cli.Run(scheduler.NewSchedulerCommand()) },
		"kubectl":                 kubectl,
	}
}

func kubectl(args []string) int {
	// kubectl logs while it builds its command tree, before it parses flags: the verbosity must be known earlier.
	if _, err := logs.GlogSetter(cmd.GetLogVerbosity(args)); err != nil {
		fmt.Fprintln(os.Stderr, "setting the log verbosity:", err)
	}
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		cmdutil.CheckErr(err) // prints the error the way kubectl does, and exits
	}
	return 0
}

// choose finds the program that args asks for: by the base name of args[0], or, when the executable has another
// name, by its first argument (`devcluster kubectl get pods`). It returns the arguments as that program expects them.
func choose(all map[string]program, args []string) (program, []string, error) {
	if len(args) > 0 {
		if run, ok := all[filepath.Base(args[0])]; ok {
			return run, args, nil
		}
	}
	if len(args) > 1 {
		if run, ok := all[args[1]]; ok {
			return run, args[1:], nil
		}
	}
	return nil, nil, fmt.Errorf("start this executable under one of the names %s (a link is enough), or give the name as first argument",
		strings.Join(names(all), ", "))
}

func names(all map[string]program) []string {
	list := make([]string, 0, len(all))
	for name := range all {
		list = append(list, name)
	}
	sort.Strings(list)
	return list
}

func dispatch(all map[string]program, args []string, stderr io.Writer) int {
	run, rest, err := choose(all, args)
	if err != nil {
		fmt.Fprintln(stderr, "devcluster:", err)
		return 2
	}
	os.Args = rest // cobra and pflag read the process's own arguments
	return run(rest)
}

func main() {
	os.Exit(dispatch(programs(), os.Args, os.Stderr))
}
