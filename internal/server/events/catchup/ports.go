package catchup

import (
	"context"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// Forge is GitHub as this package asks it. Errors are those of package fleet; it does not retry.
type Forge interface {
	DeliveryPage(ctx context.Context, cursor, etag string) (github.DeliveryPage, error)
	Payload(ctx context.Context, deliveryID int64) (github.Payload, error)
	Redeliver(ctx context.Context, deliveryID int64) error

	Job(ctx context.Context, installationID int64, repository fleet.Repository, jobID int64) (github.WorkflowJob, error)
	// ReadRuns is the control read beside which a job that is not found is gone.
	ReadRuns(ctx context.Context, installationID int64, repository fleet.Repository) error
	Runs(ctx context.Context, installationID int64, repository, status string, page int) ([]github.Run, int, error)
	RunJobs(ctx context.Context, installationID int64, repository string, runID int64, page int) ([]github.WorkflowJob, int, error)
	Run(ctx context.Context, installationID int64, repository string, runID int64) (github.Run, error)
	RerunJob(ctx context.Context, installationID int64, repository string, jobID int64) error
	// RerunFailedJobs runs all jobs of a run again that did not succeed.
	RerunFailedJobs(ctx context.Context, installationID int64, repository string, runID int64) error

	// AppRate and RateState are what GitHub last said of a limit; false when it has not yet.
	AppRate() (fleet.RateState, bool)
	RateState(installationID int64, resource string) (fleet.RateState, bool)
}

// Ledger keeps what the passes know from one run to the next. Every method is one transaction and may be repeated.
type Ledger interface {
	DeliveryLedger
	QueueLedger
	RerunLedger
}

// DeliveryLedger is about the list of deliveries.
type DeliveryLedger interface {
	DeliveryPosition(ctx context.Context) (Position, error)
	// SaveDeliveryPosition reports false when another replica has moved the position since it was read.
	SaveDeliveryPosition(ctx context.Context, p Position) (bool, error)
	// ReadEverythingSince has the list read again as far back as that, and successes that GitHub reports
	// ignored.
	ReadEverythingSince(ctx context.Context, since time.Time) error
	// NoteMissing notes those deliveries that the ledger does not have, to be asked for, and says how many are new.
	NoteMissing(ctx context.Context, list []github.Delivery, now time.Time) (int64, error)
	// SettleAsks: these are never asked for again, whether or not they were noted.
	SettleAsks(ctx context.Context, list []github.Delivery, now time.Time) error
	// SettleRecorded settles those that have been recorded since they were noted.
	SettleRecorded(ctx context.Context, now time.Time) error
	DueAsks(ctx context.Context, now time.Time, most int) ([]Ask, error)
	Asked(ctx context.Context, guid string, next time.Time) error
	// DropOldAsks forgets deliveries that GitHub has forgotten, and says how many of them were never settled.
	DropOldAsks(ctx context.Context, before time.Time) (int64, error)
}

// Ask is a delivery that the ledger lacks.
type Ask struct {
	GUID        string
	DeliveryID  int64
	Event       string
	DeliveredAt time.Time
	Attempts    int64 // how often it was asked for
}

// QueueLedger is about jobs that wait.
type QueueLedger interface {
	// AccountsAfter lists the ids of accounts behind that one, in order.
	AccountsAfter(ctx context.Context, after int64, most int) ([]int64, error)
	// RepositoriesToSweep lists repositories of these accounts, in their order, that were reported since seen and not swept since swept: so many
	// of each, the ones swept longest ago first.
	RepositoriesToSweep(ctx context.Context, swept, seen time.Time, accounts []int64, most int) ([]Repository, error)
	Swept(ctx context.Context, repository string, at time.Time) error
	// SweptPartly notes where the sweep of a repository is to continue.
	SweptPartly(ctx context.Context, repository string, resume Resume) error
	// JobStates are those of the jobs that are known, or were: a job whose row is gone and whose tombstone is not has
	// completed.
	JobStates(ctx context.Context, ids []int64) (map[int64]fleet.JobState, error)

	// JobsToAskAbout lists jobs of these accounts, in their order, that wait and were not asked about since then: so many of each, the ones asked
	// about longest ago first.
	JobsToAskAbout(ctx context.Context, before time.Time, accounts []int64, most int) ([]WaitingJob, error)
	AskedAbout(ctx context.Context, ids []int64, now time.Time) error
	// ConfirmWaiting records that GitHub has just reported the job as waiting for something else than a runner.
	ConfirmWaiting(ctx context.Context, id int64, now time.Time) error
	// ExpireJobs ends as stale jobs that have been waiting unmoved since before: those that were asked about in between,
	// and others if it is since before unasked. It returns their ids.
	ExpireJobs(ctx context.Context, before, unasked, now time.Time, most int) ([]int64, error)
}

// Repository is one with reported jobs.
type Repository struct {
	Name    string // owner/name
	Account dispatch.Account
	Resume  Resume
}

// Resume is where the sweep of a repository continues: among the runs of that status, before that run. The zero value
// is the beginning.
type Resume struct {
	Status string
	Run    int64
}

// WaitingJob is a job that is queued, or waits for something else than a runner.
type WaitingJob struct {
	State     fleet.JobState
	Event     dispatch.JobEvent // as it was reported, without a kind
	Suspended bool              // the account's installation
}

// RerunLedger is about jobs whose node died.
type RerunLedger interface {
	// JobsLostWithTheirPods lists jobs that GitHub calls failed and whose pods were lost before that, while they ran.
	JobsLostWithTheirPods(ctx context.Context, since, now time.Time, most int) ([]LostJob, error)
	RerunLater(ctx context.Context, id int64, at time.Time) error
	// RerunsOfRun says how many attempts of the run were asked for since that one, and whether GitHub's word on a job of it
	// is still awaited whose pod was lost since then.
	RerunsOfRun(ctx context.Context, runID, attempt int64, since time.Time) (asked int64, awaited bool, err error)
	// BookRerun books a re-run, unless the job and its forerunners in the same run have reached the maximum together; false then, or when
	// one is booked already. Jobs that are re-run together are booked with the same time.
	BookRerun(ctx context.Context, id int64, most int, now time.Time) (bool, error)
	// UnbookRerun takes the booking back: for good, or until then when the time is not zero.
	UnbookRerun(ctx context.Context, id int64, again time.Time) error
}

// LostJob is a job that failed with its node.
type LostJob struct {
	ID, RunID, RunAttempt     int64
	Name, Repository, PodName string
	RunnerName                string
	LatestID                  int64 // of the job in its run's latest attempt; zero until that was read
	LostAt                    time.Time
	Account                   dispatch.Account
}
