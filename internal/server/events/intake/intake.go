package intake

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/tracing"
)

// MaxGUID is the longest delivery id that is accepted as one of GitHub's, in bytes.
const MaxGUID = 128

// Delivery is one payload of GitHub's, known to be GitHub's.
type Delivery struct {
	GUID  string // the same for every attempt of one event
	Event string // what GitHub's event header says
	Body  []byte
	At    time.Time // when it came
}

// Outcome of taking a delivery; the label of the metric.
type Outcome string

// The outcomes of Take. Only Failed asks for the same payload again.
const (
	Recorded     Outcome = "recorded"      // committed, or of a kind that leaves nothing to commit
	Repeated     Outcome = "repeated"      // it had been recorded before
	Ignored      Outcome = "ignored"       // nothing follows from it
	NotInstalled Outcome = "not_installed" // ignored: the App is not installed where it comes from
	Malformed    Outcome = "malformed"     // it is not what its event promises, and never will be
	Failed       Outcome = "failed"        // it could not be stored just now
)

// Result says what became of a delivery.
type Result struct {
	Event   string // the kind of event, one of few
	Outcome Outcome
	Reason  string // one sentence for the sender
}

// Options of New.
type Options struct {
	// Store is the ledger. Required.
	Store dispatch.IntakeStore
	// Owners finds the installation for an event that names none; without it such events are ignored.
	Owners *Owners
	// Log gets what could not be stored and what is inconsistent; discarded when nil.
	Log *slog.Logger
	// Metrics takes bullpen_webhooks_total, bullpen_job_wait_seconds and bullpen_job_phase_seconds; nowhere when nil.
	Metrics prometheus.Registerer
	// Tracer gets every job that is ours; nil traces none.
	Tracer *tracing.Tracer
}

// Intake records deliveries. It keeps no state and is safe for concurrent use.
type Intake struct {
	opt     Options
	metrics *metrics
}

