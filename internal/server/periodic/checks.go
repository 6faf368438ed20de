package periodic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
)

// ErrNoCheck: this Runner was made without Check.
var ErrNoCheck = errors.New("no check of pods is configured")

// checkArgs requests a check of one pod. A request that comes while such a check is under way asks for another one,
// after it: the one under way may have read its evidence already.
type checkArgs struct {
	PodUID string `json:"pod_uid"`
	After  int64  `json:"after,omitempty"`
}

func (checkArgs) Kind() string { return checkKind }

func (checkArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: checkQueue, MaxAttempts: 3, UniqueOpts: river.UniqueOpts{ByArgs: true, ByState: unfinished}}
}

// chain bounds how many checks of one pod may be under way at once; more than one or two are dead ones.
const chain = 5

// CheckPod requests a check of one pod, by any replica, within about a second. Requests for one pod whose check has not
// started are one. It returns when the request is stored, or with the error of the database: the passes see the pod too,
// later.
func (r *Runner) CheckPod(ctx context.Context, podUID string) error {
	if r.opts.Check == nil {
		return ErrNoCheck
	}
	ctx, cancel := context.WithTimeout(ctx, r.pace.statement)
	defer cancel()
	args := checkArgs{PodUID: podUID}
	for range chain {
		result, err := r.inserter.Insert(ctx, args, nil)
		if err != nil {
			return fmt.Errorf("asking for a check of a pod: %w", err)
		}
		if !result.UniqueSkippedAsDuplicate || result.Job.State != rivertype.JobStateRunning {
			return nil
		}
		args.After = result.Job.ID
	}
	return nil
}

type checkWorker struct {
	river.WorkerDefaults[checkArgs]
	runner *Runner
}

// Work has River try again what failed, in a few seconds, and then leaves it to the passes.
func (w *checkWorker) Work(ctx context.Context, job *river.Job[checkArgs]) error {
	err := w.runner.opts.Check(ctx, job.Args.PodUID)
	outcome := outcomeOK
	if err != nil {
		outcome = outcomeFailed
		err = fmt.Errorf("checking pod %s: %w", job.Args.PodUID, err)
	}
	w.runner.metrics.checks.WithLabelValues(outcome).Inc()
	return err
}

func (w *checkWorker) NextRetry(job *river.Job[checkArgs]) time.Time {
	return time.Now().Add(time.Duration(job.Attempt) * 2 * time.Second)
}
