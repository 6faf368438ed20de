package main

import (
	"fmt"
	"os"
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

	"github.com/bullpen-ci/bullpen/devcluster/multicall"
)

func main() {
	programs := multicall.Programs{
		"etcd":                    etcd,
		"kube-apiserver":          func([]string) int { return cli.Run(apiserver.NewAPIServerCommand()) },
		"kube-controller-manager": func([]string) int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
		"kube-scheduler":          func([]string) int { return cli.Run(scheduler.NewSchedulerCommand()) },
		"kubectl":                 kubectl,
	}
	run, args, err := programs.Choose(os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "devcluster:", err)
		os.Exit(2)
	}
	os.Args = args // the commands' flag packages read the process's own arguments
	os.Exit(run(args))
}

func etcd(args []string) int {
	etcdmain.Main(args)
	return 0
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
