package admin

import (
	"context"
	"errors"
	"net/http"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// RunnerStore retires runners.
type RunnerStore interface {
	// Claim is the pod's, or one without a state where it has none.
	Claim(ctx context.Context, podUID string) (dispatch.Claim, error)
	// RetireRunner inserts a retired row for a pod that has none, and the audit row with it in one transaction; it returns the pod's claim,
	// regardless of who made it (EXCL-1), and whether this call has retired it. fleet.ErrLedgerFrozen.
	RetireRunner(ctx context.Context, c Change, pod dispatch.Pod) (claim dispatch.Claim, changed bool, err error)
}

// LogStore keeps what runners that died had said last.
type LogStore interface {
	// RunnerLog is that of the pod of that name which died last; ErrNotFound.
	RunnerLog(ctx context.Context, namespace, pod string) (adminapi.RunnerLog, error)
}

// errNoLog: nothing is kept of that runner.
var errNoLog = errors.New("no log of that runner")

func (a *API) runnerLog(w http.ResponseWriter, r request) error {
	log, err := a.opt.Store.RunnerLog(r.Context(), r.PathValue("namespace"), r.PathValue("runner"))
	if errors.Is(err, ErrNotFound) {
		return errNoLog
	}
	if err != nil {
		return err
	}
	write(w, http.StatusOK, log)
	return nil
}

// retireRunner retires an idle runner of the pool, as the controller would: one primary key decides who gets the pod, and an earlier claim
// wins (EXCL-1). Nothing is deleted here: the pod is asked to stop at its next poll.
func (a *API) retireRunner(w http.ResponseWriter, r request) error {
	var body adminapi.Change
	if err := decode(w, r, &body, true); err != nil {
		return err
	}
	if err := checkReason(body.Reason); err != nil {
		return err
	}
	pod, there := a.opt.Fleet.Runner(r.PathValue("namespace"), r.PathValue("runner"))
	switch {
	case !there:
		return ErrNotFound
	case pod.Pool.Name == "":
		return &ConflictError{pod.Name + " is a self-registering runner and belongs to no pool: `kubectl delete` its owner, which waits for its job"}
	case pod.OwnerLabel != "" || pod.PollerEnded: // EXCL-4
		return a.alreadyGoing(w, r, pod)
	}
	const frozen = "the ledger is frozen while it is compared with GitHub after a restore: retry in a few minutes"
	if _, is := a.opt.Fleet.Frozen(); is { // CLAIM-17
		return &ConflictError{frozen}
	}
	change := r.change(body.Reason, 0, a.opt.Now())
	change.Account = pod.Namespace + "/" + pod.Name
	claim, changed, err := a.opt.Store.RetireRunner(r.Context(), change, pod)
	switch {
	case errors.Is(err, fleet.ErrLedgerFrozen):
		return &ConflictError{frozen}
	case err != nil:
		return err
	case dispatch.RetireVerdict(claim.State) == runnerapi.Busy: // EXCL-5
		return busy(pod, claim.Account.Login)
	case dispatch.RetireVerdict(claim.State) != runnerapi.Granted:
		return &ConflictError{"the state of " + pod.Name + " is unknown: nothing was changed"} // EXCL-3
	}
	a.opt.Fleet.ClaimChanged(pod.UID)
	showRetired(w, pod, claim, changed)
	return nil
}

// alreadyGoing answers for a runner that shows work: nothing is done to it. One that was retired a moment ago shows the end of its
// poller, too, until it has gone.
func (a *API) alreadyGoing(w http.ResponseWriter, r request, pod dispatch.Pod) error {
	claim, err := a.opt.Store.Claim(r.Context(), pod.UID)
	switch {
	case err != nil:
		return err
	case dispatch.RetireVerdict(claim.State) != runnerapi.Granted:
		return busy(pod, pod.OwnerLabel)
	}
	showRetired(w, pod, claim, false)
	return nil
}

func showRetired(w http.ResponseWriter, pod dispatch.Pod, claim dispatch.Claim, changed bool) {
	state := adminapi.RunnerRetired
	if claim.State == fleet.ClaimSpent {
		state = adminapi.RunnerFinished
	}
	write(w, http.StatusOK, adminapi.RetiredRunner{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Pool: pod.Pool.Name, State: state, Changed: changed,
	})
}

func busy(pod dispatch.Pod, owner string) error {
	forOwner := ""
	if owner != "" {
		forOwner = " for " + owner
	}
	return &ConflictError{pod.Name + " is busy with a job" + forOwner + " and was left running. It is removed when the job finishes; to stop the job, cancel it on GitHub."}
}
