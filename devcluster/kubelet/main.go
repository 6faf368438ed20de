// Command kubelet is what a Kubernetes node runs beside its container runtime, in one executable: kubelet and kube-proxy, chosen by the name
// that the executable is started under. It is in the module of the control plane, whose version it has and most of whose packages it is
// compiled from.
package main

import (
	"context"
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"github.com/bullpen-ci/bullpen/devcluster/multicall"
)

func main() {
	programs := multicall.Programs{
		"kubelet":    func([]string) int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },
		"kube-proxy": func([]string) int { return cli.Run(proxy.NewProxyCommand()) },
	}
	run, args, err := programs.Choose(os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubelet:", err)
		os.Exit(2)
	}
	os.Args = args // the commands' flag packages read the process's own arguments
	os.Exit(run(args))
}
