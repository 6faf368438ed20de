package node_test

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/internal/node"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/synthetic"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// gate lets an agent's changes of pods through while it is open, and holds them at the door otherwise.
type gate struct {
	mu      sync.Mutex
	shut    chan struct{} // nil while it is open
	arrived chan string   // what came while it was shut: the pod's name, and the change
}

func (g *gate) wrap(o *node.Options) {
	g.arrived = make(chan string, 100)
	o.Config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(req *http.Request) (*http.Response, error) {
			if req.Method != http.MethodPatch || !strings.Contains(req.URL.Path, "/pods/") {
				return next.RoundTrip(req)
			}
			g.mu.Lock()
			shut := g.shut
			g.mu.Unlock()
			if shut != nil {
				body, err := io.ReadAll(req.Body)
				if err != nil {
					return nil, err
				}
				req.Body = io.NopCloser(bytes.NewReader(body))
				name := strings.TrimSuffix(req.URL.Path, "/status")
				g.arrived <- name[strings.LastIndexByte(name, '/')+1:] + " " + string(body)
				select {
				case <-shut:
				case <-req.Context().Done():
					return nil, req.Context().Err()
				}
			}
			return next.RoundTrip(req)
		})
	})
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = make(chan struct{})
}

// A write has the state of its turn: a pod that changed twice in the meantime is written once.
func TestStatusWrites_TellWhatIsTrueInTheirTurn(t *testing.T) {
	f := newFixture(t)
	machine := synthetic.NewMachine(nil)
	var g gate
	f.run(synthetic.New(machine), g.wrap, func(o *node.Options) { o.RequestTimeout = patience })
	var others []*corev1.Pod
	for range 2 {
		others = append(others, f.awaitPhase(f.create(nil, sh("main", "")), corev1.PodRunning))
	}
	pod := f.await(f.create(nil, sh("main", ""), sh("side", "")), "both of its containers run", func(p *corev1.Pod) bool {
		statuses := p.Status.ContainerStatuses
		return len(statuses) == 2 && statuses[0].State.Running != nil && statuses[1].State.Running != nil
	})
	ended := func(uid types.UID, container string) func(node.Report) bool {
		return func(r node.Report) bool {
			for _, p := range r.Pods {
				if p.UID == string(uid) {
					return slices.ContainsFunc(p.Containers, func(c node.ReportContainer) bool { return c.Name == container && c.State == "ended" })
				}
			}
			return false
		}
	}
	g.close()
	for _, other := range others {
		require.NoError(t, machine.Exit(string(other.UID), "main", 0))
		require.Contains(t, f.receive(g.arrived), other.Name)
	}
	require.NoError(t, machine.Exit(string(pod.UID), "side", 0))
	f.report(ended(pod.UID, "side"))
	require.NoError(t, machine.Exit(string(pod.UID), "main", 0))
	f.report(ended(pod.UID, "main"))
	close(g.shut)

	first := f.receive(g.arrived)
	for !strings.HasPrefix(first, pod.Name+" ") {
		first = f.receive(g.arrived)
	}
	require.Contains(t, first, `"phase":"Succeeded"`)
	f.awaitPhase(pod, corev1.PodSucceeded)
}

// A call has an end, and with it the turn that it has.
func TestStatusWrites_ThatHangGiveTheirTurnsBack(t *testing.T) {
	f := newFixture(t)
	var g gate
	g.close()
	f.run(synthetic.New(synthetic.NewMachine(nil)), g.wrap, func(o *node.Options) { o.RequestTimeout = time.Second })
	missing := map[string]bool{}
	for range 3 { // more than may have a turn
		missing[f.create(nil, sh("main", "")).Name] = true
	}
	for len(missing) > 0 {
		name, _, _ := strings.Cut(f.receive(g.arrived), " ")
		delete(missing, name)
	}
}

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
	await.Receive(t, arrived, "a write arrives at the API server")
	await.Receive(t, arrived, "a write arrives at the API server")
	f.never(func() bool { return len(arrived) > 0 }, "two are under way")
	answer <- struct{}{}
	await.Receive(t, arrived, "a write arrives at the API server") // though the other one still hangs
	close(answer)
	for _, pod := range pods {
		f.awaitPhase(pod, corev1.PodRunning)
	}
}
