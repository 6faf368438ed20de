package controller

import (
	"context"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/internal/lib/logtail"
)

// podLogs reads logs through the API server, which asks the kubelet, or a node agent.
type podLogs struct{ client kubernetes.Interface }

// mostRead bounds what is read for the last lines: the API counts bytes from the front, so the end is cut out here.
const mostRead = 1 << 20

func newPodLogs(config *rest.Config) (podLogs, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return podLogs{}, fmt.Errorf("making a Kubernetes client for logs: %w", err)
	}
	return podLogs{client}, nil
}

// Tail returns the last lines of a container's log.
func (l podLogs) Tail(ctx context.Context, namespace, pod, container string) ([]byte, error) {
	stream, err := l.client.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{
		Container: container, TailLines: ptr.To[int64](logtail.Lines + 1), // one more, to know that there was more
	}).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the log of pod %s: %w", pod, err)
	}
	defer stream.Close()
	log, err := lastBytes(stream, mostRead)
	if err != nil {
		return nil, fmt.Errorf("reading the log of pod %s: %w", pod, err)
	}
	return log, nil
}

// lastBytes reads all, and keeps the last bytes, up to most.
func lastBytes(from io.Reader, most int) ([]byte, error) {
	kept := make([]byte, 0, 64<<10)
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		kept = append(kept, buffer[:n]...)
		if len(kept) > 2*most {
			kept = append(kept[:0], kept[len(kept)-most:]...)
		}
		if errors.Is(err, io.EOF) {
			return kept[max(0, len(kept)-most):], nil
		}
		if err != nil {
			return nil, err
		}
	}
}
