package onebox

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policygate "github.com/bullpen-ci/bullpen/internal/dev/netpolicy/gate"
)

// dispatchPort is the port of the server's pods at which the chart's network policies let idle runners reach it.
const dispatchPort = 8081

// serverPod is what the server is to network policies: a pod as the chart's Deployment makes them, in an installation of
// which the rendered policies are. Here the server is a process that shares the machine's network, so the API server knows
// no such pod, and the address is unused.
func serverPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: SystemNamespace, Name: "bullpen-server", Labels: map[string]string{
			"app.kubernetes.io/name": "bullpen", "app.kubernetes.io/instance": "bullpen", "app.kubernetes.io/component": "server",
		}},
		Status: corev1.PodStatus{PodIP: "192.0.2.1"}, // TEST-NET-1 (RFC 5737)
	}
}

// startGate puts the cluster's network policies between the runners and the server, and returns when they are enforced. Refused connections
// are in the gate's log, one JSON object a line.
func (b *Box) startGate(ctx context.Context) error {
	file, err := os.OpenFile(b.layout.Log("gate"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of denied connections: %w", err)
	}
	log := slog.New(slog.NewJSONHandler(file, nil))
	gate, err := policygate.New(policygate.Options{
		Kube: b.kube, Namespace: RunnerNamespace, Upstream: b.addresses.Internal, Server: serverPod(), Port: dispatchPort, Log: log,
		Observe: func(r policygate.Refusal) { log.Info("connection denied", "pod", r.Pod.Name, "cut", r.Cut) },
	})
	if err != nil {
		_ = file.Close()
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", b.addresses.Gate)
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("listening for runners: %w", err)
	}
	b.watchers.Go(func() {
		defer file.Close()
		if err := gate.Run(b.ctx, listener); err != nil {
			b.report(Event{Kind: EventProblem, Part: "gate", Message: fmt.Sprintf("%v; runners get no jobs. Restart `bullpen up`", err)})
		}
	})
	select {
	case <-gate.Started():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("reading the network policies: %w", ctx.Err())
	}
}
