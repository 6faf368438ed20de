package http

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/cluster"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
)

// Identities tells whose token a request carries.
type Identities interface {
	// Review returns cluster.ErrRejected for a token that is not accepted for that audience; any other error means
	// that it could not be asked.
	Review(ctx context.Context, token, audience string) (cluster.Identity, error)
	// Runner returns the pod that an identity speaks for, as the controller labelled it (NET-4).
	Runner(id cluster.Identity) (dispatch.Pod, bool)
}

// Tails keeps the last lines of runners that died. To keep one twice does no harm.
type Tails interface {
	KeepTail(ctx context.Context, t fleet.Tail) error
}

// Options configure a Server; all fields are required unless they have a default.
type Options struct {
	Dispatcher *dispatch.Dispatcher
	// Intake takes the payloads of webhooks to the ledger.
	Intake     *intake.Intake
	Identities Identities
	// WebhookSecrets sign GitHub's deliveries (NET-6). They may change at any time.
	WebhookSecrets *github.WebhookSecrets
	// NoWebhooks: GitHub cannot reach this server, so no request is accepted as GitHub's. There is no secret
	// then.
	NoWebhooks bool
	// ControllerPrincipal is the one user that may retire pods, report their end, and read signals and demand (NET-5), as
	// system:serviceaccount:NAMESPACE:NAME.
	ControllerPrincipal string
	// Ready returns why the server cannot serve yet, or nil.
	Ready func(ctx context.Context) error
	// CheckPod has recovery check one pod soon; without it, its next pass does.
	CheckPod func(ctx context.Context, podUID string) error
	// Tails keeps the last lines of runners that died; nil keeps none.
	Tails Tails

	Log *slog.Logger
	// Metrics takes bullpen_webhook_signatures_total; nowhere when nil.
	Metrics prometheus.Registerer
	Now     func() time.Time
}

// Server holds the handlers. It is stateless and safe for concurrent use.
type Server struct {
	opt        Options
	signatures *prometheus.CounterVec
	flood      *flood
	bodies     *bodies
	ready      *readiness
}

// New checks the options.
func New(opt Options) (*Server, error) {
	switch {
	case opt.Dispatcher == nil || opt.Intake == nil || opt.Identities == nil || opt.Ready == nil:
		return nil, errors.New("the server needs a dispatcher, an intake, identities and a readiness check")
	case opt.WebhookSecrets == nil && !opt.NoWebhooks:
		return nil, errors.New("no webhook secret: set the webhook secret of the GitHub App")
	case opt.ControllerPrincipal == "":
		return nil, errors.New("the controller's principal is empty: set its ServiceAccount as system:serviceaccount:NAMESPACE:NAME")
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Metrics == nil {
		opt.Metrics = prometheus.NewRegistry()
	}
	s := &Server{opt: opt, flood: newFlood(opt.Log, opt.Now), bodies: newBodies(opt.Now), ready: &readiness{check: opt.Ready, now: opt.Now}}
	s.signatures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "bullpen_webhook_signatures_total",
		Help: "Webhooks, by the secret of their signature: current or previous.",
	}, []string{"secret"})
	for _, position := range github.SecretPositions() {
		s.signatures.WithLabelValues(string(position)) // zero shows that the previous secret is no longer in use
	}
	if err := opt.Metrics.Register(s.signatures); err != nil {
		return nil, fmt.Errorf("registering the server's metrics: %w", err)
	}
	return s, nil
}

// Public serves GitHub, and health checks from inside the cluster. Any client can reach it.
func (s *Server) Public() http.Handler {
	mux := http.NewServeMux()
	if !s.opt.NoWebhooks { // NET-6: without a secret nothing could be verified
		mux.HandleFunc("POST /webhooks/github", s.webhook)
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /readyz", s.readyz)
	return mux
}

// Internal serves runner pods and the controller.
func (s *Server) Internal() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+runnerapi.PathDispatch, s.dispatch)
	mux.HandleFunc("POST "+runnerapi.PathAcknowledge, s.acknowledge)
	mux.HandleFunc("POST "+runnerapi.PathRetire, s.retire)
	mux.HandleFunc("POST "+runnerapi.PathPodsStopped, s.podsStopped)
	mux.HandleFunc("GET "+runnerapi.PathSignals, s.signals)
	mux.HandleFunc("POST "+runnerapi.PathDemand, s.demand)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /readyz", s.readyz)
	return mux
}

// refuse answers with a status of 400 or above and one sentence.
func refuse(w http.ResponseWriter, status int, sentence string) {
	answer(w, status, runnerapi.Error{Error: sentence})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client has disconnected: it will retry
}

// decode reads a bounded JSON body; false when it has answered itself.
func decode(w http.ResponseWriter, r *http.Request, into any) bool {
	const most = 4 << 20
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, most)).Decode(into)
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		return true
	case errors.As(err, &tooLarge):
		refuse(w, http.StatusRequestEntityTooLarge, "the body is larger than 4 MiB")
	default:
		refuse(w, http.StatusBadRequest, "invalid JSON in the request body: "+err.Error())
	}
	return false
}
