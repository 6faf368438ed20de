package soak

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/bullpen-ci/bullpen/internal/node"
	"github.com/bullpen-ci/bullpen/test/soak/machine"
)

// envRole makes this executable one of the soak's own processes.
const envRole = "BULLPEN_SOAK_ROLE"

// Child runs the process that this executable was started as, if it was, and says so. Call it before Run: a synthetic
// machine and its node agent are this executable again.
func Child() (code int, is bool) {
	role := os.Getenv(envRole)
	if role == "" {
		return 0, false
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := runChild(ctx, role, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

func runChild(ctx context.Context, role string, args []string) error {
	switch {
	case role == "machine" && len(args) == 3:
		return machine.Serve(ctx, args[0], args[1], args[2], workerAfter)
	case role == "agent" && len(args) == 5:
		return runAgent(ctx, args[0], args[1], args[2], args[3], args[4])
	}
	return errors.New("the soak was started in a role that it does not know")
}

// runAgent is the product's node agent, in front of a machine in another process.
func runAgent(ctx context.Context, name, socket, kubeconfig, stateDir, pods string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the node's identity: %w", err)
	}
	room, err := strconv.ParseInt(pods, 10, 64)
	if err != nil {
		return fmt.Errorf("reading the number of pods: %w", err)
	}
	agent, err := node.New(node.Options{
		Name: name, Config: config, StateDir: stateDir, Sandbox: machine.Dial(socket), SandboxName: "synthetic", MinDiskFree: node.DiskReserve{Bytes: 1 << 28},
		Labels: map[string]string{"soak": "synthetic"}, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10000"), corev1.ResourceMemory: resource.MustParse("100Ti"),
			corev1.ResourcePods: *resource.NewQuantity(room, resource.DecimalSI), corev1.ResourceEphemeralStorage: resource.MustParse("100Ti"),
		},
	})
	if err != nil {
		return err
	}
	return agent.Run(ctx)
}
