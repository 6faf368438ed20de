package onebox

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// imageInterval is how often pods are asked what they wait for.
const imageInterval = 5 * time.Second

// watchImages reports images that the node cannot get, each once, and again when its problem has changed, until ctx ends.
func (b *Box) watchImages(ctx context.Context) {
	tick := time.NewTicker(imageInterval)
	defer tick.Stop()
	reported := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		pods, err := listRunnerPods(ctx, b.kube)
		if err != nil {
			continue // the API server is restarted
		}
		problems := imageProblems(pods)
		for image, problem := range problems {
			if !reported[image] {
				b.report(Event{Kind: EventProblem, Part: partNode, Message: problem})
			}
			reported[image] = true
		}
		for image := range reported {
			reported[image] = problems[image] != ""
		}
	}
}

func (b *Box) service(ctx context.Context, name string) (*corev1.Service, error) {
	found, err := b.kube.CoreV1().Services(SystemNamespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("looking for the Service %s: %w", name, err)
	}
	return found, nil
}
