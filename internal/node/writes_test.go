package node_test

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/synthetic"
)

// However many pods change at once, an agent has few writes of their statuses under way, one that hangs holds up no other, and all are
// written in the end.
func TestStatusWrites_AreFewAtATime(t *testing.T) {
	f := newFixture(t)
	arrived, answer := make(chan struct{}, 100), make(chan struct{})
	stop := f.run(synthetic.New(synthetic.NewMachine(nil)), func(o *node.Options) {
		o.RequestTimeout = patience
		o.Config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(req *http.Request) (*http.Response, error) {
				if req.Method == http.MethodPatch && strings.Contains(req.URL.Path, "/pods/") {
					arrived <- struct{}{}
					select {
					case <-answer:
					case <-req.Context().Done():
						return nil, req.Context().Err()
					}
				}
				return next.RoundTrip(req)
			})
		})
	})
	defer stop()
	var pods []*corev1.Pod
	for range 8 {
		pods = append(pods, f.create(nil, sh("main", "")))
	}
	<-arrived
	<-arrived
	f.never(func() bool { return len(arrived) > 0 }, "two are under way")
	answer <- struct{}{}
	<-arrived // though the other one still hangs
	close(answer)
	for _, pod := range pods {
		f.awaitPhase(pod, corev1.PodRunning)
	}
}
