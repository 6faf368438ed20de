package registered

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/bullpen-ci/bullpen/internal/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/registration"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Options configures the Service.
type Options struct {
	// Registrars reach GitHub. Required.
	Registrars registration.Registrars
	// Pod is what every runner pod has in common. Required.
	Pod runnerpod.Options
	// Asks is how many questions to GitHub are under way at once with one set of credentials; the default is 8.
	Asks int
	// Registry takes the metrics. Required.
	Registry prometheus.Registerer
	// Log takes what no Event or condition says. Required.
	Log *slog.Logger
	// Now is the clock; the default is time.Now.
	Now func() time.Time
}

// Service registers runners, and unregisters them. It is safe for concurrent use.
type Service struct {
	options Options
}

var _ lifecycle.Fence = (*Service)(nil)

// Setup adds the Service's own work to the manager: the controller of pods that are being deleted, have ended, or have no
// owner. The manager's cache must hold the pods of self-registering runners, as TrimPod leaves them, and nodes.
func Setup(mgr manager.Manager, options Options) (*Service, error) {
	return nil, errors.New("not set up yet")
}

// ErrRename: a runner of that name exists at GitHub, or has existed, so that this one needs another: choose it by
// NewRunnerName, store it, and prepare again. Of a StatefulSet, whose pod has the name already, another must be made; its pod
// has not started.
var ErrRename = errors.New("the runner needs another name at GitHub")

// ErrSpent: the runner's pod has existed, and what it was to register with is gone. It is never made again (RUN-7).
var ErrSpent = errors.New("what the runner registers with was used, and is gone")

// Prepared is a runner that may be started: its Secret exists.
type Prepared struct {
	// RunnerID is GitHub's id of an ephemeral runner's registration; 0 for a static one, which registers itself.
	RunnerID int64
	// Target is where it is registered, as GitHub knows it.
	Target registration.Target
	// TokenExpiresAt is when a static runner's token expires; zero for an ephemeral one, and once the token is blank.
	TokenExpiresAt time.Time
	// Next is when Prepare must be called again, to renew the token; zero for never.
	Next time.Time
}

// Prepare sees to it that the runner has what it registers with, in its Secret: a just-in-time configuration that is minted
// once, or a token that is renewed until GitHub knows the runner. It is called again and again, and does nothing where all is
// well. pod is its pod as it was observed last, nil where there is none; podExisted says that there was one at any time.
//
// Errors are ErrRename, ErrSpent, those of package registration, and of the API server.
func (s *Service) Prepare(ctx context.Context, i Identity, pod *View, podExisted bool) (Prepared, error) {
	return Prepared{}, errors.New("not prepared yet")
}

// Ask is GitHub's own word on whether these runners may be removed (RUN-2). What it grants is written on the pods.
func (s *Service) Ask(ctx context.Context, runners []lifecycle.RunnerRef) []lifecycle.Answer {
	return make([]lifecycle.Answer, len(runners))
}

// Place is what is known of a node now. It never waits.
func (s *Service) Place(node string) Place { return Place{} }

// OnChange has notify called with each pod of which something has changed that its own events do not tell: its node has
// gone or come back, what GitHub says of it. It is for before the manager starts; notify must not wait.
func (s *Service) OnChange(notify func(pod types.NamespacedName)) {}
