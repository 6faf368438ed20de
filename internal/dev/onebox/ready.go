package onebox

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// readiness says why a part that was started at a given time is not ready, or nil.
type readiness func(ctx context.Context, since time.Time) error

func boundedClient() *http.Client { return &http.Client{Timeout: 60 * time.Second} }

// httpReady asks a readiness endpoint.
func httpReady(url string) readiness {
	answers := Answers(url)
	return func(ctx context.Context, _ time.Time) error { return answers(ctx) }
}

// nodeReady checks what a node agent shows: its node is ready, and its lease was renewed by the process that was
// started then, not by the one before.
func nodeReady(kube kubernetes.Interface, name string) readiness {
	return func(ctx context.Context, since time.Time) error {
		node, err := kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("looking for the node: %w", err)
		}
		ready := false
		for _, condition := range node.Status.Conditions {
			ready = ready || condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		}
		if !ready {
			return fmt.Errorf("the node %s is not ready", name)
		}
		lease, err := kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("looking for the node's lease: %w", err)
		}
		if lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(since) {
			return fmt.Errorf("the node's lease has not been renewed since %s", since.Format(time.TimeOnly))
		}
		return nil
	}
}

// servingReady looks whether the node agent serves logs with a certificate that the API server takes.
func servingReady(address string, authority []byte) readiness {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: 5 * time.Second}, Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	return func(ctx context.Context, _ time.Time) error {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("looking whether the node agent serves logs: %w", err)
		}
		return conn.Close()
	}
}

// all is the first reason of several.
func all(parts ...readiness) readiness {
	return func(ctx context.Context, since time.Time) error {
		for _, ready := range parts {
			if err := ready(ctx, since); err != nil {
				return err
			}
		}
		return nil
	}
}

// termination is how a process is ended, and the word for it.
func termination(hard bool) (syscall.Signal, string) {
	if hard {
		return syscall.SIGKILL, "kill -9"
	}
	return syscall.SIGTERM, "SIGTERM"
}
