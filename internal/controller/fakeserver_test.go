package controller_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

const fakeToken = "controller-token"

// fakeServer answers the controller as the server does, from one table of claims.
type fakeServer struct {
	t     *testing.T
	admin client.Client
	http  *httptest.Server

	mu      sync.Mutex
	claims  map[string]fleet.ClaimState
	proofs  map[string]string // by UID: what is answered about a lost one that has a claim
	lost    map[string]int    // by UID: how often it was asked about as lost
	stopped map[string]stopReport
	retires int
	reports int
	down    bool
	demand  map[string]runnerapi.PoolSignals // by the pool's name; nothing is asked of others
	unsure  bool                             // signals alone cannot be read
	looked  int                              // how often signals were asked for
}

type stopReport struct {
	runnerapi.PodStopped
	existed bool // the pod still existed when its end was reported
	times   int
}

func newFakeServer(t *testing.T, admin client.Client) *fakeServer {
	s := &fakeServer{
		t: t, admin: admin, claims: map[string]fleet.ClaimState{}, proofs: map[string]string{}, lost: map[string]int{},
		stopped: map[string]stopReport{}, demand: map[string]runnerapi.PoolSignals{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+runnerapi.PathRetire, s.retire)
	mux.HandleFunc("POST "+runnerapi.PathPodsStopped, s.podsStopped)
	mux.HandleFunc("GET "+runnerapi.PathSignals, s.signals)
	s.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+fakeToken {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.http.Close)
	return s
}

func (s *fakeServer) retire(w http.ResponseWriter, r *http.Request) {
	var request runnerapi.RetireRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retires++
	if s.down {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"error":"no database"}`))
		return
	}
	var response runnerapi.RetireResponse
	for _, pod := range request.Pods {
		answer := runnerapi.RetireAnswer{UID: pod.UID, Verdict: runnerapi.Busy, Owner: "acme", State: string(s.claims[pod.UID])}
		if pod.Lost {
			s.lost[pod.UID]++
			if answer.Proof = s.proofs[pod.UID]; answer.Proof != "" && s.claims[pod.UID].Live() {
				s.claims[pod.UID] = fleet.ClaimSpent
			}
		}
		if next, outcome := fleet.NextClaimState(s.claims[pod.UID], fleet.ClaimEventRetire); outcome != fleet.Refuse {
			s.claims[pod.UID], answer.Verdict = next, runnerapi.Granted
		}
		response.Answers = append(response.Answers, answer)
	}
	_ = json.NewEncoder(w).Encode(response)
}

func (s *fakeServer) podsStopped(w http.ResponseWriter, r *http.Request) {
	var report runnerapi.PodStopped
	if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var pod corev1.Pod
	err := s.admin.Get(r.Context(), types.NamespacedName{Namespace: report.Pod.Namespace, Name: report.Pod.Name}, &pod)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports++
	if s.down {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	s.stopped[report.Pod.Name] = stopReport{report, err == nil && string(pod.UID) == report.Pod.UID, s.stopped[report.Pod.Name].times + 1}
	w.WriteHeader(http.StatusNoContent)
}

// signals answers for all pools that exist, as the server does from its watch.
func (s *fakeServer) signals(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	var pools v1alpha1.RunnerPoolList
	err := s.admin.List(r.Context(), &pools)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looked++
	if err != nil || s.down || s.unsure {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"error":"no database"}`))
		return
	}
	signals := runnerapi.Signals{At: at, Pools: []runnerapi.PoolSignals{}}
	for _, pool := range pools.Items {
		demand := s.demand[pool.Name]
		demand.Namespace, demand.Name = pool.Namespace, pool.Name
		signals.Pools = append(signals.Pools, demand)
	}
	_ = json.NewEncoder(w).Encode(signals)
}

// ask says what a pool is asked for from now on.
func (s *fakeServer) ask(pool string, demand runnerapi.PoolSignals) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.demand[pool] = demand
}

func (s *fakeServer) setUnsure(unsure bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsure = unsure
}

func (s *fakeServer) timesLooked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looked
}

func (s *fakeServer) claim(uid string, state fleet.ClaimState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims[uid] = state
}

// prove has the server answer that the registration of a lost runner is gone.
func (s *fakeServer) prove(uid, proof string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proofs[uid] = proof
}

func (s *fakeServer) askedAsLost(uid string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost[uid]
}

func (s *fakeServer) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *fakeServer) asked() (retires, reports int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retires, s.reports
}

func (s *fakeServer) reportOf(name string) (stopReport, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	report, ok := s.stopped[name]
	return report, ok
}