// New checks the options.
func New(opt Options) (*Intake, error) {
	if opt.Store == nil {
		return nil, errors.New("the intake needs a store")
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Metrics == nil {
		opt.Metrics = prometheus.NewRegistry()
	}
	metrics, err := newMetrics(opt.Metrics)
	if err != nil {
		return nil, err
	}
	return &Intake{opt: opt, metrics: metrics}, nil
}

// Count counts one delivery by its event ("" if unknown) and its outcome; each is one of a small set. Take counts what it
// takes; the caller counts a request that was rejected before Take.
func (i *Intake) Count(event, outcome string) {
	if event == "" {
		event = "unknown"
	}
	i.metrics.webhooks.WithLabelValues(event, outcome).Inc()
}

// Take records a delivery, and returns once that is committed. It may be called with the same delivery any number of
// times, on any replica.
func (i *Intake) Take(ctx context.Context, d Delivery) Result {
	result := i.take(ctx, d)
	i.Count(result.Event, string(result.Outcome))
	return result
}

func (i *Intake) take(ctx context.Context, d Delivery) Result {
	if !validGUID(d.GUID) {
		return Result{Event: "", Outcome: Malformed, Reason: "the delivery has no " + github.HeaderDelivery + " header that could be its id"}
	}
	event, err := github.ParseWebhook(d.Event, d.Body)
	if err != nil {
		return Result{Outcome: Malformed, Reason: err.Error()}
	}
	delivery := dispatch.Delivery{GUID: d.GUID, Event: d.Event, At: d.At}
	switch event := event.(type) {
	case *github.InstallationEvent:
		return i.installation(ctx, delivery, event)
	case *github.InstallationRepositoriesEvent:
		return i.repositories(ctx, delivery, event)
	case *github.WorkflowJobEvent:
		return i.workflowJob(ctx, delivery, event)
	case *github.PingEvent:
		return Result{Event: "ping", Outcome: Recorded, Reason: "pong"}
	default:
		return ignored("other", "Bullpen has no use for this event; subscribe the App to workflow_job only")
	}
}

// validGUID: a key that is stored must be text that every store accepts.
func validGUID(guid string) bool {
	for _, c := range []byte(guid) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return guid != "" && len(guid) <= MaxGUID
}

func ignored(event, why string) Result {
	return Result{Event: event, Outcome: Ignored, Reason: "ignored: " + why}
}

func (i *Intake) installation(ctx context.Context, d dispatch.Delivery, ev *github.InstallationEvent) Result {
	switch ev.Action {
	case github.InstallationCreated, github.InstallationDeleted, github.InstallationSuspended,
		github.InstallationUnsuspended, github.InstallationPermissionsAccepted:
	default:
		return ignored("installation", "nothing follows from the action "+ev.Action)
	}
	if why := unattributed(ev.Account, ev.Enterprise, ev.Action == github.InstallationCreated); why != "" {
		return ignored("installation", why)
	}
	fresh, err := i.opt.Store.RecordInstallation(ctx, d, dispatch.Installation{
		Action: ev.Action, Account: account(ev.Account, ev.InstallationID), Suspended: !ev.SuspendedAt.IsZero(),
	})
	return i.recorded(ctx, d, "installation", fresh, err)
}

// unattributed says why nothing follows from an event of an installation, as far as its account is to blame. GitHub's schema lets an
// account be null: the ledger then looks up whose the installation is, unless the event is its first.
func unattributed(account github.Account, enterprise, first bool) string {
	switch {
	case enterprise:
		return "the App is installed on an enterprise, which has no repositories; install it on the enterprise's organizations"
	case account.ID == 0 && first:
		return "installation.account is null, so it is not known whose the installation is"
	}
	return ""
}

func (i *Intake) repositories(ctx context.Context, d dispatch.Delivery, ev *github.InstallationRepositoriesEvent) Result {
	const event = "installation_repositories"
	in := dispatch.Installation{Account: account(ev.Account, ev.InstallationID)}
	switch ev.Action {
	case github.RepositoriesAdded:
		in.Action, in.Repositories = dispatch.RepositoriesAdded, ev.Added
	case github.RepositoriesRemoved:
		in.Action, in.Repositories = dispatch.RepositoriesRemoved, ev.Removed
	}
	if why := unattributed(ev.Account, ev.Enterprise, false); why != "" {
		return ignored(event, why)
	}
	if len(in.Repositories) == 0 {
		return ignored(event, "it names no repository that was added or removed")
	}
	fresh, err := i.opt.Store.RecordInstallation(ctx, d, in)
	return i.recorded(ctx, d, event, fresh, err)
}

func (i *Intake) workflowJob(ctx context.Context, d dispatch.Delivery, ev *github.WorkflowJobEvent) Result {
	kind, ok := jobEventKind(ev)
	if !ok {
		return ignored("workflow_job", "nothing follows from the action "+ev.Action)
	}
	if len(dispatch.LabelKey(ev.Job.Labels)) > dispatch.MaxLabelKey { // storing it would fail however often it is redelivered
		return ignored("workflow_job", "the job has more labels than a pool can have; shorten its runs-on")
	}
	if ev.InstallationID == 0 {
		id, refusal := i.resolve(ctx, ev)
		if id == 0 {
			return refusal
		}
		ev.InstallationID = id
	}
	repository := fleet.Repository{Name: ev.Repository.FullName, ID: ev.Repository.ID}
	job := JobEvent(kind, account(ev.Repository.Owner, ev.InstallationID), repository, ev.Job)
	rec, err := i.opt.Store.RecordJob(ctx, d, job)
	if err == nil && rec.Outcome == fleet.Refuse && rec.Fresh {
		i.opt.Log.WarnContext(ctx, "ignored a webhook that does not fit the job's state", "job", ev.Job.ID, "action", ev.Action)
	}
	if err == nil && rec.Foreign {
		i.opt.Log.WarnContext(ctx, "a job runs on a runner with the name of one that was registered for another account",
			"job", ev.Job.ID, "account", job.Account.Login, "runner", job.RunnerName)
	}
	i.trace(d, job, rec, err)
	return i.recorded(ctx, d, "workflow_job", rec.Fresh, err)
}

// recorded is the result after the transaction: Recorded only when it was committed.
func (i *Intake) recorded(ctx context.Context, d dispatch.Delivery, event string, fresh bool, err error) Result {
	switch {
	case errors.Is(err, fleet.ErrUnstorable): // RECV-10: a redelivery would bring the same
		i.opt.Log.ErrorContext(ctx, "a webhook holds what cannot be stored", "event", event, "delivery", d.GUID, "error", err)
		return Result{Event: event, Outcome: Malformed, Reason: "the event holds a value that cannot be stored"}
	case err != nil:
		i.opt.Log.ErrorContext(ctx, "recording a webhook", "event", event, "delivery", d.GUID, "error", err)
		return Result{Event: event, Outcome: Failed, Reason: "the event could not be stored; redeliver it"}
	case fresh:
		return Result{Event: event, Outcome: Recorded, Reason: "recorded"}
	default:
		return Result{Event: event, Outcome: Repeated, Reason: "this delivery was recorded before"}
	}
}
